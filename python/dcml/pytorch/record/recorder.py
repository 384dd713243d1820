"""Writes down each call of ATen that code makes on stand-ins, as a node of an fx graph.

The one idea: operators are met above autograd and before composites are taken apart; what a call gives, torch's own kernels for
device "meta" tell.  What they cannot tell is beyond this: values of tensors, transforms of functions, operators of operators.
Must not know: modules, rows of operators, or what is done with the graph.
"""
import contextlib
import functools
import linecache
import operator
import sys

import torch
from torch._prims_common import suggest_memory_format
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from . import counted
from .stand_in import StandIn
from .symbols import Beyond, Bounded, Fixed, Merge
from .told import Told

_BY_VALUES = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_DETACH = {torch.ops.aten.detach.default, torch.ops.aten.detach_.default}
aten = torch.ops.aten
_VIEWED_IN_PLACE = {  # overload: the view that its argument becomes
    aten.squeeze_.default: aten.squeeze.default, aten.squeeze_.dim: aten.squeeze.dim, aten.squeeze_.dims: aten.squeeze.dims,
    aten.unsqueeze_.default: aten.unsqueeze.default, aten.t_.default: aten.t.default, aten.transpose_.default: aten.transpose.int}
_UNROLLED = {torch.ops.aten.lstm, torch.ops.aten.gru, torch.ops.aten.rnn_tanh, torch.ops.aten.rnn_relu}
_FLASH = torch.nn.attention.SDPBackend.FLASH_ATTENTION.value
_DECIDES = {aten.is_nonzero, aten.equal, aten.allclose, aten.item, aten._local_scalar_dense}
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_CALL = torch.nn.Module._wrapped_call_impl.__code__


class Frames:
    """The lines that led to a call, as text where it is asked for."""

    def __init__(self, frame, last):
        self._lines = []
        while frame is not None and frame.f_code is not last:
            self._lines.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
            frame = frame.f_back

    def __str__(self):
        return "".join([f'  File "{file}", line {line}, in {name}\n    {linecache.getline(file, line).strip()}\n'
                        for file, line, name in reversed(self._lines)])


class Telling(TorchDispatchMode):
    """Calls give what they give for stand-ins, and are not written down."""

    def __init__(self, worlds):
        super().__init__()
        self.worlds = worlds
        self._told_before = Told()

    @classmethod
    def _should_skip_dynamo(cls):
        """What keeps torch.compile out of modes is loaded with it, which takes longer than all that they do."""
        return False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        _refuse(function)
        _refuse_symbol(function, args)
        leaves, spec = pytree.tree_flatten((args, kwargs))
        given = [StandIn.of(leaf, self.worlds) if isinstance(leaf, torch.Tensor) and not isinstance(leaf, StandIn) else leaf
                 for leaf in leaves]
        return self._told(function, leaves, given, spec)

    def _told(self, function, leaves, given, spec):
        """What a call gives: arguments where it is them, and new stand-ins.  given: stand-ins for the tensors among the leaves."""
        args, kwargs = pytree.tree_unflatten(given, spec)
        device = _device_of(function, args, kwargs, given)
        made = self._told_before.of((function, spec, device), given,
                                    lambda: self._in_worlds(function, given, spec, _of_device(function, device)))
        owners = {id(leaf.metas[0]): (original, leaf.metas) for leaf, original in zip(given, leaves) if isinstance(leaf, StandIn)}
        return self._stand_ins(made, owners, device)

    def _in_worlds(self, function, given, spec, run):
        """What the call gives in each world; run: what tells it."""
        made = []
        anew = _takes_device(function) and not any(isinstance(leaf, torch.Tensor) for leaf in given)
        same = all(leaf.is_same_everywhere if isinstance(leaf, StandIn) else not isinstance(leaf, torch.SymInt) for leaf in given)
        for k in range(1 if same else len(self.worlds)):
            args, kwargs = pytree.tree_unflatten([self._in_world(k, leaf) for leaf in given], spec)
            kwargs = {**kwargs, "device": "meta"} if anew else kwargs
            try:
                made.append(_run(run, args, kwargs))
            except Beyond:
                raise
            except Exception as error:
                if k == 0:
                    raise Beyond(f"{function}: {error}") from error
                raise self._not_for_all(function, given, spec) from error
            if isinstance(made[k], (list, tuple)) and len(made[k]) != len(made[0]):  # before a larger world makes a million of them
                raise Fixed(set().union(*map(_symbols_of, given)), "how many tensors there are depends on an extent")
        return made * len(self.worlds) if same else made

    def _not_for_all(self, function, given, spec):
        """Why a call is one of the recorded call's extents only."""
        symbols = set().union(*map(_symbols_of, given))
        if alike := self.worlds.alike(symbols):
            return Merge(alike)
        reason = f"{function} takes not all {', '.join(sorted(symbols))}"
        if all(self._works(function, given, spec, values) for values in self.worlds.values[2:]):
            for s, low in [(s, low) for s in sorted(symbols) for low in self._lower_bounds(s)]:
                if self._works(function, given, spec, {**self.worlds.values[1], s: low}):
                    return Bounded({s: self.worlds.narrowed(s, low, None)}, reason)
        others = [*self.worlds.values[1:], *[{s: v * k for s, v in self.worlds.hints.items()} for k in (2, 3)]]
        return Beyond(reason) if any(self._works(function, given, spec, values) for values in others) else Fixed(symbols, reason)

    def _lower_bounds(self, s):
        """Some that a symbol may have rather than its own: the power of two at or below its value in the call, and this value."""
        hint = self.worlds.hints[s]
        return [low for low in (1 << hint.bit_length() - 1, hint) if low > self.worlds.bounds[s][0]]

    def _works(self, function, given, spec, values):
        """Does a call give something where the symbols are these values?"""
        leaves = [leaf.like(values) if isinstance(leaf, StandIn) else self._at(values, leaf) for leaf in given]
        args, kwargs = pytree.tree_unflatten(leaves, spec)
        try:
            _run(function, args, kwargs)
        except Exception:  # of whatever kind
            return False
        return True

    def _in_world(self, k, leaf):
        return leaf.metas[k] if isinstance(leaf, StandIn) else self._at(self.worlds.values[k], leaf)

    def _at(self, values, leaf):
        if isinstance(leaf, torch.SymInt):
            return leaf.node.expr.at(values)
        return torch.device("meta") if isinstance(leaf, torch.device) else leaf

    def _stand_ins(self, made, owners, device):
        """What ``made`` in each world is: arguments where it is them, and new stand-ins."""
        told = [pytree.tree_flatten(one) for one in made]
        if any(spec != told[0][1] for _, spec in told):
            raise Beyond("how many tensors there are depends on an extent")
        results, fresh = [], {}
        for parts in zip(*[leaves for leaves, _ in told]):
            first = parts[0]
            if not isinstance(first, torch.Tensor):
                results.append(self.worlds.fitted(parts) if type(first) is int else first)
            elif id(first) in owners:
                owner, metas = owners[id(first)]
                if any(part is not meta for part, meta in zip(parts, metas)):
                    raise Beyond("what it gives depends on an extent")
                results.append(owner)
            elif first.layout is not torch.strided or first.is_quantized:
                raise Beyond(f"a tensor of layout {first.layout}")
            else:
                if id(first) not in fresh:
                    fresh[id(first)] = StandIn(list(parts), self.worlds, device)
                results.append(fresh[id(first)])
        return pytree.tree_unflatten(results, told[0][1])


class Recorder(Telling):
    """graph: an fx graph, which gets nodes while the mode is on; node.meta["val"] is what a call gives, stand-ins or numbers.

    worlds: a Worlds.  paths: {id of a module: its path}.  last: the code whose frames are no part of what is recorded.
    real(tensor): the node for a tensor that is no stand-in.
    """

    def __init__(self, worlds, paths=None, last=None, real=None):
        super().__init__(worlds)
        self.decisions = None  # a Decisions; None: Python may not decide by values
        self.graph = torch.fx.Graph()
        self._paths, self._last, self._real = paths or {}, last, real
        self._nodes = {}    # id of a stand-in -> its node
        self._held = []     # stand-ins, whose ids are in use
        self._numbers = {}  # Polynomial -> node
        self._inputs = []   # placeholders
        self._region, self._graded = 0, True  # regions without gradients are negative
        self._autocasts = _autocasts()
        self._casts = any(enabled for *_, enabled in self._autocasts)

    # -- inputs and results -------------------------------------------------------------------------
    def placeholder(self, name, value):
        node = self.graph.placeholder(name)
        node.name = name  # fx itself gives no names of builtins
        node.meta["val"] = value
        self._inputs.append(node)
        self.name(value, node)
        return node

    def name(self, value, node):
        """From here on, this node stands for a stand-in or an extent."""
        if isinstance(value, torch.SymInt):
            self._numbers.setdefault(value.node.expr, node)
        else:
            self._nodes[id(value)] = node
            self._held.append(value)

    def node(self, value):
        """The node of a stand-in or an extent, also one that is none of this recording; others stand for themselves."""
        if isinstance(value, torch.SymInt):
            return self._number(value.node.expr)
        if isinstance(value, (torch.SymFloat, torch.SymBool)):
            raise Beyond("a computed number")
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self._nodes:
            if isinstance(value, StandIn) or self._real is None:
                raise Beyond("a tensor of another recording")
            return self._real(value)
        return self._nodes[id(value)]

    def _number(self, expr):
        if expr.is_number:
            return int(expr)
        if expr not in self._numbers:
            self._numbers[expr] = self._extent(expr) or self._computed(expr)
        return self._numbers[expr]

    def _extent(self, expr):
        """The extent of an input that is this number."""
        for node in self._inputs:
            value = node.meta["val"]
            for axis, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
                if isinstance(size, torch.SymInt) and size.node.expr == expr:
                    return self._call(aten.sym_size.int, (node, axis), {}, size)
        return None

    def _computed(self, expr):
        if expr.is_Symbol:
            raise Beyond(f"the extent {expr} is that of no input")
        function = {"Add": operator.add, "Mul": operator.mul}[expr.operation]
        first, *rest = expr.args
        for term in rest:
            total = first + term if function is operator.add else first * term
            made = self._call(function, (self._number(first), self._number(term)), {}, self.worlds.int_of(total))
            self._numbers.setdefault(total, made)
            first = total
        return self._numbers[first]

    # -- calls --------------------------------------------------------------------------------------
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is aten.lift_fresh.default and not isinstance(args[0], StandIn):
            function = aten.lift_fresh_copy.default
        if function in _DETACH and self._is_made_anew(args[0]):
            return args[0]  # at the end of torch.tensor, torch.zeros and others
        if self.decisions is not None and function.overloadpacket in _DECIDES and (asked := self._asked(function, args, kwargs)):
            return self._decided(*asked)
        if function in counted.ROWS and self.decisions is not None and self.decisions.numbers and not is_transforming():
            told = counted.ROWS[function](self._recorded, lambda tensor: self._decided(tensor, int), *args, **kwargs)
            if told is not None:
                return told
        if function in _VIEWED_IN_PLACE and isinstance(args[0], StandIn) and self.node(args[0]).op != "placeholder":
            return self._viewed_in_place(function, args, kwargs)
        _refuse(function)
        _refuse_symbol(function, args)
        written = function._schema.is_mutable
        if written:
            self._fit_results(function, args, kwargs)
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if any(isinstance(leaf, torch.Tensor) for leaf in leaves):
            self._note_modes()
        if written and not self._graded:
            raise Beyond(f"{function} changes a tensor without a gradient")
        nodes = [self.node(leaf) for leaf in leaves]
        given = [node.meta["val"] if isinstance(node, torch.fx.Node) and isinstance(leaf, torch.Tensor) else leaf
                 for leaf, node in zip(leaves, nodes)]
        result = self._told(function, leaves, given, spec)
        parts = pytree.tree_leaves(result)
        if not written and parts and all(any(part is leaf for leaf in leaves) for part in parts):
            return result  # nothing is done
        kept = {id(part) for part in parts if part is not None and any(part is leaf for leaf in leaves)}
        stays, named = pytree.tree_unflatten(nodes, spec)
        node = self._call(function, stays, named, result)
        self._take_apart(node, result, kept)
        if written:
            self._tell_of_changes(function, args, kwargs)
        return result

    def _asked(self, function, args, kwargs):
        """(tensor of one element, kind of number) that Python decides by, where a call asks for its value."""
        packet, tensor = function.overloadpacket, args[0]
        if is_transforming() or not isinstance(tensor, StandIn):
            return None
        if packet is aten.equal or packet is aten.allclose:
            if packet is aten.equal and tuple(args[0].shape) != tuple(args[1].shape):
                return None
            call = (aten.eq.Tensor, (), args) if packet is aten.equal else (aten.isclose.default, (), args, kwargs)
            near = self.__torch_dispatch__(*call)
            return self.__torch_dispatch__(aten.all.default, (), (near,)), bool
        if any(type(size) is not int or size != 1 for size in tensor.shape):
            return None
        if packet is aten.is_nonzero:
            return tensor, bool
        numbers = tensor.dtype is torch.bool or not (tensor.is_floating_point() or tensor.is_complex())
        return (tensor, bool if tensor.dtype is torch.bool else int) if self.decisions.numbers and numbers else None

    def _recorded(self, function, *args, **kwargs):
        return self.__torch_dispatch__(function, (), args, kwargs)

    def _decided(self, tensor, kind):
        node = self.node(tensor)
        before = len(self.decisions.made)
        value = self.decisions.of(node, kind)
        if len(self.decisions.made) > before:
            self._call(torch.ops.dcml.decided.default, (node, kind is bool), {}, None)
        return value

    def _viewed_in_place(self, function, args, kwargs):
        """A value that gets other extents in place, as torch's own composites do: from here on it is the view of what it was."""
        seen, value = self.__torch_dispatch__(_VIEWED_IN_PLACE[function], (), args, kwargs), args[0]
        self._becomes(value, seen)
        return value

    def _becomes(self, value, other):
        self._nodes[id(value)].meta["val"] = StandIn(value.metas, self.worlds, value.device)
        with torch._C._DisableTorchDispatch():
            value.data = other
        value.metas = other.metas
        self.name(value, self._nodes[id(other)])

    def _fit_results(self, function, args, kwargs):
        """Tensors without elements that are given for results (out=torch.empty(0)) get the extents of these."""
        empty = {a.name: kwargs[a.name] for a in function._schema.arguments if a.is_out and isinstance(kwargs.get(a.name), StandIn)
                 and kwargs[a.name].numel() == 0 and self.node(kwargs[a.name]).op != "placeholder"}
        if not empty:
            return
        trial = {name: StandIn(list(map(torch.empty_like, value.metas)), self.worlds, value.device) for name, value in empty.items()}
        Telling.__torch_dispatch__(self, function, (), args, {**kwargs, **trial})
        for name, value in empty.items():
            size = StandIn(trial[name].metas, self.worlds, value.device).shape
            if size != value.shape:
                fitted = self._recorded(aten.empty.memory_format, list(size), dtype=value.dtype, device=value.device)
                self._becomes(value, fitted)

    def _is_made_anew(self, tensor):
        node = self.node(tensor)
        return node.target is aten.lift_fresh_copy.default or _is_like_another(node.target) or node.op == "call_function" and not any(
            isinstance(one.meta["val"], (torch.Tensor, list, tuple)) for one in node.all_input_nodes)

    def _call(self, function, args, kwargs, value):
        packet = function.overloadpacket if isinstance(function, torch._ops.OpOverload) else function
        node = self.graph.call_function(function, args, kwargs)
        node._rename(self.graph._target_to_str(packet.__name__))
        node.meta["val"], node.meta["region"] = value, self._region
        if self._casts:
            node.meta["autocast"] = self._autocasts
        if self._last is not None:
            frame = sys._getframe(2)
            node.meta["stack_trace"] = Frames(frame, self._last)
            node.meta["nn_module_stack"] = {"": (self._path(frame), None)}
        return node

    def _path(self, frame):
        while frame is not None and frame.f_code is not self._last:
            if frame.f_code is _CALL and (path := self._paths.get(id(frame.f_locals.get("self")))) is not None:
                return path
            frame = frame.f_back
        return ""

    def _take_apart(self, node, result, kept):
        if isinstance(result, (list, tuple)):
            for k, part in enumerate(result):
                if isinstance(part, torch.Tensor):
                    get = self._call(operator.getitem, (node, k), {}, part)
                    if id(part) not in kept:
                        self.name(part, get)
        elif isinstance(result, torch.Tensor) and id(result) not in kept:
            self.name(result, node)

    def _note_modes(self):
        graded, self._autocasts = torch.is_grad_enabled(), _autocasts()
        self._casts = self._casts or any(enabled for *_, enabled in self._autocasts)
        if graded != self._graded:
            self._graded, self._region = graded, abs(self._region) + 1 if graded else -abs(self._region) - 1

    def _tell_of_changes(self, function, args, kwargs):
        for k, argument in enumerate(function._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                given = args[k] if k < len(args) else kwargs.get(argument.name)
                for tensor in pytree.tree_leaves(given):
                    if isinstance(tensor, StandIn):
                        torch.autograd.graph.increment_version(tensor)


def _autocasts():
    return [(device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device)) for device in ("cpu", "cuda")]


def _symbols_of(leaf):
    numbers = [*leaf.shape, *leaf.stride()] if isinstance(leaf, StandIn) else [leaf]
    return set().union(*[n.node.expr.free_symbols for n in numbers if isinstance(n, torch.SymInt)])


def _of_device(function, device):
    """What tells the result of a call on a device: its layout may be that of a kernel that only the device has."""
    lays_out = _LAYS_OUT.get(function.overloadpacket)
    if lays_out is None or lays_out in (_by_order, _by_padding) and device.type != "cpu":
        return _TOLD_BY.get(function, function)
    if device.type != "cpu":
        raise Beyond(f"{function} on {device}")
    chosen = []  # in the first world, for all: the memory of large tensors is not asked for

    def laid_out(*args, **kwargs):
        made = function(*args, **kwargs)
        if not chosen:
            like = [torch.empty_strided(a.shape, a.stride(), dtype=a.dtype) if isinstance(a, torch.Tensor) else a for a in args]
            chosen.append(lays_out(function, like, kwargs))  # by extents and types, no values
        return chosen[0](made, args[0])
    return laid_out


def _by_attention(function, args, kwargs):
    if torch._fused_sdp_choice(*args, **kwargs) != _FLASH:
        return lambda made, query: made
    return lambda made, query: torch.empty_like(query)


def _by_convolution(function, args, kwargs):
    given = dict(zip([argument.name for argument in function._schema.arguments], args), **kwargs)
    x, w = given["input"], given["weight"]
    n = w.dim() - 2
    batch = x if x.dim() == w.dim() else x[None]
    transposed = given.get("transposed", "transpose" in function.name())
    of = [given.get(name, (1,)) for name in ("stride", "padding", "dilation")]
    of = [[0] * n if isinstance(value, str) else list(value) * (n if len(value) == 1 else 1) for value in of]
    if "padding" not in given:
        of[1] = [0] * n
    backend = torch._C._select_conv_backend(batch, w, None, *of, transposed, [0] * n, given.get("groups", 1), None)
    order = torch._C._conv_determine_backend_memory_format(batch, w, backend)
    return lambda made, x: made.contiguous(memory_format=order) if made.dim() == n + 2 else made


def _by_order(function, args, kwargs):
    """Of an image whose channels lie last, they do so in the result."""
    last = args[0].dim() == 4 and not args[0].is_contiguous() and args[0].is_contiguous(memory_format=torch.channels_last)
    return lambda made, x: made.contiguous(memory_format=torch.channels_last) if last else made


def _by_padding(function, args, kwargs):
    mode = (*args[2:3], kwargs.get("mode"))[0]
    return (lambda made, x: made) if mode == "circular" else _by_order(function, args, kwargs)


_LAYS_OUT = {aten.scaled_dot_product_attention: _by_attention,
             **dict.fromkeys((aten.pixel_shuffle, aten.channel_shuffle, aten.group_norm, aten.reflection_pad2d, aten.replication_pad2d,
                              aten.roll), _by_order),
             aten.pad: _by_padding,
             **dict.fromkeys((aten.convolution, aten.conv1d, aten.conv2d, aten.conv3d, aten.conv_transpose1d, aten.conv_transpose2d,
                              aten.conv_transpose3d), _by_convolution)}


def _nearest(x, grid, mode, padding, align):
    """Elements at given places of an image: how they are interpolated tells nothing of the result but its values."""
    return aten.grid_sampler(x, grid, *((1, 0) if x.dim() == 4 else (mode, padding)), align)


def _normalised(x, weight, bias, mean, variance, training, *_):
    """An image with each channel normalised, laid out as torch's kernels do."""
    given = {"running_mean": mean, "running_var": variance, "weight": weight, "bias": bias}
    if not training and (mean is None or variance is None):
        raise ValueError("running_mean and running_var must be defined in evaluation mode")
    for name, tensor in given.items():
        if tensor is not None and tensor.shape != x.shape[1:2]:
            raise ValueError(f"{name} should contain {x.shape[1]} elements not {tensor.numel()}")
    return torch.empty_like(x, memory_format=suggest_memory_format(x))


# what torch tells by hundreds of calls of Python: what gives the same but for values, and is told by few
_TOLD_BY = {aten.batch_norm.default: _normalised, aten.grid_sampler.default: _nearest, aten.grid_sampler_2d.default: _nearest,
            **dict.fromkeys((aten.upsample_bilinear2d.vec, aten.upsample_bicubic2d.vec), aten._upsample_bilinear2d_aa.vec),
            **dict.fromkeys((aten.upsample_bilinear2d.default, aten.upsample_bicubic2d.default), aten._upsample_bilinear2d_aa.default)}


def _run(function, args, kwargs):
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch._C._DisableAutocast():
        return function(*args, **kwargs)


@functools.cache
def _is_like_another(function):
    """zeros_like, new_zeros and others: they take extents and types from a tensor, but none of its values."""
    name = function.overloadpacket.__name__ if isinstance(function, torch._ops.OpOverload) else ""
    return name.endswith("_like") or name.startswith("new_")


@functools.cache
def _takes_device(function):
    return any(argument.name == "device" for argument in function._schema.arguments)


@functools.cache
def _refusal(function):
    if not isinstance(function, torch._ops.OpOverload):
        return "an operator of operators"
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(function.name(), _COMPOSITE)  # whose parts are asked
    if not _BY_VALUES.isdisjoint(function.tags) and not composite and function is not aten.index.Tensor:  # of which a mask is refused
        return "values of tensors"
    if torch.Tag.inplace_view in function.tags:
        return "a tensor changes its extents"
    if function.overloadpacket in _UNROLLED:
        return "torch's own way takes each step by itself"
    return None


def is_transforming():
    """Is this inside torch.vmap, torch.func.grad or another of torch.func?  What they call on plain tensors is not."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def _refuse(function):
    reason = _refusal(function)
    if reason is None and is_transforming():
        reason = "a transform of functions"
    if reason is not None:
        raise Beyond(f"{function}: {reason}")


def _refuse_symbol(function, args):
    """Torch's own kernel goes through this extent step by step, which takes minutes in the largest world."""
    if function.overloadpacket is aten.bilinear and isinstance(args[2], StandIn) and isinstance(args[2].shape[0], torch.SymInt):
        raise Fixed(args[2].shape[0].node.expr.free_symbols, f"{function} takes each output by itself")


def _device_of(function, args, kwargs, given):
    """Where the results of a call lie."""
    devices = {leaf.device for leaf in given if isinstance(leaf, torch.Tensor)}
    for k, argument in enumerate(function._schema.arguments):
        asked = (args[k] if k < len(args) else kwargs.get("device")) if argument.name == "device" else None
        if asked is not None:
            devices.add(torch.device(asked))
    if any(d.type not in ("cpu", "cuda") for d in devices) or len(devices) > 1:
        raise Beyond(f"{function} on {' and '.join(sorted(map(str, devices)))}")
    return devices.pop() if devices else torch.get_default_device()


@contextlib.contextmanager
def above_autograd(recorder):
    """Calls are met by the recorder, in this thread, and unseen by autograd."""
    cached = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        with torch._C._AutoDispatchBelowADInplaceOrView(), recorder:
            yield recorder
    finally:
        torch.set_autocast_cache_enabled(cached)


def _tell(function, args, kwargs):
    """What a call gives outside of any recording."""
    worlds = next(leaf.worlds for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, StandIn))
    with above_autograd(Telling(worlds)):
        return function(*args, **kwargs)


StandIn.tell = staticmethod(_tell)
