"""Reading and writing what commands take: graphs, arrays."""
import os
import sys

from .problems import BadInput
from .stages import GRAPH, stage_of


def _content(path):
    if path == "-":
        return sys.stdin.buffer.read()
    with open(path, "rb") as file:
        return file.read()


def is_onnx(path):
    """Is it the name of an ONNX file?"""
    return path.lower().endswith(".onnx")


def read_text(path):
    """The text of a file, '-' being the standard input; of a test in tests/ir, the graph before its passes."""
    try:
        text = _content(path).decode("utf-8")
    except UnicodeDecodeError:
        raise BadInput(f"{path}: neither text nor a file that ends in .onnx") from None
    if text.startswith(("pass: ", "agree: ")):
        text = text.partition("\n")[2].partition("\n---\n")[0] + "\n"
    return text


def read_onnx(path, without_weights=False):
    """The graph of an ONNX file; without weights these are parameters that have no contents."""
    from .. import _core
    try:
        graph = _core.import_onnx(_content(path), os.path.dirname(os.path.abspath(path)), without_weights)
        for name in graph.params:
            graph.set_data(name, None)
        return graph
    except _core.Error as error:
        raise BadInput(f"{path}: {error}") from error


def read_any(path, without_weights=False):
    """(stage, [objects]) of a text or an ONNX file."""
    from .. import _core
    if is_onnx(path):
        return GRAPH, [read_onnx(path, without_weights)]
    text = read_text(path)
    stage = stage_of(path, text)
    try:
        return stage, stage.parse(text)
    except _core.Error as error:
        raise BadInput(f"{path}: {error}") from error


def read_graph(path):
    """The graph of a text or an ONNX file."""
    stage, items = read_any(path)
    if stage.keyword != GRAPH.keyword:
        raise BadInput(f"{path}: expected a graph, not a {stage.keyword}")
    return items[0]


def write_text(path, text):
    """Writes to a file, or to the standard output if path is None or '-'."""
    if path in (None, "-"):
        sys.stdout.write(text)
        return
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def read_array(path):
    """{name: array} of an .npz, {'': array} of an .npy or of a TensorProto (.pb)."""
    import numpy as np
    if path.endswith(".pb"):
        return {"": _read_tensor_proto(path)}
    with open(path, "rb") as file:
        try:
            loaded = np.load(file, allow_pickle=False)
            return dict(loaded) if hasattr(loaded, "files") else {"": loaded}
        except (ValueError, EOFError, OSError, SyntaxError, KeyError) as error:
            raise BadInput(f"{path}: no .npy, .npz or .pb of an array: {error}") from error
        except Exception as error:
            if type(error).__name__ != "BadZipFile":
                raise
            raise BadInput(f"{path}: a damaged .npz: {error}") from error


def _read_tensor_proto(path):
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError:
        raise BadInput(f"{path}: reading .pb takes the package onnx: pip install onnx") from None
    tensor = onnx.TensorProto()
    with open(path, "rb") as file:
        try:
            tensor.ParseFromString(file.read())
            return onnx.numpy_helper.to_array(tensor)
        except (DecodeError, TypeError, ValueError) as error:
            raise BadInput(f"{path}: no TensorProto: {error}") from error
