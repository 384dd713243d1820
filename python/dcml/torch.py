"""The PyTorch front end under its shorter name: ``from dcml.torch import DaceModule``."""
from .pytorch import DaceModule, dace_module

__all__ = ["DaceModule", "dace_module"]
