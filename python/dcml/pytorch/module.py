"""DaceModule: an nn.Module whose forward and backward run in the compiler.

The one idea: a wrapper that is one module with what it wraps; a call finds its recipe among the captures and runs it.
Must not know: how modules are captured, how a call runs, or ATen or ONNX operators.
"""
import torch

from .. import _core
from ..report.table import explain
from ..verbose import say
from .call import trees
from .call.compiled import Outdated
from .call.errors import Decided
from .captures import PRECISIONS, Captures
from .guard.lock import traced_elsewhere
from .hooks import Hooks
from .look.profile import page
from .repeat import OWN_CALL, repeated_call
from .wrapper import Wrapper

_REPEATS = 6  # calls that a call is compared with
_call_module = torch.nn.Module.__call__  # torch.export patches it in the class, for all threads


class DaceModule(Hooks, Wrapper):
    """Wraps a PyTorch module so that it runs in the compiler.

    module: the module to wrap; it stays reachable as ``.model`` and shares its parameters with the wrapper.
    dummy_inputs: tuple of example inputs; if given, the module is captured at once instead of at the first call.
    cuda: True moves the module to the current GPU, as ``module.cuda()``; False refuses tensors on one; None: a call runs where
        its arguments and the parameters lie.  What forward moves between devices ends where eager has it.
    training: True or False calls ``train()`` or ``eval()`` on the module; None leaves its modes as they are.  The
        modes of the module and its children decide at each call, as in PyTorch.
    backward: make results differentiable, in the inputs and parameters that require a gradient.
    apply_strict (later called simplify), onnx_simplify: drop operators without effect before the post_onnx
        hooks see the graph.  With both False the hooks see it as captured.
    auto_optimize: fuse kernels and exchange loops; False compiles each operator by itself.
    debug_transients: return the value of every operator too, after the results; their names are in ``transients``.
    sdfg_name: name of the graph, by default ``dace_model``.
    inputs_to_skip: inputs that get no gradient, by name (``dace_model.inputs``) or position.
    precision: "bf16" computes products and convolutions in bfloat16, and what torch.autocast would with them; parameters and
        their gradients keep their types.  None: as forward and an autocast around the call say.
    memory: "min" keeps for the backward pass only what segments of the forward pass hand on, and computes the rest again,
        segment by segment (Chen et al., 2016): a training step takes up to a third longer and the least memory.
        None: what costs less time than to keep is computed again.
    frozen: for inference: parameters and buffers are constants, copied at the first call, which libraries keep in layouts of
        their own and convolutions take normalisations into.  What changes in them later counts after ``refreeze()``.
    compile_torch_extension: use the autograd node in C++ where there is one; False uses the one in Python.

    A capture is made again when a child, a parameter, a hook or a mode changes, or what forward reads of Python: an
    attribute, a global, a variable of an enclosing function, an attribute of a class, and what lies in lists,
    dictionaries, sets, name spaces and objects of the user's classes.  Tensors that forward puts into containers, attributes
    and variables are put there by each call; a forward that changes anything else of these at each call is refused.
    A float argument of many values becomes an input; 16 captures for other reasons than extents are warned about.

    Inputs may be tensors, numbers, and nested tuples, lists and dicts of them; so may the result.  Each kind of
    input (types, extents up to the batch, values of non-tensors) is captured once.
    Raises DeviceError for cuda=True without a GPU, and for arguments that lie on several devices; UnsupportedOpError, DTypeError,
    ModelError when capture fails; ValueError_ for frozen=True with backward=True, or in training mode.

    >>> module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    >>> compiled = DaceModule(module)
    >>> compiled(torch.ones(4, 2)).shape
    torch.Size([4, 3])
    """

    def __init__(self, module, dummy_inputs=None, cuda=None, training=None, backward=False, apply_strict=True,
                 auto_optimize=True, debug_transients=False, sdfg_name=None, *, simplify=None, onnx_simplify=True,
                 inputs_to_skip=None, compile_torch_extension=True, precision=None, memory=None, frozen=False):
        super().__init__()
        if not isinstance(module, torch.nn.Module):
            raise _core.ValueError_(f"expected an nn.Module to compile, got {type(module).__name__}")
        if cuda and not torch.cuda.is_available():
            raise _core.DeviceError(f"cuda=True for {type(module).__name__}: torch finds no GPU")
        if precision is not None and precision not in PRECISIONS:
            raise _core.ValueError_(f"precision={precision!r}: expected None or {', '.join(map(repr, PRECISIONS))}")
        if memory not in (None, "min"):
            raise _core.ValueError_(f"memory={memory!r}: expected None or 'min'")
        if frozen and backward:
            raise _core.ValueError_("frozen=True with backward=True: constants have no gradients")
        self._wrap(module.cuda() if cuda else module)
        self._without_hooks()
        self.cuda_enabled = cuda
        self.precision, self.memory, self.frozen = precision, memory, frozen
        self.backward, self.auto_optimize, self.onnx_simplify = backward, auto_optimize, onnx_simplify
        self.apply_strict = self.simplify = apply_strict if simplify is None else simplify
        self.inputs_to_skip, self.compile_torch_extension = frozenset(inputs_to_skip or ()), compile_torch_extension
        self.debug_transients, self.sdfg_name = debug_transients, sdfg_name or "dace_model"
        self.reset_sdfg()
        self._ready = True
        if training is not None:
            self.train(training)
        if dummy_inputs is not None:
            self._captures.find(dummy_inputs if isinstance(dummy_inputs, (tuple, list)) else (dummy_inputs,), {})

    def reset_sdfg(self):
        """Forgets all captures and compiled functions, so that hooks apply again at the next call."""
        self._captures = Captures(self)
        self._repeats = ()     # (RepeatedCall, Recipe, function) of calls that come again, the latest first
        self._hooked = None    # the graph that a post_onnx hook is looking at
        self.transients = []

    def refreeze(self):
        """Takes parameters and buffers as constants anew, as they are at the next call, which captures the module again.

        Raises ValueError_ for a module that is not frozen.
        """
        if not self.frozen:
            raise _core.ValueError_(f"{self.sdfg_name} is not frozen: its calls find parameters as they are")
        self.reset_sdfg()

    # -- calling --------------------------------------------------------------------------------
    def __call__(self, *args, **kwargs):
        """As that of any module; where a call is like an earlier one and nothing hooks into it, in a third of the time."""
        if self._repeats and not torch.compiler.is_compiling():
            for repeat, recipe, function in self._repeats:
                try:
                    results = repeat(*args, **kwargs)
                except _core.Error as error:
                    if recipe.decided or isinstance(error, (_core.DTypeError, _core.ShapeError, _core.DeviceError)):
                        break
                    raise
                if results is not NotImplemented:
                    self._captures.last, recipe.compiled.last_function = recipe.compiled, function
                    leaves = args if recipe.single or recipe.inputs is None else repeat.leaves(args, kwargs)
                    try:
                        return recipe.finish(results, leaves)
                    except Decided as attempt:
                        self.__dict__["_repeats"] = ()
                        return self._run(args, kwargs, attempt)
        return _call_module(self, *args, **kwargs)

    def forward(self, *args, **kwargs):
        """Runs the module; the arguments and the result are those of the wrapped module."""
        if torch.compiler.is_compiling() and not traced_elsewhere():
            return self.model(*args, **kwargs)
        try:
            return self._run(args, kwargs)
        except (_core.DTypeError, _core.ShapeError, _core.DeviceError, Outdated):
            reason = self._captures.last is not None and self._captures.last.outdated()
            if not reason:
                raise
        say("capture", f"{self.sdfg_name}: {reason}: captured anew")
        self.reset_sdfg()
        return self._run(args, kwargs)

    def _run(self, args, kwargs, attempt=None):
        while True:  # until a capture decides by values as this call does, each time for one value more
            recipe = self._captures.find(args, kwargs, attempt)
            again, recipe.ran = recipe.ran, True
            try:
                return recipe.run(args, kwargs, self._repeated if again else None, attempt)
            except Decided as other:
                attempt = other
            except _core.ValueError_ as error:  # of what forward does not do where Python decides otherwise
                attempt = self._captures.other_way(recipe, args, kwargs) if recipe.decided and attempt is None else None
                if attempt is None:
                    raise error

    def _repeated(self, recipe, function, args, kwargs):
        repeat = repeated_call(self, DaceModule.forward, self._captures, recipe, function, args, kwargs)
        if repeat is not None:
            self.__dict__["_repeats"] = ((repeat, recipe, function), *self._repeats[:_REPEATS - 1])  # past the attributes of a module

    # -- state ----------------------------------------------------------------------------------
    def __setattr__(self, name, value):
        if name in OWN_CALL:
            self.__dict__["_repeats"] = ()
        super().__setattr__(name, value)

    def __getstate__(self):
        return {**super().__getstate__(), "_captures": None, "_repeats": (), "_hooked": None}

    def __setstate__(self, state):
        super().__setstate__(state)
        self._captures = Captures(self)

    # -- what became of the module -------------------------------------------------------------
    def _need_capture(self):
        if self._captures.last is None:
            raise _core.ValueError_("there is no graph yet: call the module once, or give dummy_inputs")
        return self._captures.last

    @property
    def sdfg(self):
        """The captured graph; inside a post_onnx hook, the graph that the hook may change."""
        from ..sdfg import SDFG
        return SDFG(self._graph())

    @property
    def dace_model(self):
        """The captured graph as an ONNXModel."""
        from ..onnx import ONNXModel
        return ONNXModel._of_graph(self.sdfg_name, self._graph(), self.model)

    def _graph(self):
        return self._hooked if self._hooked is not None else self._need_capture().capture.graph

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
