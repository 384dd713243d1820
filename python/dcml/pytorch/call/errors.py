"""What a call raises where a condition that forward relies on does not hold.

Must not know: how conditions are found.
"""
import torch

from ... import _core


class LinAlgError(_core.ValueError_, torch.linalg.LinAlgError):
    """A matrix is singular or not positive-definite where the function needs it to be otherwise, as in eager torch."""


BY_NAME = {kind.__name__: kind for kind in (_core.ValueError_, LinAlgError)}
