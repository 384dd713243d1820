"""Nodes of an older version in a model of a newer one.

The one idea: only where the operator's schema has changed between the two is ONNX's converter asked, for a model of
that node alone.
Must not know: how a model is put together.
"""
import warnings

from . import types


def _changed(op, version):
    from onnx import defs
    try:
        return defs.get_schema(op.name, version, op.domain).since_version != op.since
    except defs.SchemaError:
        return True


def converted(node, written, version, fresh):
    """The NodeProtos to write in place of one; None if it can stay.  fresh: makes names.

    Raises BuildError if the converter fails.
    """
    if not _changed(node.op, version):
        return None
    if node.op.domain:
        warnings.warn(RuntimeWarning(f"{written.name} of {node.op.domain} {node.op.since} is in a model of version {version}"),
                      stacklevel=2)
        return None
    from onnx import TypeProto, helper
    names = {name: var for name, var in zip(written.input, node.inputs) if var is not None}
    if any(not isinstance(v.type, types.Tensor) or v.type.shape is None for v in names.values()):
        return None  # the converter wants shapes
    graph = helper.make_graph([written], "one", [helper.make_value_info(n, types.to_proto(v.type)) for n, v in names.items()],
                              [helper.make_value_info(o, TypeProto()) for o in written.output])
    newer = convert_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", node.op.since)]), version, written.name)
    kept = {*written.input, *written.output, ""}
    made = {o: fresh(f"{written.name}__{o}") for n in newer.graph.node for o in n.output if o not in kept}
    for one in newer.graph.node:
        for names_of in (one.input, one.output):
            for k, name in enumerate(names_of):
                names_of[k] = made.get(name, name)
    return list(newer.graph.node)


def convert_model(model, version, name):
    """A model of another ai.onnx version; raises BuildError."""
    from onnx import version_converter
    from .model import BuildError
    try:
        return version_converter.convert_version(model, version)
    except (RuntimeError, ValueError) as error:
        raise BuildError(f"{name} cannot be converted to ai.onnx {version}: {error}") from error
