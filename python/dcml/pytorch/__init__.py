"""PyTorch front end: DaceModule and the dace_module decorator."""
from .module import DaceModule, dace_module

__all__ = ["DaceModule", "dace_module"]
