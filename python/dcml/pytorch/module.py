"""DaceModule: an nn.Module whose forward and backward run in the compiler.

The one idea: the wrapper shares the dictionaries of parameters, buffers and children with the
module that it wraps, so names, state_dict, to() and optimisers see one module.  A call finds its
plan by the kinds and extents of the inputs; a plan is a capture with a compiled function.
Must not know: ATen or ONNX operators, or how a function is compiled.
"""
import collections
import functools
import inspect
import operator
import time
import warnings
from itertools import chain

import torch

from .. import _core
from ..library import implementation
from ..verbose import say
from .aten import ONNX_DTYPE
from .call import node, trees
from .call.autograd import apply_in_python
from .call.keys import kind_of, quick_key, refuse_overlap, same_leaves
from .call.results import real_form
from .guard.asked import known_of
from .guard.state import GLOBAL_HOOKS, HOOKS, ModuleState
from .look.report import explain, mark_range, page
from .trace.capture import LOCK, bind_arguments, capture, traced_elsewhere

_STATE_HOOKS = ("_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")
_MAX_PLANS = 256     # shapes remembered for the quick look-up; captures themselves are shared between shapes
_MAX_CAPTURES = 64
_FEW = 2    # values of a float that get captures of their own, before it becomes an input
_MANY = 16  # captures for reasons other than extents before a warning


class DaceModule(torch.nn.Module):
    """Wraps a PyTorch module so that it runs in the compiler.

    module: the module to wrap; it stays reachable as ``.model`` and shares its parameters with the wrapper.
    dummy_inputs: tuple of example inputs; if given, the module is captured at once instead of at the first call.
    cuda: run on the GPU; None: as the module's parameters lie.
    training: True or False calls ``train()`` or ``eval()`` on the module; None leaves its modes as they are.  The
        modes of the module and its children decide at each call, as in PyTorch.
    backward: make results differentiable, in the inputs and parameters that require a gradient.
    apply_strict (later called simplify), onnx_simplify: drop operators without effect before the post_onnx
        hooks see the graph.  With both False the hooks see it as captured.
    auto_optimize: fuse kernels and exchange loops; False compiles each operator by itself.
    debug_transients: return the value of every operator too, after the results; their names are in ``transients``.
    sdfg_name: name of the graph, by default ``dace_model``.
    inputs_to_skip: inputs that get no gradient, by name (``dace_model.inputs``) or position.
    compile_torch_extension: use the autograd node in C++ where there is one; False uses the one in Python.

    A capture is made again when a child, a parameter, a hook or a mode changes, or what forward reads of Python: an
    attribute, a global, a variable of an enclosing function, an attribute of a class, and what lies in lists,
    dictionaries, sets, name spaces and objects of the user's classes.  A forward that changes any of these at each
    call is refused.
    A float argument of many values becomes an input; 16 captures for other reasons than extents are warned about.

    Inputs may be tensors, numbers, and nested tuples, lists and dicts of them; so may the result.  Each kind of
    input (types, extents up to the batch, values of non-tensors) is captured once.
    Raises DeviceError for cuda=True without a GPU; UnsupportedOpError, DTypeError, ModelError when capture fails.

    >>> module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    >>> compiled = DaceModule(module)
    >>> compiled(torch.ones(4, 2)).shape
    torch.Size([4, 3])
    """

    def __init__(self, module, dummy_inputs=None, cuda=None, training=None, backward=False, apply_strict=True,
                 auto_optimize=True, debug_transients=False, sdfg_name=None, *, simplify=None, onnx_simplify=True,
                 inputs_to_skip=None, compile_torch_extension=True):
        super().__init__()
        if not isinstance(module, torch.nn.Module):
            raise _core.ValueError_(f"expected an nn.Module to compile, got {type(module).__name__}")
        state = self.__dict__
        for shared in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", *_STATE_HOOKS):
            state[shared] = getattr(module, shared)
        state["model"] = module  # not registered: names stay those of the wrapped module
        if cuda and not torch.cuda.is_available():
            raise _core.DeviceError(f"cuda=True for {type(module).__name__}: torch finds no GPU")
        self.cuda_enabled = cuda
        self.backward, self.auto_optimize, self.onnx_simplify = backward, auto_optimize, onnx_simplify
        self.apply_strict = self.simplify = apply_strict if simplify is None else simplify
        self.inputs_to_skip, self.compile_torch_extension = frozenset(inputs_to_skip or ()), compile_torch_extension
        self.debug_transients, self.sdfg_name = debug_transients, sdfg_name or "dace_model"
        self.training = module.training
        self.post_onnx_hooks = collections.OrderedDict()
        self.post_autodiff_hooks = collections.OrderedDict()
        self.post_compile_hooks = collections.OrderedDict()
        self._forget()
        self._ready = True
        if training is not None:
            self.train(training)
        if dummy_inputs is not None:
            self._find(dummy_inputs if isinstance(dummy_inputs, (tuple, list)) else (dummy_inputs,), {})

    def _forget(self):
        self._plans = {}       # quick key -> _Plan
        self._captures = {}    # slow key -> [_Captured]
        self._values = {}      # slow key without numbers -> {kind with numbers: types of its results}
        self._refused = set()  # sets of positions of floats that cannot be tensors
        self._times = {}       # slow key -> number of captures because something else changed
        self._asks = False     # of autograd, see guard/asked.py
        self._state = ModuleState(self.model)
        self._last = None      # the _Captured used last
        self._recent = None    # the _Plan used last
        self._hooked = None    # the graph that a post_onnx hook is looking at
        self.transients = []

    # -- calling --------------------------------------------------------------------------------
    def __call__(self, *args, **kwargs):
        """As that of any module; where a call is like the last one and nothing hooks into it, in a third of the time."""
        recent = self._recent
        if recent is None or recent.check is None or kwargs or torch.compiler.is_compiling():
            return _call_module(self, *args, **kwargs)
        try:
            results = recent.check(*args)
        except (_core.DTypeError, _core.ShapeError):
            results = NotImplemented
        if results is NotImplemented:
            return _call_module(self, *args, **kwargs)
        return recent.finish(results, args)

    def forward(self, *args, **kwargs):
        """Runs the module; the arguments and the result are those of the wrapped module."""
        if torch.compiler.is_compiling() and not traced_elsewhere():
            return self.model(*args, **kwargs)
        try:
            return self._run(args, kwargs)
        except (_core.DTypeError, _core.ShapeError, _Outdated):
            reason = self._last is not None and self._last.outdated()
            if not reason:
                raise
        say("capture", f"{self.sdfg_name}: {reason}: captured anew")
        self._forget()
        return self._run(args, kwargs)

    def _run(self, args, kwargs):
        plan = self._find(args, kwargs)
        again = plan is self._recent
        self.__dict__["_recent"] = plan  # past the attributes of a module, which cost a microsecond
        return plan.run(args, kwargs, again)

    def _find(self, args, kwargs):
        """The plan for these arguments."""
        key = (quick_key(args, kwargs), self._state.key(), _surroundings(), self._flags(args, kwargs))
        plan = self._plans.get(key)
        if plan is None:
            with LOCK:
                plan = self._plans.get(key) or self._new_plan(key, args, kwargs)
        self.__dict__["_last"] = plan.captured
        return plan

    def _new_plan(self, key, args, kwargs):
        if len(self._plans) >= _MAX_PLANS:
            del self._plans[next(iter(self._plans))]
        captured, floats = self._captured(args, kwargs, key[2])
        key = key[0], self._state.key(), key[2], self._flags(args, kwargs)
        self._plans[key] = plan = _Plan(self, captured, args, kwargs, floats)
        return plan

    def _flags(self, args, kwargs):
        """What forward may ask of autograd, if some forward has asked."""
        if not self._asks:
            return None
        leaves = trees.flatten((tuple(args), dict(kwargs)))[0]
        return torch.is_grad_enabled(), tuple(map(known_of, leaves))

    def _captured(self, args, kwargs, surroundings):
        """(a capture that serves these arguments, made if there is none; positions of floats that are its inputs)."""
        leaves, spec = trees.flatten((tuple(args), dict(kwargs)))
        kind = ((str(spec), same_leaves(leaves)), surroundings, tuple(map(kind_of, leaves)))
        keys = kind[2]
        shared = tuple(key[0] if key[0] in (int, float) else key for key in keys)
        seen = self._values.setdefault((*kind[:2], shared), {})
        varying = frozenset(k for other in seen for k, key in enumerate(other[2])
                            if keys[k][0] is float and key != keys[k]) if len(seen) >= _FEW and kind not in seen else ()
        if varying and varying not in self._refused:
            loose = *kind[:2], tuple(float if k in varying else key for k, key in enumerate(keys))
            try:
                captured = self._serving(*_with_tensors(args, kwargs, varying), loose)
                if _result_types(captured.capture) in seen.values():
                    return captured, varying
                self._refused.add(varying)
            except _core.Error:  # forward decides by the value, or hands it to what takes numbers only
                self._refused.add(varying)
        captured = self._serving(args, kwargs, kind)
        seen[kind] = _result_types(captured.capture)
        if len(seen) == _MANY:
            warnings.warn(f"{self.sdfg_name} is captured anew for each value of its number arguments, {_MANY} so far: "
                          "give what often changes as a tensor", stacklevel=2)
        return captured, ()

    def _serving(self, args, kwargs, kind):
        leaves = trees.flatten((tuple(args), dict(kwargs)))[0]
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        known = self._captures.get((self._state.key(), kind, self._flags(args, kwargs)), [])
        for one in known:
            reason = one.capture.guard.refusal(tensors, lambda: bind_arguments(self.model, args, kwargs))
            if reason is None:
                return one
            say("capture", f"{self.sdfg_name}: {reason}")
        if not known:
            self._tell_of_changes(kind)
        if sum(map(len, self._captures.values())) > _MAX_CAPTURES:
            self._captures.clear()
        begin = time.perf_counter()
        dynamic = sum(one.capture.refused_dynamic for one in known) < 2 and _varying(leaves, known)
        made = capture(self.model, args, kwargs, self.sdfg_name, dynamic=dynamic, debug=self.debug_transients)
        seconds, operators = time.perf_counter() - begin, len(made.graph.nodes(0))
        say("capture", f"{self.sdfg_name}: {type(self.model).__name__} captured in {seconds:.2f} s: "
                       f"{operators} operators, inputs {made.guard}")
        self._state.learn(made.reads, made.ran)
        made.ran = None  # which holds what it met
        self._find_outside(made)
        self.__dict__["_asks"] = self._asks or made.asks
        known = self._captures.setdefault((self._state.key(), kind, self._flags(args, kwargs)), [])
        known.append(_Captured(self, made, leaves))
        self.transients = [name for name, _ in made.transients]
        return known[-1]

    def _tell_of_changes(self, kind):
        changes = self._state.changes()
        self._times[kind] = times = self._times.get(kind, 0) + 1
        if changes:
            say("capture", f"{self.sdfg_name}: changed: {changes}")
        if changes and times == _MANY:
            warnings.warn(f"{self.sdfg_name} is captured anew each time that these change: {changes}; {_MANY} times so "
                          "far: make what often changes a buffer or an argument", stacklevel=2)

    def _find_outside(self, made):
        """torch.export may give an alias of a parameter; gradients are those of the parameter itself."""
        self._state.key()
        for name, alias in made.outside.items():
            same = [t for t in self._state.tensors() if t is alias or t.data_ptr() == alias.data_ptr() and alias.numel()
                    and (t.shape, t.stride(), t.dtype) == (alias.shape, alias.stride(), alias.dtype)]
            made.outside[name] = next((t for t in same if t is alias), (same or [alias])[0])

    # -- modes and state ------------------------------------------------------------------------
    def train(self, mode=True):
        """Sets the mode of the wrapped module and all inside it."""
        self.model.train(mode)
        self.training = mode
        return self

    def state_dict(self, *args, **kwargs):
        return self.model.state_dict(*args, **kwargs)

    def load_state_dict(self, *args, **kwargs):
        return self.model.load_state_dict(*args, **kwargs)

    def _load_from_state_dict(self, *args, **kwargs):
        return self.model._load_from_state_dict(*args, **kwargs)

    def __setattr__(self, name, value):
        """Attributes that are none of the wrapper's own are those of the wrapped module."""
        own = self.__dict__
        if "_ready" in own and name not in own and not any(name in vars(base) for base in type(self).__mro__):
            setattr(own["model"], name, value)
        else:
            for plan in self._plans.values() if name in _OWN_CALL else ():
                plan.check = None
            super().__setattr__(name, value)

    def __delattr__(self, name):
        if name in self.__dict__:
            super().__delattr__(name)
        else:
            delattr(self.model, name)

    def __getitem__(self, key):
        return self.model[key]

    def __setitem__(self, key, value):
        self.model[key] = value

    def __delitem__(self, key):
        del self.model[key]

    def __len__(self):
        return len(self.model)

    def __iter__(self):
        return iter(self.model)

    def __contains__(self, item):
        return item in self.model

    def __bool__(self):
        return bool(self.model)  # not by a length, which not all modules have

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "model" not in self.__dict__:
                raise
            return getattr(self.__dict__["model"], name)

    def __getstate__(self):
        state = dict(self.__dict__)
        state.update(_plans={}, _captures={}, _values={}, _refused=set(), _times={}, _asks=False, _state=None, _last=None,
                     _recent=None, _hooked=None)
        if type(self.model) is getattr(type(self), "moduleclass", None):  # whose name is that of the decorated class
            state["model"] = _Undecorated(vars(self.model))
        return state

    def __setstate__(self, state):
        if isinstance(held := state["model"], _Undecorated):
            model = state["model"] = type(self).moduleclass.__new__(type(self).moduleclass)
            model.__setstate__(held.attributes)
        super().__setstate__(state)
        self._state = ModuleState(self.model)

    # -- graphs and hooks -----------------------------------------------------------------------
    def reset_sdfg(self):
        """Forgets all captures and compiled functions, so that hooks apply again at the next call."""
        self._forget()

    def _need_capture(self):
        if self._last is None:
            raise _core.ValueError_("there is no graph yet: call the module once, or give dummy_inputs")
        return self._last

    @property
    def sdfg(self):
        """The captured graph; inside a post_onnx hook, the graph that the hook may change."""
        from ..sdfg import SDFG
        return SDFG(self._hooked if self._hooked is not None else self._need_capture().capture.graph)

    @property
    def dace_model(self):
        """The captured graph as an ONNXModel."""
        from ..onnx import ONNXModel
        graph = self._hooked if self._hooked is not None else self._need_capture().capture.graph
        return ONNXModel._of_graph(self.sdfg_name, graph, self.model)

    @property
    def forward_sdfg(self):
        """The forward graph as compiled last."""
        return self._compiled_graph("forward_graph")

    @property
    def backward_sdfg(self):
        """The backward graph as compiled last."""
        return self._compiled_graph("backward_graph")

    def _compiled_graph(self, which):
        from ..sdfg import SDFG
        function = self._need_capture().last_function
        graph = None if function is None else getattr(function, which)
        if graph is None:
            raise _core.ValueError_(f"there is no {which.replace('_', ' ')} yet: call the module once"
                                    + (" with inputs or parameters that require a gradient"
                                       if which == "backward_graph" else ""))
        return SDFG(graph)

    def explain(self):
        """A text about what the module was compiled to, for the arguments it was called with last.

        For the forward and, if there is one, the backward program: its kernels in order with the shape of the result,
        where they came from (a library's name, compiled, or interpreted), operations and bytes; then what lies where
        in memory.  Raises ValueError_ before the first call.
        """
        return explain(self.sdfg_name, self._function())

    def profile(self, *args, calls=20, path="dcml-profile.html", **kwargs):
        """Runs the module ``calls`` times with these arguments, forward and backward if its results have a gradient,
        and writes an HTML page with the time of each kernel.  Gradients of parameters are left as they were.
        Returns the path."""
        wanted = [p for p in self.parameters() if p.requires_grad]
        wanted += [t for t in trees.flatten((args, kwargs))[0] if isinstance(t, torch.Tensor) and t.requires_grad]

        def once():
            results = [t for t in trees.flatten(self(*args, **kwargs))[0] if isinstance(t, torch.Tensor)]
            roots = [t for t in results if t.requires_grad]
            if roots:
                torch.autograd.grad(roots, wanted, [torch.ones_like(t) for t in roots], allow_unused=True)
        for _ in range(5):  # compiled by then
            once()
        function = self._function()
        function.time(True)
        for _ in range(calls):
            once()
        function.time(False)
        with open(path, "w", encoding="utf-8") as file:
            file.write(page(self.sdfg_name, function, calls))
        return path

    def _function(self):
        function = self._need_capture().last_function
        if function is None or function.report()[0] is None:
            raise _core.ValueError_("nothing has been compiled yet: call the module once")
        return function

    def _run_post_onnx(self, graph):
        if self.apply_strict or self.onnx_simplify:
            graph.run_pass("tidy")
        self._hooked = graph
        try:
            for hook in self.post_onnx_hooks.values():
                hook(self)
        finally:
            self._hooked = None

    def _run_post_autodiff(self, forward, backward):
        from ..sdfg import SDFG
        forward, backward = SDFG(forward), SDFG(backward)
        for hook in self.post_autodiff_hooks.values():
            hook(forward, backward)

    def _run_post_compile(self, forward, backward=None):
        from ..sdfg import SDFG
        compiled = SDFG(forward)
        for hook in self.post_compile_hooks.values():
            hook(compiled)

    def append_post_onnx_hook(self, name, func):
        """Adds func(module), run after capture, when ``module.sdfg`` holds operators; last of its kind."""
        self.post_onnx_hooks[name] = func

    def prepend_post_onnx_hook(self, name, func):
        """As append_post_onnx_hook, but first of its kind."""
        _prepend(self.post_onnx_hooks, name, func)

    def append_post_autodiff_hook(self, name, func):
        """Adds func(forward_sdfg, backward_sdfg), run after differentiation; last of its kind."""
        self.post_autodiff_hooks[name] = func

    def prepend_post_autodiff_hook(self, name, func):
        """As append_post_autodiff_hook, but first of its kind."""
        _prepend(self.post_autodiff_hooks, name, func)

    def append_post_compile_hook(self, name, func):
        """Adds func(sdfg), run with the compiled forward graph; last of its kind."""
        self.post_compile_hooks[name] = func

    def prepend_post_compile_hook(self, name, func):
        """As append_post_compile_hook, but first of its kind."""
        _prepend(self.post_compile_hooks, name, func)


def _prepend(hooks, name, func):
    hooks[name] = func
    hooks.move_to_end(name, last=False)


def _surroundings():
    """Global modes that a capture has built in; refuses those that it cannot honour."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise _core.UnsupportedOpError("torch.func (functorch) transforms do not go through a compiled module: "
                                       "transform module.model instead")
    if node.forward_level() >= 0:
        raise _core.UnsupportedOpError("forward-mode differentiation does not go through a compiled module")
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        low = tuple([torch.get_autocast_dtype(d) if torch.is_autocast_enabled(d) else None for d in ("cpu", "cuda")])
        return torch.get_default_dtype(), low
    return torch.get_default_dtype()


def _varying(leaves, known):
    """{leaf: axes} whose extents differ from those of captures made before; True if there are none."""
    axes = {}
    for one in known:
        for k, (leaf, shape) in enumerate(zip(leaves, one.shapes)):
            if isinstance(leaf, torch.Tensor) and len(shape) == leaf.dim():
                axes.setdefault(k, set()).update(a for a, e in enumerate(shape) if e != leaf.shape[a])
    return {k: found for k, found in axes.items() if found} or True


def _as_tensor(number):
    """A float as an input: of no dimension, so that it gives way to the types of other tensors, as numbers do."""
    return torch.tensor(number, dtype=torch.float64)


def _with_tensors(args, kwargs, positions):
    """(args, kwargs) with tensors for the floats at these positions among the leaves."""
    leaves, spec = trees.flatten((tuple(args), dict(kwargs)))
    return spec.unflatten([_as_tensor(v) if k in positions else v for k, v in enumerate(leaves)])


def _result_types(made):
    return [made.graph.info(made.graph.outputs[o])[0] if type(o) is int else type(o) for o in made.outputs]


class _Undecorated:
    """Stands for an instance of a class that a decorator hides, in pickles and copies."""

    def __init__(self, attributes):
        self.attributes = attributes


class _Outdated(Exception):
    """A capture does not serve the module any more; the reason is the message."""


class _Captured:
    """A capture and the functions compiled for it, one for each set of values that need a gradient."""

    def __init__(self, owner, made, leaves):
        self.owner, self.capture = owner, made
        self.shapes = [tuple(leaf.shape) if isinstance(leaf, torch.Tensor) else () for leaf in leaves]
        self.functions = {}        # (inputs' flags, params' flags) -> function; None -> the one without gradient
        self.last_function = None
        self.skipped = self._positions(owner.inputs_to_skip)
        self.slots = [(made.outside, name) if name in made.outside else _slot(owner.model, name)
                      for name, _ in made.params]
        self.ties = [(_slot(owner.model, a), _slot(owner.model, b)) for a, b in made.ties]

    def _positions(self, names):
        inputs = self.capture.graph.inputs
        numbers = {str(k) for k in range(len(inputs))}
        for name in sorted(map(str, names)):
            if name not in inputs and name not in numbers:
                raise _core.ValueError_(f"inputs_to_skip names {name!r}; the inputs are {inputs}")
        return [k for k, name in enumerate(inputs) if names & {name, str(k), k}]

    def function(self, inputs):
        """The compiled function for tensors whose requires_grad flags decide what is differentiated, with the
        parameters as they are now."""
        params = [table[key] for table, key in self.slots]
        flags = None
        if self.owner.backward and torch.is_grad_enabled():
            flags = (tuple([t.requires_grad for t in inputs]), tuple([t.requires_grad for t in params]))
            if self.skipped:
                flags = (tuple([f and k not in self.skipped for k, f in enumerate(flags[0])]), flags[1])
            if not any(flags[0]) and not any(flags[1]):
                flags = None
        function = self.functions.get(flags)
        if function is None:
            function = self.functions[flags] = _Function(self, flags)
        self.last_function = function.core
        if function.params is None or not all(map(operator.is_, function.params, params)):
            with LOCK:  # while another thread traces, the module holds stand-ins
                function.params = [table[key] for table, key in self.slots]
                function.core.set_params([real_form(t) for t in function.params])
        return function.core

    def outdated(self):
        """What became of the parameters that this capture no longer serves, or None."""
        for (table, key), (name, _) in zip(self.slots, self.capture.params):
            tensor, (dtype, shape, _) = real_form(table[key]), self.capture.graph.info(name)
            if ONNX_DTYPE.get(tensor.dtype) != dtype or tuple(tensor.shape) != tuple(shape):
                return f"{name!r} has changed its type or shape"
        for (a, i), (b, j) in self.ties:
            if a[i] is not b[j]:
                return f"{i!r} and {j!r} are no longer tied"
        return None


class _Function:
    """A core function and the parameter tensors last given to it."""

    def __init__(self, captured, flags):
        graph, owner = captured.capture.graph, captured.owner
        wrt = None
        if flags is not None:
            names = chain(zip(graph.inputs, flags[0]), zip(graph.params, flags[1]))
            wrt = [name for name, wanted in names if wanted]
        options = {"optimize": owner.auto_optimize, **implementation(owner.cuda_enabled),
                   "post_onnx": owner._run_post_onnx if owner.post_onnx_hooks else None,
                   "post_autodiff": owner._run_post_autodiff if owner.post_autodiff_hooks else None,
                   "post_compile": owner._run_post_compile if owner.post_compile_hooks else None}
        if captured.capture.counted:
            from .call.hosted import Hosted
            self.core = Hosted(graph, wrt, captured.capture.reach, options)
        else:
            self.core = _core.Function(graph, wrt=wrt, torch=True, reach=captured.capture.reach, **options)
        self.params = None


def _slot(module, name):
    """(dictionary, key) that hold a parameter or buffer, so that a replaced one is seen."""
    *path, leaf = name.split(".")
    owner = functools.reduce(getattr, path, module)
    for table in (owner._parameters, owner._buffers):
        if leaf in table:
            return table, leaf
    return owner.__dict__, leaf


def _seed():
    """A seed from torch's own generator, so that torch.manual_seed decides."""
    return torch.empty((), dtype=torch.int64).random_()


_profiling = torch.autograd._profiler_enabled
_call_module = torch.nn.Module.__call__  # torch.export patches it in the class, for all threads
_OWN_CALL = {"forward", "_compiled_call_impl"}  # attributes of an instance that decide what a call of it does


def _by_python(function, inputs):
    """A call whose autograd node is the one in Python."""
    if torch.is_grad_enabled() and function.wrt_positions:
        return apply_in_python(function, tuple(inputs))
    return function(*inputs)


def _sized(made, leaves):
    """Types and extents for this call's arguments of the leaves that it adds."""
    extents = {}
    for i, shape in zip(made.inputs, made.guard.shapes):
        if i < len(leaves) and isinstance(leaves[i], torch.Tensor):  # a number may be an input, too
            extents.update(zip(shape, leaves[i].shape))
    return [{"size": [extents.get(d, d) for d in shape], "dtype": dtype, "device": device, "requires_grad": True}
            for shape, dtype, device in made.freed]


class _Plan:
    """How to run one kind of arguments: which leaves are inputs, what becomes of the outputs."""

    def __init__(self, owner, captured, args, kwargs, floats):
        made = captured.capture
        self.captured, self.seed, self.check, self.floats = captured, made.seed, None, floats
        plain = not kwargs and all(isinstance(a, torch.Tensor) for a in args)
        self.inputs = None if plain and made.inputs == list(range(len(args))) else made.inputs
        self.mutated = [(index, *_slot(owner.model, name)) for index, name in made.mutated]
        self.changed, self.checks = made.changed_inputs, made.checks
        self.overwritten = self._overwritten(made)
        self.outputs, self.spec = made.outputs, made.out_spec
        self.extra = [index for _, index in made.transients] if owner.debug_transients else []
        leaves = trees.flatten((args, kwargs))[0]
        self.complex = any(isinstance(leaf, torch.Tensor) and leaf.is_complex() for leaf in leaves)
        self.flagged, self.freed = made.flagged, _sized(made, leaves)
        self.single = (made.outputs == [0] and made.out_spec.is_leaf() and not self.mutated and not self.changed
                       and not self.checks and not self.extra)

    def run(self, args, kwargs, again=False):
        """Runs; ``again``: calls like this one are frequent, so that a check for them pays."""
        leaves = args if self.inputs is None else trees.flatten((args, kwargs))[0]
        for k, flag in self.flagged:
            leaves[k].requires_grad_(flag)
        if self.freed:
            leaves = [*leaves, *[torch.empty(**kind) for kind in self.freed]]
        inputs = leaves if self.inputs is None else [leaves[i] for i in self.inputs]
        if self.floats:
            inputs = [_as_tensor(leaf) if isinstance(leaf, float) else leaf for leaf in inputs]
        captured = self.captured
        if captured.ties and (reason := captured.outdated()):
            raise _Outdated(reason)
        function = captured.function(inputs)
        if self.changed:
            refuse_overlap(leaves, {leaf for _, leaf, _ in self.changed})
        if self.changed and function.wrt_positions:  # what they were is for the backward pass
            own = {leaf for _, leaf, _ in self.changed}
            inputs = [t.clone() if leaf in own else t for t, leaf in zip(inputs, captured.capture.inputs)]
        if self.complex:
            inputs = [real_form(t) for t in inputs]
        if self.seed:
            inputs = (*inputs, _seed())
        if _profiling() or function.observer is not None:
            function.observe(mark_range if _profiling() else None)
        whole = captured.owner.compile_torch_extension or captured.capture.counted
        results = function(*inputs) if whole else _by_python(function, inputs)
        if self.overwritten and not self.overwritten.isdisjoint(function.backward_reads):
            results = self._run_on_copies(function, inputs)
        elif again and self.inputs is None:  # there is none, or it failed
            self.check = self._make_check(function, args)
        return self.finish(results, leaves)

    @staticmethod
    def _overwritten(made):
        """Positions among inputs and parameters of the buffers that a call changes."""
        changed = {name for _, name in made.mutated}
        first = len(made.inputs) + made.seed
        return {first + k for k, (name, _) in enumerate(made.params) if name in changed}

    def _run_on_copies(self, function, inputs):
        """Runs again on copies of the buffers that the backward pass reads and this call is about to change."""
        first, reads, params = len(inputs), set(function.backward_reads), function.params
        copies = [p.clone() if first + k in self.overwritten & reads else p for k, p in enumerate(params)]
        with LOCK:
            function.set_params(copies)
            try:
                return function(*inputs)
            finally:
                function.set_params(params)

    def _make_check(self, function, args):
        """The core's check for calls like this one, or None where Python has to look at the arguments."""
        captured = self.captured
        owner = captured.owner
        hidden = self.changed or not owner.compile_torch_extension or self.complex
        hidden = hidden or self.flagged or self.freed or captured.capture.counted
        hidden = hidden or any(table[key].is_complex() for table, key in captured.slots)
        hooks = {name: vars(owner)[name] for name in HOOKS}
        hidden = hidden or any(GLOBAL_HOOKS) or any(hooks.values()) or type(owner).forward is not DaceModule.forward
        hidden = hidden or captured.capture.asks_attributes or not _OWN_CALL.isdisjoint(vars(owner))
        hidden = hidden or not all(tensor.is_contiguous() for tensor in args)
        if hidden or torch._C._is_any_autocast_enabled() or node.forward_level() >= 0 or _profiling():
            return None
        ties = [(*other, table[key]) for (table, key), other in captured.ties]
        unhooked = [*[(vars(owner), *item) for item in hooks.items()], *[(table, ()) for table in hooks.values()]]
        return _core.Fast(function, args, captured.slots, (*owner._state.watched(), *ties, *unhooked), node.modes,
                          owner.backward or owner._asks, _seed if self.seed else None)

    def finish(self, results, leaves):
        """The module's result and side effects, from the results of the function."""
        if self.single:
            return results[0]
        for index, message in self.checks:
            if not results[index]:
                raise ValueError(message)
        if self.mutated or self.changed:
            self._write_back(results, leaves)
        values = [results[o] if type(o) is int else o.of(results, leaves) for o in self.outputs]
        if self.extra:
            return (*values, *[results[i] for i in self.extra])
        return self.spec.unflatten(values)

    def _write_back(self, results, leaves):
        with LOCK, torch.no_grad():  # as above: not into stand-ins
            if self.mutated:
                torch._foreach_copy_([real_form(table[key]) for _, table, key in self.mutated],
                                     [results[i].detach() for i, _, _ in self.mutated])
        for index, leaf, carries in self.changed:
            with torch.set_grad_enabled(torch.is_grad_enabled() and carries is not None):
                real_form(leaves[leaf]).copy_(results[index] if carries else results[index].detach())


class _Decorating(type):
    """Of decorated classes: what they lack is an attribute of the class that was decorated."""

    def _decorated(cls):
        return next((vars(base)["moduleclass"] for base in cls.__mro__ if "moduleclass" in vars(base)), None)

    def __getattr__(cls, name):
        kind = cls._decorated()
        if kind is None or name.startswith("__"):
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
        found = inspect.getattr_static(kind, name)
        return found.__get__(None, cls) if hasattr(type(found), "__get__") else found

    def __setattr__(cls, name, value):
        kind = cls._decorated()
        owners = () if kind is None else [base for base in kind.__mro__ if base not in torch.nn.Module.__mro__]
        if any(name in vars(base) for base in owners) and not name.startswith("__"):
            setattr(kind, name, value)
        else:
            super().__setattr__(name, value)


def dace_module(moduleclass=None, dummy_inputs=None, cuda=None, training=None, backward=False, apply_strict=True,
                auto_optimize=True, sdfg_name=None, debug_transients=False, **later):
    """Decorator for nn.Module classes: their instances are DaceModules around an instance of the class.

    The arguments are those of DaceModule, ``later`` its keyword-only ones; it may be used with or without them.

    >>> @dace_module
    ... class Doubled(torch.nn.Module):
    ...     def forward(self, x):
    ...         return 2 * x
    >>> Doubled()(torch.ones(2))
    tensor([2., 2.])
    """
    options = dict(dummy_inputs=dummy_inputs, cuda=cuda, training=training, backward=backward,
                   apply_strict=apply_strict, auto_optimize=auto_optimize, debug_transients=debug_transients, **later)

    def decorate(cls):
        class Decorated(DaceModule, metaclass=_Decorating):
            def __init__(self, *args, **kwargs):
                super().__init__(cls(*args, **kwargs), sdfg_name=sdfg_name or cls.__name__, **options)

        Decorated.moduleclass = cls
        for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(Decorated, attribute, getattr(cls, attribute))
        return Decorated

    return decorate if moduleclass is None else decorate(moduleclass)
