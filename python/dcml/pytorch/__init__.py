"""PyTorch front end: DaceModule and the dace_module decorator."""
from .decorator import dace_module
from .module import DaceModule

__all__ = ["DaceModule", "dace_module"]
