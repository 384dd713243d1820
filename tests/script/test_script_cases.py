"""Every script of the table: run eagerly, as a model, and trained."""
import numpy as np
import onnx
import pytest
from script_cases import CASES

from dcml.autodiff import vjp
from dcml.onnx import ONNXModel
from dcml.script.tensor import Tensor

GIVEN = pytest.mark.parametrize("script, given, expected, trains", CASES, ids=[case[0].name for case in CASES])


def as_tuple(results):
    return results if isinstance(results, tuple) else (results,)


def assert_same(got, want, kinds=True):
    assert got.shape == np.shape(want)
    assert not kinds or got.dtype == want.dtype
    assert np.array_equal(got, want) if got.dtype.kind in "biuO" else np.allclose(got, want, 1e-5, 1e-5)


@GIVEN
def test_scripts_run_and_their_models_give_the_same(script, given, expected, trains):
    eager = as_tuple(script(*given))
    if given:
        assert all(type(value) is np.ndarray for value in eager)
    tensors = as_tuple(script(*[Tensor(np.asarray(value)) for value in given]))
    assert all(type(value) is Tensor for value in tensors)
    model = script.to_model_proto()
    names = [name for node in model.graph.node for name in node.output]
    assert len(names) == len(set(names))
    results = as_tuple(ONNXModel(script.name, model)(*given))
    assert len(eager) == len(results) == len(expected)
    for one, tensor, result, want in zip(eager, tensors, results, expected):
        one = getattr(one, "value", one)
        assert_same(one, want, kinds=False)
        assert_same(tensor.value, one)
        assert_same(result, one)


@GIVEN
def test_models_are_accepted_by_the_checker(script, given, expected, trains):
    if any("..." in str(kind) for kind in script.translation.input_types):
        pytest.skip("the checker wants a rank of each input")
    model = onnx.shape_inference.infer_shapes(script.to_model_proto())
    unknown = [o.name for o in model.graph.output if not o.type.tensor_type.HasField("shape")]
    if not unknown:  # of carried values whose shape a loop may change nothing is known
        onnx.checker.check_model(model)


@pytest.mark.parametrize("script, given", [(c[0], c[1]) for c in CASES if c[3] and c[0].name != "comparisons" and
                                           any(np.asarray(g).dtype.kind == "f" for g in c[1])], ids=lambda value: getattr(value, "name", ""))
def test_models_train(script, given):
    torch = pytest.importorskip("torch")
    model = ONNXModel(script.name, script.to_model_proto())

    def loss(values):
        floats = [r for r in as_tuple(model(*values)) if np.dtype(str(r.dtype).removeprefix("torch.")).kind == "f"]
        return sum((r * np.arange(1, r.size + 1).reshape(r.shape)).sum(dtype=np.float64) if isinstance(r, np.ndarray) else
                   (r * torch.arange(1, r.numel() + 1).reshape(r.shape)).sum() for r in floats)

    tensors = [torch.from_numpy(np.array(g)).requires_grad_(np.asarray(g).dtype.kind == "f") for g in given]
    loss(tensors).backward()
    random = np.random.default_rng(0)
    for k, tensor in enumerate(tensors):
        if not tensor.requires_grad:
            continue
        direction = random.standard_normal(tensor.shape).astype(np.asarray(given[k]).dtype)
        ahead, back = ([v if j != k else np.asarray(v + sign * 5e-3 * direction, v.dtype) for j, v in enumerate(given)] for sign in (1, -1))
        got = 0 if tensor.grad is None else float((tensor.grad.numpy() * direction).sum())
        assert got == pytest.approx((loss(ahead) - loss(back)) / 1e-2, rel=2e-2, abs=2e-2)


def test_vjp_differentiates_models_of_local_functions_and_of_loops():
    for name, factor in (("calls_through_an_opset", 6), ("while_it_is_small", 8)):
        script, given, expected, _ = next(case for case in CASES if case[0].name == name)
        output = script.to_model_proto().graph.output[0].name
        outputs, gradients = vjp(script.to_model_proto(), {"x": given[0]}, {output: np.ones_like(given[0])})
        assert_same(outputs[output], expected[0], kinds=False)
        assert np.allclose(gradients["x"], factor)
