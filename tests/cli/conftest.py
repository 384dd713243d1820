"""Files that commands are given."""
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from dcml.cli import main


@pytest.fixture
def dcml(capfd):
    """dcml(arguments...) -> (exit code, standard output, standard error), in this process."""
    def run(*arguments):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as leave:  # of argparse
            code = leave.code or 0
        out, err = capfd.readouterr()
        return code, out, err
    return run


def _model(path, nodes, inputs, outputs, weights=()):
    values = [[helper.make_tensor_value_info(*value) for value in side] for side in (inputs, outputs)]
    graph = helper.make_graph(nodes, path.stem, *values, list(weights))
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


@pytest.fixture
def dense(tmp_path):
    """A layer and its activation, for any batch."""
    weight = numpy_helper.from_array(np.linspace(-1, 1, 48, dtype=np.float32).reshape(12, 4), "W")
    nodes = [helper.make_node("MatMul", ["x", "W"], ["h"]), helper.make_node("Softplus", ["h"], ["s"]),
             helper.make_node("Tanh", ["s"], ["t"]), helper.make_node("Mul", ["h", "t"], ["y"])]
    return _model(tmp_path / "dense.onnx", nodes, [("x", TensorProto.FLOAT, ["batch", 12])],
                  [("y", TensorProto.FLOAT, ["batch", 4])], [weight])


@pytest.fixture
def positives(tmp_path):
    """What is positive: the host finds where."""
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("NonZero", ["r"], ["i"]),
             helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT)]
    return _model(tmp_path / "positives.onnx", nodes, [("x", TensorProto.FLOAT, ["n", "m"])], [("y", TensorProto.FLOAT, [2, "k"])])
