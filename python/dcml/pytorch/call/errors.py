"""What a call raises where a condition that forward relies on does not hold.

Must not know: how conditions are found.
"""
import torch

from ... import _core


class LinAlgError(_core.ValueError_, torch.linalg.LinAlgError):
    """A matrix is singular or not positive-definite where the function needs it to be otherwise, as in eager torch."""


class Decided(Exception):
    """Python code of forward decides otherwise by a value of this call.  known: what it decides first, as far as the call has told;
    line: of the last of these; seed: of the call's random numbers."""

    def __init__(self, known, line, seed=None):
        super().__init__(known, line)
        self.known, self.line, self.seed = known, line, seed


BY_NAME = {kind.__name__: kind for kind in (_core.ValueError_, LinAlgError)}
