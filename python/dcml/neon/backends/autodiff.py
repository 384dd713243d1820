"""Gradients of op-trees.

The one idea: the gradient of a tree in a tensor is a node, whose value is the core's reverse mode on the tree's graph.
Must not know: derivatives of operators.
"""
from ... import _core
from .run import assign
from .tensor import Tensor
from .tree import Operand, OpTreeNode, is_number, shape_of


def gradient(tree, error, tensor):
    """The node of the gradient of ``tree``, times ``error``, in ``tensor``."""
    of = OpTreeNode({"op": "of", "shape": tensor.shape, "wrt": None}, error, tensor)
    return OpTreeNode({"op": "grad", "shape": tensor.shape, "wrt": None}, tree, of)


class Autodiff:
    """Gradients of an op-tree in tensors.

    op_tree: OpTreeNode or Tensor.  be: its backend.
    next_error: the gradient of a loss in the tree's value, Tensor or OpTreeNode of the tree's shape; by default 1 everywhere,
        which gives gradients of the sum of all elements.
    Gradients in a view are those in the memory that it shows; a tensor that the tree does not use has zeros.
    Raises TypeError for another kind of tree, ShapeError for an error of another shape.
    """

    def __init__(self, op_tree, be, next_error=None):
        if not isinstance(op_tree, (OpTreeNode, Tensor)) and not is_number(op_tree):
            raise TypeError(f"Autodiff takes an op-tree or a tensor, not {type(op_tree).__name__}")
        if not hasattr(be, "execute"):
            raise TypeError(f"Autodiff takes a backend, not {type(be).__name__}")
        if next_error is not None and not isinstance(next_error, Operand):
            raise TypeError(f"next_error is a Tensor or an op-tree, not {type(next_error).__name__}")
        if next_error is not None and next_error.shape != shape_of(op_tree):
            raise _core.ShapeError(f"next_error has shape {next_error.shape}, the tree {shape_of(op_tree)}")
        self.op_tree, self.be, self.dtype = op_tree, be, be.default_dtype
        self.next_error = be.ones(shape_of(op_tree)) if next_error is None else next_error
        self._error = 1.0 if next_error is None else next_error

    def get_grad_op_tree(self, tensors):
        """The gradients in a list of tensors, as op-trees, which see the tensors as they are when they are assigned."""
        self._check(tensors)
        if self.op_tree is None:
            raise _core.ValueError_("this Autodiff was cleaned up")
        if is_number(self.op_tree):
            return [OpTreeNode({"op": "sub", "shape": x.shape}, x, x) for x in tensors]
        return [gradient(self.op_tree, self._error, x) for x in tensors]

    def get_grad_tensor(self, tensors):
        """The gradients in a list of tensors, as new tensors of the backend's type."""
        made = [self.be.empty(x.shape) for x in self._check(tensors)]
        self.back_prop_grad(tensors, made)
        return made

    def get_grad_asnumpyarray(self, tensors):
        """The gradients in a list of tensors, as arrays of numpy."""
        return [x.get().astype(self.dtype, copy=False) for x in self.get_grad_tensor(tensors)]

    def back_prop_grad(self, tensors, gradients):
        """Writes the gradients in a list of tensors into a list of tensors.

        All are computed before the first is written, so ``gradients`` may hold next_error, or what the tree reads.
        """
        if len(self._check(tensors)) != len(self._check(gradients)):
            raise _core.ValueError_(f"back_prop_grad(): {len(tensors)} tensors and {len(gradients)} gradients")
        if tensors:
            assign(tuple(zip(gradients, self.get_grad_op_tree(tensors))))

    def cleanup(self):
        """Lets go of the tree and its tensors."""
        self.op_tree = self.next_error = self._error = self.be = None

    @staticmethod
    def _check(tensors):
        for x in tensors:
            if not isinstance(x, Tensor):
                raise TypeError(f"gradients are taken in tensors, not {type(x).__name__}")
        return tensors
