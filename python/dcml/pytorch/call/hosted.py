"""A captured graph in which extents depend on values, as the function that a plan calls.

The one idea: the host program that serves such ONNX models runs it in parts, compiled between the operators that find
the extents; torch's tape joins the gradients of the parts.
Must not know: plans, modules or rows of operators.
"""
import numpy as np
import torch

from ...onnx.host import Program


def _tensor(value):
    """As torch.as_tensor, which takes none of the types that NumPy has from elsewhere: bfloat16 and the float8 kinds."""
    foreign = isinstance(value, np.ndarray) and value.dtype.type.__module__ == "ml_dtypes"
    return torch.from_numpy(value.view(f"u{value.itemsize}")).view(getattr(torch, value.dtype.name)) if foreign else torch.as_tensor(value)


class Hosted:
    """As a core Function made with ``wrt`` and ``tape``, of which it has what calls and explains need.

    options: of the core Functions of the parts.
    """

    observer, backward_reads, backward_graph = None, (), None

    def __init__(self, graph, wrt, tape, options):
        self._program, self.params = Program(graph, options), ()
        self.forward_graph, self._wrt = graph, frozenset(wrt or ())
        self._on_tape = [not self._wrt.isdisjoint(names) for names in tape]
        self.wrt_positions = tuple([k for k, name in enumerate(self._program.inputs) if name in self._wrt])

    def set_params(self, tensors):
        self.params = tuple(tensors)

    def observe(self, observer):
        """Parts are not observed."""

    def report(self):
        """Parts have programs of their own, one for each of their shapes."""
        return None, None

    def __call__(self, *inputs):
        names = self._program.inputs
        given = [t if name in self._wrt else t.detach() for name, t in zip(names, (*inputs, *self.params))]
        with torch.set_grad_enabled(bool(self._wrt)):
            results = [_tensor(value) for value in self._program(*[t.contiguous() for t in given])]
        return tuple([y if on_tape else y.detach() for y, on_tape in zip(results, self._on_tape)])
