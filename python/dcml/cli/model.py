"""A graph made callable, for the commands that run it."""
import contextlib
import os

from . import files, inputs, sizes
from .problems import BadInput


def add_arguments(parser):
    """The model, its inputs, and who runs it."""
    parser.add_argument("model", help="an .onnx file, or the text of a graph ('-': standard input)")
    inputs.add_arguments(parser)
    parser.add_argument("--backend", choices=("compiled", "interpreter"), default="compiled",
                        help="who runs what no library serves (default: compiled)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where it runs (default: cpu)")
    parser.add_argument("--libraries", default="all", metavar="NAME",
                        help="which may serve operators: all, none, or one, as onednn (default: all that are found)")


@contextlib.contextmanager
def _implementation(args):
    import dcml.onnx
    from .. import _core
    from ..library import change_default
    served = {"all": "native", "none": "pure", **{name: name for name in _core.libraries()}}
    if args.backend == "interpreter" and args.libraries != "all":
        raise BadInput("--libraries is for --backend compiled")
    if args.libraries not in served:
        raise BadInput(f"--libraries {args.libraries}: there are {', '.join(served)}")
    if args.backend == "interpreter" and args.device != "cpu":
        raise BadInput("--backend interpreter is for --device cpu")
    with change_default(dcml.onnx, "interpreted" if args.backend == "interpreter" else served[args.libraries]):
        yield


class Loaded:
    """A model with the arrays that it is called with.

    graph: as it was read.  arrays: {name: array} of inputs and weights.  extents: {symbol: value} of those in their shapes.
    """

    def __init__(self, args):
        from ..onnx import ONNXModel
        graph = files.read_graph(args.model)
        self.graph, self.name = graph, graph.name or os.path.basename(args.model)
        self.arrays, extents = inputs.prepare(graph, args, [*graph.inputs, *graph.params])
        self.extents = sizes.named(graph, extents, self.arrays)
        with _implementation(args):
            self._model = ONNXModel._of_graph(self.name, graph.clone(), cuda=args.device == "cuda")
            if self._model._program is None:
                self._model._infer()
        self._args = args
        if graph.params:
            import torch
            self._model._parameters = {name: torch.from_numpy(self.arrays[name]) for name in graph.params}

    def __call__(self):
        """{name: value} of the outputs."""
        with _implementation(self._args):
            results = self._model(*[self.arrays[name] for name in self._model.inputs])
        return dict(zip(self._model.outputs, results if isinstance(results, tuple) else (results,)))

    def functions(self):
        """[(title, core function)] of what has run, a title for each segment if the host runs some operators."""
        program = self._model._program
        if program is None:
            return [("", function) for function in self._model._functions.values()]
        return [(f"segment {k}", function) for k, function in enumerate(program.functions())]

    def host_operators(self):
        """Names of the operators that are Python functions."""
        return self._model._program.host_operators() if self._model._program is not None else []
