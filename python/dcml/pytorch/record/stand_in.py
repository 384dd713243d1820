"""What code is given in place of tensors while its calls are recorded.

The one idea: a stand-in says the device, type, extents and strides of a tensor; it has a tensor on torch's device "meta" for each
world (see symbols.py), for which torch's own kernels tell what operators give.
Must not know: graphs, or who records.
"""
import torch


class StandIn(torch.Tensor):
    """metas: the tensor on device "meta" in each world.  tell(function, args, kwargs): what a call gives outside of any mode."""
    metas: list
    worlds: object
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, metas, worlds, device, requires_grad=False, parameter=False):
        first = metas[0]
        sizes, strides = ([worlds.fitted(values) for values in zip(*told)]
                          for told in ([m.size() for m in metas], [m.stride() for m in metas]))
        offset = worlds.fitted(tuple([m.storage_offset() for m in metas]))
        made = torch.Tensor._make_wrapper_subclass(cls, sizes, strides=strides, storage_offset=offset, dtype=first.dtype,
                                                   layout=first.layout, device=device, requires_grad=requires_grad)
        if first.is_conj():
            torch._C._set_conj(made, True)
        if first.is_neg():
            torch._C._set_neg(made, True)
        if parameter:
            made._is_param = True  # which isinstance(made, torch.nn.Parameter) asks for
        made.metas, made.worlds = metas, worlds
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return cls.tell(function, args, kwargs or {})

    def __repr__(self, *, tensor_contents=None):
        return f"StandIn({self.dtype}, {list(self.shape)}, {str(self.device)!r})"

    @classmethod
    def of(cls, tensor, worlds, sizes=None, parameter=False):
        """For a tensor whose extents are these, ints or symbols' names."""
        sizes = list(tensor.shape) if sizes is None else sizes
        if not any(isinstance(size, str) for size in sizes):
            metas = [_meta_of(tensor, sizes)] * len(worlds)
        else:
            metas = [_meta_of(tensor, [values.get(size, size) for size in sizes]) for values in worlds.values]
        return cls(metas, worlds, tensor.device, tensor.requires_grad, parameter)

    @property
    def is_same_everywhere(self):
        return self.metas[0] is self.metas[-1]

    def like(self, values):
        """A tensor on device "meta" of its extents and strides where the symbols are these values."""
        sizes, strides = ([n.node.expr.at(values) if isinstance(n, torch.SymInt) else n for n in told]
                          for told in (self.shape, self.stride()))
        return torch.empty_strided(sizes, strides, dtype=self.dtype, device="meta")


def _meta_of(tensor, sizes):
    """A tensor of these extents, whose elements lie in the order of the tensor's."""
    with torch._C._DisableTorchDispatch():
        strides = tensor.stride()
        if list(tensor.shape) != list(sizes):
            dense = sorted(range(tensor.dim()), key=lambda axis: (strides[axis], tensor.shape[axis], -axis))
            strides, inner = list(strides), 1
            for axis in dense:
                strides[axis], inner = inner, inner * sizes[axis]
        made = torch.empty_strided(sizes, strides, dtype=tensor.dtype, device="meta")
        if tensor.is_conj():
            made = made.conj()
        return torch._neg_view(made) if tensor.is_neg() else made


def memory_of(tensor):
    """What is the same for tensors that look at one memory."""
    return (tensor.metas[0] if isinstance(tensor, StandIn) else tensor).untyped_storage()._cdata
