"""ONNXModel: a callable around a graph imported from ONNX.

The one idea: arguments are put into the graph's input order, the rest is the core's; only where it meets sequences,
strings, control flow or computed shapes does a host program run the graph in parts.
Must not know: the format of ONNX files (the core reads them) or, before it meets a tensor, torch.
"""
import os
import sys

import numpy as np

from .. import _core, arguments
from ..library import implementation, is_on_cuda
from . import host
from .host import values as host_values
from .pure import define

_NUMPY = {1: np.float32, 2: np.uint8, 3: np.int8, 4: np.uint16, 5: np.int16, 6: np.int32, 7: np.int64, 9: np.bool_,
          10: np.float16, 11: np.float64, 12: np.uint32, 13: np.uint64}


_STORAGES = (None, "Default", "CPU_Heap", "GPU_Global")


class ONNXModel:
    """Loads an ONNX model into a graph and runs it.

    name: name of the graph.
    model: onnx.ModelProto, the bytes of one, or the path of a file (external data next to it is read).
    infer_shapes: infer types and shapes now, so that a faulty model is refused here rather than at the first call.
    cuda: run on the GPU.  Arrays of numpy are copied there and results come back as such; tensors of torch lie there.
        What ``parameters()`` gives lies there too; the weights of a module are where the module has them.
    parent_pytorch_module: take the weights from this module's parameters and buffers of the same names.
    save_transients: a dict that receives the intermediate values of each call, by name.
    apply_strict (later called simplify), onnx_simplify: drop operators without effect at once, so that ``sdfg``
        shows the graph without them; compilation does it in any case.
    auto_optimize: fuse kernels and exchange loops; False compiles each operator by itself.
    auto_merge: symbolic extents that must be equal are always merged, and checked at each call.
    fold_constants: says nothing here: constants are folded when the graph is compiled, ``sdfg`` shows them as they were.
    storage: "GPU_Global" says the same as cuda=True: arguments may lie in either memory.  One other than that, "Default"
        and "CPU_Heap" raises NotImplementedError.
    Raises ModelError, UnsupportedOpError, ShapeError or DTypeError for a model that cannot be loaded, DeviceError
    for cuda=True without a GPU.

    ``inputs`` and ``outputs`` are lists of names, ``sdfg`` and ``state`` handles on the graph.
    """
    inputs: list
    outputs: list

    def __init__(self, name, model, infer_shapes=True, cuda=False, apply_strict=False, auto_optimize=True,
                 fold_constants=True, parent_pytorch_module=None, storage=None, save_transients=None,
                 auto_merge=False, *, simplify=None, onnx_simplify=False):
        where = getattr(storage, "name", storage)
        if where not in _STORAGES:
            raise NotImplementedError(f"storage={storage!r}: arguments lie in one of {', '.join(_STORAGES[1:])}")
        self.name, self.cuda, self.auto_optimize = name, bool(cuda) or where == "GPU_Global", auto_optimize
        self.auto_merge, self.apply_strict = auto_merge, apply_strict if simplify is None else simplify
        self._bytes, self._base_dir = _read(model)
        self._parameters = None  # {name: tensor} given at each call, once someone asked for them
        self._save_transients = save_transients
        self._set_graph(self._import(False))
        if parent_pytorch_module is not None:
            self._take_weights(parent_pytorch_module)
        if infer_shapes and self._program is None:
            self._infer()
        if (self.apply_strict or onnx_simplify) and self._program is None:
            self._graph.run_pass("tidy")

    def _import(self, as_params):
        graph = _core.import_onnx(self._bytes, self._base_dir, as_params)
        graph.name = self.name
        return graph

    def _infer(self):
        """Infers types and shapes; a value needed before is an input's to give, or makes this a host program."""
        untouched = self._graph.clone()
        try:
            self._graph.run_pass("infer")
        except _core.Error as error:
            if error.needs_value is None:
                raise
            self._set_graph(untouched)
            self._adopt(error)

    @classmethod
    def _of_graph(cls, name, graph, module=None, cuda=False):
        """A view of a captured graph; weights come from ``module`` by qualified name."""
        self = cls.__new__(cls)
        self.name, self.cuda, self._bytes, self._base_dir, self._save_transients = name, cuda, None, None, None
        self.auto_optimize = True
        self._parameters = _module_tensors(module, graph.params) if module is not None else None
        self._set_graph(graph)
        return self

    def _set_graph(self, graph):
        define(graph)
        self._graph, self._sdfg = graph, None
        self._functions = {}  # names to differentiate -> compiled function
        self._functions_of = graph.version
        self.inputs, self.outputs = list(graph.inputs), list(graph.outputs)
        of_any_rank = set(graph.host_values)
        self._declared = {name: (*graph.info(name)[:2], name in of_any_rank) for name in self.inputs}  # type, extents, of any rank?
        self._program = host.Program(graph, self._options) if host.is_needed(graph) else None

    @property
    def _options(self):
        """How functions of this model are compiled."""
        return {"optimize": self.auto_optimize, **implementation(self.cuda or is_on_cuda(self._graph))}

    def _adopt(self, error):
        """Runs the graph as a host program from now on if it stopped at a value that it computes itself."""
        value = getattr(error, "needs_value", None)
        if self._program is None and value not in (None, *self.inputs, *self._graph.params):
            self._program = host.Program(self._graph, self._options)

    # -- weights --------------------------------------------------------------------------------
    @property
    def weights(self):
        """{name: torch.Tensor} of the weights of the model."""
        import torch
        if self._parameters is not None:
            return dict(self._parameters)
        values = {}
        for name in self._graph.arrays:
            data = self._graph.data(name) if self._graph.info(name)[2] in ("const", "param") else None
            if data is not None:
                values[name] = torch.from_numpy(np.array(data))
        return values

    def parameters(self):
        """The floating-point weights as torch Parameters; from now on results are differentiable in them.

        They are the initialisers, or the Constants of more than one number where a model has no initialisers of floats.
        Returns a list of torch.nn.Parameter, in the order of ``named_parameters``.
        """
        return [value for _, value in self.named_parameters()]

    def named_parameters(self):
        """(name, torch.nn.Parameter) of each floating-point weight."""
        import torch
        if self._parameters is None:
            self._set_graph(self._import(True))
            device = "cuda" if self.cuda and torch.cuda.is_available() else None
            self._parameters = {name: torch.nn.Parameter(torch.from_numpy(np.array(self._graph.data(name))).to(device))
                                for name in self._graph.params}
        return [(n, p) for n, p in self._parameters.items() if isinstance(p, torch.nn.Parameter)]

    def _take_weights(self, module):
        graph = self._import(True)
        self._parameters = _module_tensors(module, graph.params)
        self._set_graph(graph)

    # -- calling --------------------------------------------------------------------------------
    def __call__(self, *args, **kwargs):
        """Runs the model.

        args: inputs in the model's order; kwargs: inputs by name.  numpy arrays, torch tensors or numbers, of the
            model's types and shapes; lists for sequences, None for an empty optional, dicts for maps, arrays of str
            for strings.  Outputs come in the same forms.
        Returns the output, or a tuple of outputs: torch tensors if any argument is one, else numpy arrays.
        Raises ValueError_ for missing, double or unknown inputs, DTypeError and ShapeError for wrong ones.
        """
        given = self._bind(args, kwargs)
        torch = sys.modules.get("torch")
        in_torch = torch is not None and any([issubclass(type(v), torch.Tensor) for v in given])
        try:
            call = self._call_compiled if self._program is None else self._call_program
            values = call(given, in_torch)
        except _core.UnsupportedOpError as error:
            if self._program is not None or self._adopt(error) or self._program is None:
                raise
            values = self._call_program(given, in_torch)
        if self._save_transients is not None and self._program is None:
            self._save_transients.update(zip(self._transients, values[len(self.outputs):]))
            values = values[:len(self.outputs)]
        return values[0] if len(values) == 1 else tuple(values)

    def _call_compiled(self, given, in_torch):
        if in_torch or self._parameters is not None:
            return self._call_torch(given, in_torch)
        return self._function(None)(*[self._array(n, v) for n, v in zip(self.inputs, given)])

    def _call_program(self, given, in_torch):
        program = self._program
        values = [self._host_value(n, v) for n, v in zip(self.inputs, given)]
        weights = [self._parameters[n] for n in self._graph.params] if self._parameters is not None else []
        env = program.run(zip(program.inputs, [*values, *weights]), keep_all=self._save_transients is not None)
        if self._save_transients is not None:
            self._save_transients.update((n, v) for n, v in env.items() if n not in program.inputs)
        results = tuple(env[name] for name in self.outputs)
        device = host_values.gpu_of(values)
        if device is not None:
            return tuple(host_values.to_device(r, device) for r in results)
        if in_torch:
            return tuple(host_values.to_torch(r) for r in results)
        return tuple(r.numpy() if host_values.is_torch(r) and not r.requires_grad else r for r in results)

    def _host_value(self, name, value):
        """An argument of the model's type; what the core cannot hold stays as it is."""
        code, shape, of_any_rank = self._declared[name]
        if code in (0, host_values.STRING, *host_values.COMPLEX):
            return arguments.read(f"input {name!r}", value, host_values.as_value)
        value = value if host_values.is_torch(value) else self._array(name, value)
        if host_values.code_of(value) != code:
            raise _core.DTypeError(f"input {name!r} has type {value.dtype}, expected {host_values.NAMES[code]}")
        if of_any_rank:
            return value
        wrong = [d for d, (have, want) in enumerate(zip(value.shape, shape)) if isinstance(want, int) and have != want]
        if value.ndim != len(shape) or wrong:
            raise _core.ShapeError(f"input {name!r} has shape {list(value.shape)}, expected {list(shape)}")
        return value

    def _bind(self, args, kwargs):
        if len(args) > len(self.inputs):
            raise _core.ValueError_(f"model {self.name!r} has {len(self.inputs)} inputs, {len(args)} were given")
        bound = dict(zip(self.inputs, args))
        for name, value in kwargs.items():
            if name not in self.inputs:
                raise _core.ValueError_(f"model {self.name!r} has no input {name!r}; its inputs are {self.inputs}")
            if name in bound:
                raise _core.ValueError_(f"input {name!r} is given twice")
            bound[name] = value
        missing = [name for name in self.inputs if name not in bound]
        if missing:
            raise _core.ValueError_(f"input {missing[0]!r} of model {self.name!r} is missing")
        return [bound[name] for name in self.inputs]

    def _array(self, name, value):
        if issubclass(type(value), np.ndarray):
            return value
        return arguments.read(f"input {name!r}", value, lambda v: np.asarray(v, _NUMPY.get(self._graph.info(name)[0])))

    def _call_torch(self, given, in_torch):
        import torch
        weights = list(self._parameters.values()) if self._parameters is not None else []
        names = [*self.inputs, *self._graph.params]
        places = (arguments.read(f"input {n!r}", [v], host_values.gpu_of) for n, v in zip(names, [*given, *weights]))
        device = next(filter(None, places), None)
        tensors = [v if issubclass(type(v), torch.Tensor) else torch.from_numpy(np.array(self._array(n, v))).to(device)
                   for n, v in zip(self.inputs, given)]
        wrt = None
        if torch.is_grad_enabled():
            wrt = tuple([n for n, t in zip([*self.inputs, *self._graph.params], [*tensors, *weights])
                         if arguments.read(f"input {n!r}", t, _requires_grad)])
        function = self._function(wrt or None)
        if weights:
            function.set_params(weights)
        values = function(*tensors)
        if in_torch or any(v.requires_grad for v in values):
            return values
        return tuple(v.cpu().numpy() for v in values)

    def _function(self, wrt):
        if self._sdfg is not None and self._sdfg.graph.version != self._functions_of:
            self._functions, self._functions_of = {}, self._graph.version
        function = self._functions.get(wrt)
        if function is None:
            graph = self._graph
            if self._save_transients is not None:
                graph = graph.clone()
                self._transients = [n for n in graph.arrays if graph.info(n)[2] == "temp" and n not in self.outputs]
                for name in self._transients:
                    graph.mark_output(name)
            function = _core.Function(graph, wrt=list(wrt) if wrt else None, **self._options)
            self._functions[wrt] = function
        return function

    def compile_and_init(self):
        """Compiles the model, with its weights in place, and returns the compiled function (or host program)."""
        if self._program is not None:
            return self._program
        function = self._function(None)
        if self._parameters is not None:
            function.set_params(list(self._parameters.values()))
        return function

    # -- views ----------------------------------------------------------------------------------
    @property
    def sdfg(self):
        """The graph as an SDFG, the same one each time."""
        if self._sdfg is None or self._sdfg._graph is not self._graph:
            from ..sdfg import SDFG
            self._sdfg = SDFG(self._graph)
        return self._sdfg

    @property
    def state(self):
        """The state that holds the computation."""
        return self.sdfg.node(0)

    def save(self, path):
        """Writes the model, with its weights as they are now, as an ONNX file."""
        graph = self._graph.clone()
        for name, value in (self._parameters or {}).items():
            graph.set_data(name, value.detach())
        if self._program is None:
            graph.run_pass("infer")  # a file states the types of its outputs
        with open(path, "wb") as file:
            file.write(graph.to_onnx() if self._program is None else graph.update_onnx(self._bytes))

    def __repr__(self):
        return f"ONNXModel({self.name!r}, inputs={self.inputs}, outputs={self.outputs})"


def _requires_grad(tensor):
    return tensor.requires_grad


def _read(model):
    """(bytes, folder for external data or None) of a model given as bytes, path or ModelProto."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model), None
    if isinstance(model, (str, os.PathLike)):
        with open(model, "rb") as file:
            return file.read(), os.path.dirname(os.path.abspath(model))
    if hasattr(model, "SerializeToString"):
        return model.SerializeToString(), None
    raise _core.ValueError_(f"a model is an onnx.ModelProto, bytes or a path, not {type(model).__name__}")


def _module_tensors(module, names):
    """{name: tensor} from a module's parameters and buffers."""
    tensors = {**dict(module.named_buffers()), **dict(module.named_parameters(remove_duplicate=False))}
    missing = [name for name in names if name not in tensors]
    if missing:
        raise _core.ModelError(f"weight {missing[0]!r} of the model is not in {type(module).__name__}")
    return {name: tensors[name] for name in names}
