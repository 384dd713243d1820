"""SDFGs as files and JSON.

The one idea: the text form of the core is the program; JSON holds it line by line, behind a table of arrays and the flat
view of each state, which are there to be read.
Must not know: what the text says.
"""
import json

from .. import _core

_FORMAT = 1


def save(sdfg, path):
    """Writes the text form; for a path ending in .onnx the ONNX form, in .json JSON."""
    graph = sdfg.graph
    if str(path).endswith(".onnx"):
        with open(path, "wb") as file:
            file.write(graph.to_onnx())
        return
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(to_json(sdfg), indent=1) if str(path).endswith(".json") else graph.text())


def load(path):
    """The core graph of a file that save wrote."""
    if str(path).endswith(".onnx"):
        with open(path, "rb") as file:
            return _core.import_onnx(file.read(), None, False)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    return from_json(text) if text.lstrip().startswith("{") else _core.parse(text)


def to_json(sdfg):
    """{type, format, name, symbols, arrays, states, program}."""
    program = sdfg.graph.text()
    arrays = {name: {"type": type(desc).__name__, "dtype": desc.dtype and desc.dtype.name, "shape": _sizes(desc.shape),
                     "strides": _sizes(desc.strides), "transient": desc.transient, "storage": desc.storage.name}
              for name, desc in sdfg.arrays.items()}
    return {"type": "SDFG", "format": _FORMAT, "name": sdfg.name, "symbols": sorted(sdfg.symbols), "arrays": arrays,
            "states": [_state(state) for state in sdfg.nodes()], "program": program.splitlines()}


def from_json(value):
    """The core graph of to_json's dictionary or its JSON text.  Raises ModelError for anything else."""
    try:
        value = json.loads(value) if isinstance(value, (str, bytes)) else value
        lines = value["program"]
        if value["type"] != "SDFG" or value["format"] != _FORMAT or not all(isinstance(line, str) for line in lines):
            raise ValueError("another format")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _core.ModelError(f"this is no SDFG that to_json made: {type(error).__name__}: {error}") from None
    return _core.parse("\n".join(lines))


def _sizes(sizes):
    return [size if type(size) is int else str(size) for size in sizes]


def _state(state):
    nodes = [_node(node) for node in state.nodes()]
    edges = [{"src": edge.src._id, "src_connector": edge.src_conn, "dst": edge.dst._id, "dst_connector": edge.dst_conn,
              "memlet": None if edge.data.is_empty() else str(edge.data)} for edge in state.edges()]
    return {"label": state.label, "nodes": nodes, "edges": edges}


def _node(node):
    out = {"id": node._id, "type": type(node).__name__, "label": node.label}
    if node.kind == "tasklet":
        out["code"] = node.code.splitlines()
    elif node.kind == "entry":
        out["map"] = str(node.map)
    elif node.kind == "nested":
        out["sdfg"] = to_json(node.sdfg)
    return out
