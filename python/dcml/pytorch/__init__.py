"""PyTorch front end: DaceModule and the dace_module decorator."""
from .call.errors import LinAlgError
from .decorator import dace_module
from .module import DaceModule

__all__ = ["DaceModule", "LinAlgError", "dace_module"]
