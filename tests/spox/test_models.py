"""Models: what build() and inline() make, checked by ONNX, run and trained by ONNXModel."""
import warnings

import numpy as np
import onnx
import pytest
from models import CASES, arrays

import dcml.spox as spox
import dcml.spox.opset.ai.onnx.v17 as op
from dcml.onnx import ONNXModel
from dcml.spox import BuildError, Sequence, Tensor, argument, build, inline

GIVEN = pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)


def made(case):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inputs, outputs = case(spox, op)
        return inputs, build(inputs, outputs)


def run(model, **values):
    results = ONNXModel("m", model)(**values)
    return results if isinstance(results, tuple) else (results,)


def tensor(*shape, dtype=np.float32):
    return argument(Tensor(dtype, shape))


@GIVEN
def test_models_are_accepted_by_the_checker_and_computed_like_eagerly(case):
    inputs, model = made(case)
    onnx.checker.check_model(model, full_check=True)
    values = arrays(inputs)
    got = run(model, **values)
    from dcml.spox._future import initializer
    constant = {name: initializer(value) for name, value in values.items()}
    again = inline(model)(**constant)
    for value, var in zip(got, again.values()):
        want = var._get_value()
        assert np.array_equal(value, want) if value.dtype.kind in "OU" else np.allclose(value, want, 1e-5, 1e-6)


@GIVEN
def test_models_are_spoxs_node_for_node(case):
    their_op = pytest.importorskip("spox.opset.ai.onnx.v17", exc_type=ImportError)
    import spox as theirs
    _, ours = made(case)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reference = theirs.build(*case(theirs, their_op))
    except Exception as error:
        pytest.skip(f"Spox itself fails: {error}")
    texts = [[onnx.printer.to_text(node) for node in m.graph.node] for m in (ours, reference)]
    assert texts[0] == texts[1] and {(o.domain, o.version) for o in ours.opset_import} == {(o.domain, o.version) for o in reference.opset_import}


def test_models_train():
    torch = pytest.importorskip("torch")
    for case in ("convolution", "normalised", "a_loop", "branches"):
        inputs, model = made(next(c for c in CASES if c.__name__ == case))
        values = {name: torch.from_numpy(value).requires_grad_(value.dtype == np.float32) for name, value in arrays(inputs).items()}
        results = ONNXModel(case, model)(**values)
        (results[0] if isinstance(results, tuple) else results).sum().backward()
        assert all(v.grad is not None and bool(v.grad.isfinite().all()) for v in values.values() if v.requires_grad), case


def test_names_and_order_are_as_given():
    a, b = tensor(2), tensor(2)
    model = build({"second": b, "first": a}, {"z": op.add(a, b), "y": a})
    assert [i.name for i in model.graph.input] == ["second", "first"] and [o.name for o in model.graph.output] == ["z", "y"]
    assert np.allclose(run(model, first=np.float32([1, 2]), second=np.float32([3, 4]))[0], [4, 6])


def test_names_that_nodes_would_have_may_be_taken():
    a, b = tensor(2), tensor(2)
    model = build({"Add_0_C": a, "Introduce_0_id0": b}, {"Add_0": op.add(op.add(a, b), b)})
    onnx.checker.check_model(model)
    assert np.allclose(run(model, **{"Add_0_C": np.float32([1, 2]), "Introduce_0_id0": np.float32([3, 4])})[0], [7, 10])


def test_unused_inputs_stay_unless_dropped():
    a, b = tensor(2), tensor(2)
    assert len(build({"a": a, "b": b}, {"y": op.relu(a)}).graph.input) == 2
    assert [i.name for i in build({"a": a, "b": b}, {"y": op.relu(a)}, drop_unused_inputs=True).graph.input] == ["a"]


@pytest.mark.parametrize("inputs, outputs, error", [
    (lambda a: {"a": a}, lambda a: {"y": 1}, TypeError), (lambda a: {"a": 1}, lambda a: {"y": a}, TypeError), (lambda a: {}, lambda a: {"y": a}, KeyError),
    (lambda a: {"a": op.relu(a)}, lambda a: {"y": a}, TypeError), (lambda a: {"a": a}, lambda a: {}, ValueError), (lambda a: [a], lambda a: {"y": a}, TypeError),
    (lambda a: {"a": a}, lambda a: {1: a}, TypeError), (lambda a: {"a": a, "b": a}, lambda a: {"y": a}, ValueError), (lambda a: {"y": a}, lambda a: {"y": a}, ValueError)])
def test_bad_inputs_and_outputs_are_errors(inputs, outputs, error):
    a = tensor(3)
    with pytest.raises(error, match="build|argument"):
        build(inputs(a), outputs(a))


def test_an_output_needs_a_shape():
    x = tensor(6)
    with pytest.warns(spox.InferenceWarning):
        y = op.reshape(x, argument(Tensor(np.int64, ("K",))))
    with pytest.raises((ValueError, KeyError)):
        build({"x": x}, {"y": y})


def test_an_argument_of_a_body_cannot_leave_it():
    kept = []
    x = tensor(3)
    y, = op.loop(op.const(2), v_initial=[x], body=lambda i, c, v: (kept.append(v), [c, op.relu(v)])[1])
    with pytest.raises(BuildError, match="body|subgraph"):
        build({"x": x}, {"y": op.add(y, kept[0])})


def test_a_value_of_an_outer_graph_is_computed_once_outside():
    c, x = tensor(dtype=bool), tensor(3)
    y = op.exp(x)
    model = build({"c": c, "x": x}, {"r": op.if_(c, lambda: [op.neg(y)], lambda: [y])[0]})
    assert [n.op_type for n in model.graph.node] == ["Exp", "If", "Identity"]
    model = build({"c": c, "x": x}, {"r": op.if_(c, lambda: [y], lambda: [x])[0]})
    assert [n.op_type for n in model.graph.node] == ["If", "Identity"], "only one branch needs it"


def test_a_model_imports_the_newest_version_used_and_converts_older_nodes():
    import dcml.spox.opset.ai.onnx.v18 as op18
    import dcml.spox.opset.ai.onnx.v21 as op21
    x = tensor(2, 6)
    assert build({"x": x}, {"y": op.layer_normalization(x, op.const(np.ones(6, "f")))[0]}).opset_import[0].version == 17
    model = build({"x": x}, {"y": op.reduce_max(x, axes=[1]), "z": op18.split(x, num_outputs=2, axis=1)[0], "f": op21.flatten(x)})
    assert model.opset_import[0].version == 21
    onnx.checker.check_model(model, full_check=True)
    value = np.arange(12, dtype="f").reshape(2, 6)
    got = run(model, x=value)
    assert np.allclose(got[0], [[5], [11]]) and got[1].shape == (2, 3)


def test_domains_are_imported_as_they_are_used():
    import dcml.spox.opset.ai.onnx.ml.v3 as ml
    x = tensor("N", 2)
    model = build({"x": x}, {"y": op.relu(ml.scaler(x, offset=[1.0, 1.0], scale=[2.0, 1.0]))})
    assert {o.domain: o.version for o in model.opset_import} == {"": 14, "ai.onnx.ml": 1}
    assert np.allclose(run(model, x=np.float32([[2, 0]]))[0], [[2, 0]])


# -- inline -----------------------------------------------------------------------------------------------
def small(version=17, **fields):
    """y = x @ w + b; b has a default, w is fixed; an If inside."""
    info = onnx.helper.make_tensor_value_info
    x, b, y = (info(name, 1, shape) for name, shape in (("x", ["N", 2]), ("b", [2]), ("y", ["N", 2])))
    branch = onnx.helper.make_graph([onnx.helper.make_node("Add", ["p", "b"], ["s"])], "then", [], [info("s", 1, None)])
    other = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["p"], ["t"])], "else", [], [info("t", 1, None)])
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["p"], name="n"), onnx.helper.make_node("If", ["yes"], ["y"], then_branch=branch, else_branch=other)]
    weights = [onnx.numpy_helper.from_array(np.float32([[1, 2], [3, 4]]), "w"), onnx.numpy_helper.from_array(np.float32([10, 20]), "b"),
               onnx.numpy_helper.from_array(np.array(True), "yes")]
    graph = onnx.helper.make_graph(nodes, "small", [x, b], [y], weights)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", version)], ir_version=10, **fields)


def test_inline_takes_arguments_by_position_and_name_with_initializers_as_defaults():
    x, b = tensor(3, 2), tensor(2)
    apply = inline(small())
    first, second = apply(x)["y"], apply(x, b=b)["y"]
    model = build({"x": x, "b": b}, {"y": first, "z": op.add(second, inline(small())(second, b)["y"])})
    onnx.checker.check_model(model)
    value, bias = np.float32([[1, 0], [0, 1], [1, 1]]), np.float32([1, -1])
    w = np.float32([[1, 2], [3, 4]])
    got = run(model, x=value, b=bias)
    want = value @ w + bias
    assert np.allclose(got[0], value @ w + [10, 20]) and np.allclose(got[1], want + want @ w + bias)


def test_inline_refuses_what_the_model_does_not_take():
    x, apply = tensor(3, 2), inline(small())
    for wrong in (lambda: apply(), lambda: apply(x, x=x), lambda: apply(x, c=x), lambda: apply(x, None), lambda: apply(x, tensor(2), x)):
        with pytest.raises(TypeError, match="input"):
            wrong()
    with pytest.raises(TypeError, match="'x' is float64"):
        apply(tensor(3, 2, dtype=np.float64))
    with pytest.raises(TypeError, match=r"'x' is float32\[3\]\[5\]"):
        apply(tensor(3, 5))
    with pytest.raises(TypeError, match="ModelProto"):
        inline("file.onnx")


def test_names_of_an_inlined_model_do_not_clash():
    p, n = tensor(1, 2), tensor(2)
    model = build({"p": p, "w": n}, {"n": inline(small())(p, n)["y"], "Inline_0__p": op.relu(p)})
    onnx.checker.check_model(model)
    assert np.allclose(run(model, p=np.float32([[1, 1]]), w=np.float32([0, 1]))[0], [[4, 7]])


def test_inlined_models_of_older_opsets_are_converted():
    x = tensor(3, 2)
    y = inline(small(version=11))(x)["y"]
    model = build({"x": x}, {"y": op.layer_normalization(y, op.const(np.ones(2, "f")))[0]})
    assert model.opset_import[0].version == 17
    onnx.checker.check_model(model, full_check=True)
    run(model, x=np.ones((3, 2), "f"))


def test_inlined_models_older_than_all_are_converted_also_where_nothing_else_is_newer():
    info = onnx.helper.make_tensor_value_info
    squeeze = onnx.helper.make_node("Squeeze", ["a"], ["b"], axes=[0])
    graph = onnx.helper.make_graph([squeeze], "g", [info("a", 1, [1, "N"])], [info("b", 1, ["N"])])
    old = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 12)], ir_version=8)
    x = tensor(1, 4)
    model = build({"x": x}, {"y": inline(old)(x)["b"]})
    assert model.opset_import[0].version == 14
    onnx.checker.check_model(model, full_check=True)
    assert run(model, x=np.ones((1, 4), "f"))[0].tolist() == [1, 1, 1, 1]


def test_an_argument_of_a_body_may_be_used_in_a_body_within_it_alone():
    for depth in (1, 2):
        def nested(v, depth=depth):
            for _ in range(depth):
                v, = op.if_(op.const(np.array(True)), then_branch=lambda v=v: (v,), else_branch=lambda: (op.const(-1),))
            return v
        last, = op.loop(op.const([3]), v_initial=[op.const(5)], body=lambda i, c, a: (op.const(np.array(True)), nested(a)))
        x = tensor(1)
        model = build({"x": x}, {"y": last, "z": op.neg(x)})
        onnx.checker.check_model(model, full_check=True)
        assert run(model, x=np.zeros(1, "f"))[0] == 5


def test_bodies_may_have_arguments_whose_rank_is_not_known():
    numbers = argument(Sequence(Tensor(np.int64)))
    squares, = op.sequence_map(numbers, [numbers], body=lambda a, b: (op.mul(a, b),))
    model = build({"numbers": numbers}, {"squares": squares})
    assert [v.tolist() for v in run(model, numbers=[np.array([2]), np.array([3, 4])])[0]] == [[4], [9, 16]]
    with pytest.raises(ValueError, match="needs a type with a shape"):
        build({"a": (a := argument(Tensor(np.float32)))}, {"b": op.neg(a)})


def test_constants_have_numpys_types_of_fixed_width():
    assert op.const(2**63)._get_value().dtype.type is np.uint64


def test_local_functions_are_inlined_too():
    info = onnx.helper.make_tensor_value_info
    twice = onnx.helper.make_function("mine", "Twice", ["v"], ["w"], [onnx.helper.make_node("Add", ["v", "v"], ["w"])], [onnx.helper.make_opsetid("", 17)])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Twice", ["x"], ["y"], domain="mine")], "g", [info("x", 1, [2])], [info("y", 1, [2])])
    other = onnx.helper.make_model(graph, functions=[twice], opset_imports=[onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("mine", 1)], ir_version=10)
    x = tensor(2)
    assert np.allclose(run(build({"x": x}, {"y": inline(other)(x)["y"]}), x=np.float32([1, 2]))[0], [2, 4])


def test_initializers_are_initializers():
    from dcml.spox._future import initializer
    x = tensor(2)
    model = build({"x": x}, {"y": op.add(x, initializer([1, 2], np.float32))})
    assert len(model.graph.initializer) == 1 and [n.op_type for n in model.graph.node] == ["Add", "Identity"]
    assert np.allclose(run(model, x=np.float32([1, 1]))[0], [2, 3])
