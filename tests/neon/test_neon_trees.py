"""Op-trees and tensors: what they are, when they run, views, and targets that are read."""
import numpy as np
import pytest

import dcml
from dcml.neon.backends import Autodiff, gen_backend, run
from dcml.neon.backends.backend import OpTreeNode, Tensor


@pytest.fixture
def be():
    return gen_backend(datatype=np.float64, rng_seed=1)


def filled(be, *shape):
    array = np.arange(1.0, np.prod(shape) + 1).reshape(shape) / 7
    return array, be.array(array)


# -- nodes -----------------------------------------------------------------------------------------

def test_a_node_is_a_tuple_of_its_operator_and_operands(be):
    a, b = be.ones((2, 3)), be.ones((2, 1))
    tree = be.sum(a * b, axis=1)
    assert isinstance(tree, tuple) and len(tree) == 3 and tree[2] is None
    assert tree[0] == {"op": "sum", "shape": (2, 1), "axis": 1}
    assert tree[1][0] == {"op": "mul", "shape": (2, 3)} and tree[1][1] is a and tree[1][2] is b
    assert tree.shape == (2, 1) and tree.T.shape == (1, 2)


def test_nothing_runs_before_an_assignment(be):
    a = be.ones((2, 2))
    tree = a + 1
    a.fill(5)
    assert tree.asnumpyarray().tolist() == [[6, 6], [6, 6]]


def test_a_tree_shows_itself(be):
    a, b = be.array([[1.0]], name="a"), be.array([[1.0]], name="b")
    assert (a + be.exp(b) * 2).pp() == "(a + ((exp b) * 2))" and be.maximum(a, 0).pp() == "(a maximum 0)"
    assert str(a + b) == "({'op': 'add', 'shape': (1, 1)}, a, b)"
    assert (a + be.ones((1, 1))).pp().startswith("(a + tensor-0x")


def test_operands_come_before_operators_in_a_traversal(be):
    a, b = be.ones((1, 1)), be.ones((1, 1))
    found = (a * b + 2).traverse([])
    assert found[0] is a and found[1] is b and found[2]["op"] == "mul" and found[3] == 2 and found[4]["op"] == "add"


def test_keys_are_equal_for_the_same_operators_on_the_same_tensors(be):
    a, b = be.ones((1, 1)), be.ones((1, 1))
    keys = [tree.key() for tree in (a + b, a + b, a + a, a - b, be.sum(a, axis=0), be.sum(a, axis=1), a + 1, a + 2)]
    assert keys[0] == keys[1] and hash(keys[0]) == hash(keys[1])
    assert all((x == y) == ({i, j} == {0, 1} or i == j) for i, x in enumerate(keys) for j, y in enumerate(keys))


def test_only_an_assignment_at_the_top_is_executed(be):
    a = be.ones((2, 2))
    assert OpTreeNode({"op": "assign"}, a, a + 1).execute() is a and a.get().tolist() == [[2, 2], [2, 2]]
    assert OpTreeNode.build("assign", a, a * 2) is a and be.execute(OpTreeNode({"op": "assign"}, a, a - 3)) is a
    assert a.get().tolist() == [[1, 1], [1, 1]]
    for wrong in (a + 1, OpTreeNode({"op": "assign"}, 1, a)):
        with pytest.raises(dcml.ValueError_, match="assign"):
            be.execute(wrong)
        with pytest.raises(dcml.ValueError_, match="assign"):
            wrong.execute()
    with pytest.raises(dcml.UnsupportedOpError, match="nonsense"):
        a[:] = OpTreeNode({"op": "nonsense", "shape": (2, 2)}, a, None)
    with pytest.raises(dcml.ValueError_, match="made of"):
        OpTreeNode(1, a, a)


@pytest.mark.parametrize("wrong", [{"shape": (9, 9)}, {"shape": None}, {}])
def test_a_shape_that_a_node_claims_is_not_trusted(be, wrong, monkeypatch):
    monkeypatch.setattr(run, "_cache", type(run._cache)())
    a = be.ones((2, 2))
    a[:] = OpTreeNode({"op": "add", **wrong}, a, a)
    assert a.get().tolist() == [[2, 2], [2, 2]]


def test_nodes_without_a_shape_keep_their_options(be):
    a, b = be.array([[1.0, 2.0], [3.0, 4.0]]), be.empty((2, 2))
    for axis, want in (0, [[4, 6], [4, 6]]), (1, [[3, 3], [7, 7]]):
        b[:] = OpTreeNode({"op": "sum", "axis": axis}, a, None)
        assert b.get().tolist() == want


@pytest.mark.parametrize("wrong", [
    OpTreeNode({"op": "add", "shape": (2, 2)}, None, None), OpTreeNode({"op": "exp", "shape": (2, 2)}, "a", None),
    OpTreeNode({"op": "sum", "shape": (2, 2)}, 1.0, None), OpTreeNode({"op": "conv", "shape": (2, 2)}, 1.0, 2.0),
    OpTreeNode({"op": "sum", "shape": (2, 2), "axis": [0]}, 1.0, None), OpTreeNode({"op": "grad", "shape": (2, 2)}, 1.0, None),
    OpTreeNode({"op": ["add"], "shape": (2, 2)}, 1.0, 2.0), OpTreeNode({"op": "sum", "shape": (2, 2), "axis": 7}, 1.0, None)])
def test_malformed_trees_are_errors(be, wrong):
    with pytest.raises((dcml.Error, TypeError, ValueError)):
        be.ones((2, 2))[:] = wrong


def test_operators_of_python_build_nodes(be):
    a, b = np.array([[2.0, 3.0]]), np.array([[4.0, 0.5]])
    x, y = be.array(a), be.array(b)
    found = [x + y, x - y, x * y, x / y, x**y, -x, abs(-x), 1 + x, 1 - x, 2 * x, 1 / x, 2**x, np.float32(2) * x, np.float64(2) / x, x == y, x != y, x < y,
             x <= y, x > y, x >= y, 1 < x]
    want = [a + b, a - b, a * b, a / b, a**b, -a, a, 1 + a, 1 - a, 2 * a, 1 / a, 2**a, 2 * a, 2 / a, a == b, a != b, a < b, a <= b, a > b, a >= b, a > 1]
    for tree, value in zip(found, want):
        assert isinstance(tree, OpTreeNode)
        np.testing.assert_allclose(tree.asnumpyarray(), value)
    assert len({x, y, x}) == 2 and len({x + y, x + y}) == 2


def test_functions_of_numpy_see_values(be):
    a = be.array([[1.0, 2.0]])
    np.testing.assert_array_equal(a, [[1, 2]])
    np.testing.assert_array_equal(a * 2, [[2, 4]])
    assert np.asarray(a + 1, np.float32).dtype == np.float32 and be.array(a + 1).get().tolist() == [[2, 3]]


def test_a_long_tree_and_one_that_shares_its_parts_run(be):
    a = be.ones((2, 2))
    tree = a
    for _ in range(3000):
        tree = tree + 1
    assert tree.asnumpyarray()[0, 0] == 3001 and len(tree.traverse([])) == 6001 and tree.pp().startswith("((")
    tree = a
    for _ in range(40):
        tree = tree + tree  # 2 to the 40 leaves
    assert tree.astensor().get()[0, 0] == 2.0**40


def test_a_tree_without_tensors_needs_a_target(be):
    assert be.add(1, 2).shape == (1, 1)
    with pytest.raises(dcml.ValueError_, match="backend"):
        be.add(1, 2).astensor()
    a = be.ones((2, 2))
    a[:] = be.add(1, be.sqrt(4))
    assert a.get().tolist() == [[3, 3], [3, 3]]
    a[:] = be.sum(2.5) + be.dot(3, 2) + be.argmax(4)
    assert a.get().tolist() == [[8.5, 8.5], [8.5, 8.5]]


# -- compiled once ---------------------------------------------------------------------------------

def test_a_structure_is_compiled_once_whatever_its_numbers_and_tensors(be):
    def step(rate, x, y):
        y[:] = y - x * rate + be.square(x) ** 2
        return len(run._cache)
    before = step(0.1, be.ones((3, 5)), be.ones((3, 5)))
    assert step(0.2, be.ones((3, 5)), be.zeros((3, 5))) == before
    assert step(0.2, be.ones((3, 5)), be.zeros((4, 3, 5))[1]) == before
    assert step(0.2, be.ones((3, 5)), be.zeros((9, 5))[2:5]) == before
    assert step(2, be.ones((3, 5)), be.ones((3, 5))) == min(before + 1, run.KEPT)  # a whole number is of another type
    assert step(0.1, be.ones((3, 6)), be.ones((3, 6))) == min(before + 2, run.KEPT)


def test_the_cache_is_bounded(be, monkeypatch):
    monkeypatch.setattr(run, "_cache", type(run._cache)())
    monkeypatch.setattr(run, "KEPT", 3)
    for n in range(1, 8):
        a = be.ones((n, n))
        a[:] = a + 1
    assert len(run._cache) == 3 and a.get()[0, 0] == 2


@pytest.mark.parametrize("n, compiled", [(4, False), (200, True)])
def test_small_trees_are_interpreted_and_large_ones_compiled_at_every_call(be, monkeypatch, n, compiled):
    made = []
    function = run._core.Function
    monkeypatch.setattr(run._core, "Function", lambda graph, backend: made.append(backend) or function(graph, backend=backend))
    a, b = be.array(np.random.RandomState(0).uniform(size=(n, n + 1))), be.empty((n, 1))
    bits = set()
    for _ in range(30):
        b[:] = be.sum(be.tanh(a), axis=1)
        bits.add(b.get().tobytes())
    assert len(bits) == 1 and made == ["auto" if compiled else "interp"]


def test_a_product_is_compiled_for_its_terms_and_a_gradient_for_what_it_differentiates(be):
    a = be.ones((20, 20))
    trees = [a + 1, be.dot(a, a), Autodiff(a + a, be).get_grad_op_tree([a])[0]]
    assert [run._steps(((a, tree),)) for tree in trees] == [800, 8400, 400 + 400 + 1600]


# -- tensors ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("given, shape", [(5, (1, 1)), ([1, 2, 3], (3, 1)), ([[1, 2, 3]], (1, 3)), (np.zeros((2, 3, 4)), (2, 3, 4)), ([], (0, 1))])
def test_tensors_have_at_least_two_dimensions(be, given, shape):
    assert be.array(given).shape == shape
    assert be.zeros(shape).shape == be.empty(shape).shape == be.ones(shape).shape == shape == be.zeros_like(be.array(given)).shape


def test_what_a_tensor_is_can_be_asked(be):
    a = be.array([[1, 2], [3, 4], [5, 6]], name="a", persist_values=False)
    assert (a.shape, a.size, len(a), a.dtype, a.name, a.persist_values, a.backend, a.base, a.is_contiguous) == ((3, 2), 6, 3, np.float64, "a", False, be, None, True)
    assert be.zeros(4).shape == (4, 1) and be.ones([2, 3], dtype=np.int8).dtype == np.int8 and be.ones((2, 2)).get().tolist() == [[1, 1], [1, 1]]
    assert a[1:].base is a and a[1:]._original_base is a and not a.T.is_contiguous and isinstance(a, Tensor)
    assert "a" in repr(a) and be.array(a).get().tolist() == a.get().tolist() and a.raw() == a.asnumpyarray().ctypes.data
    with pytest.raises(ValueError, match="truth"):
        bool(a)


def test_get_copies_and_set_and_fill_write(be):
    a = be.zeros((2, 2))
    got = a.get()
    assert a.set(np.array([1, 2, 3, 4])) is a and a.get().tolist() == [[1, 2], [3, 4]] and not got.any()
    assert a.fill(7) is a and a.get().tolist() == [[7, 7], [7, 7]]
    assert a.set(1.5) is a and a.get().tolist() == [[1.5] * 2] * 2
    assert a.copy_from(a + 1) is a and a.copy_from(be.ones((2, 2)) * 2) is a and a.get().tolist() == [[2, 2], [2, 2]]
    a[0, 1] = 9
    a[1] = np.array([5, 6])
    assert a.get().tolist() == [[2, 9], [5, 6]]
    for wrong, error in (np.ones(3), dcml.ShapeError), ("a", TypeError), (None, TypeError):
        with pytest.raises(error):
            a.set(wrong)
        with pytest.raises(error):
            a[:] = wrong


KEYS = [np.s_[1], np.s_[-1], np.s_[0:2], np.s_[:, 1], np.s_[:, 1:3], np.s_[::2, ::-1], np.s_[1, 2], np.s_[..., 0], np.s_[1:, -2:], np.s_[::-1]]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_slices_are_views_with_two_dimensions(be, key):
    array, a = filled(be, 3, 4)
    pairs = tuple(slice(k % n, k % n + 1) if isinstance(k, int) else k for k, n in zip(key if isinstance(key, tuple) else (key,), (3, 4)))
    pairs = (slice(None), slice(0, 1)) if key == np.s_[..., 0] else pairs
    view = a[key]
    assert view.shape == array[pairs].shape and np.array_equal(view.get(), array[pairs])
    view[:] = be.exp(view) + 1
    array[pairs] = np.exp(array[pairs]) + 1
    np.testing.assert_allclose(a.get(), array, rtol=1e-14)


def test_integers_take_dimensions_away_where_more_than_two_are_left(be):
    array, a = filled(be, 2, 3, 4)
    assert a[1].shape == (3, 4) and a[:, 1].shape == (2, 4) and a[1, 2].shape == (1, 4) and a[0, 1, 2].shape == (1, 1) and a[0:1].shape == (1, 3, 4)
    assert np.array_equal(a[1].get(), array[1]) and np.array_equal(a[1, 2].get(), array[1, 2:3])
    for wrong in (2, (0, 0, 0, 0), "a", (0, [1]), True, (..., 0, ...), None):
        with pytest.raises(IndexError):
            a[wrong]


def test_reshapes_and_shares_are_views(be):
    array, a = filled(be, 3, 4)
    a.reshape(2, 6)[:] = a.reshape((2, 6)) * 2
    a.reshape(-1)[:] = a.reshape(12, 1) + 1
    a.share((2, 2))[:] = 0
    want = array * 2 + 1
    want.ravel()[:4] = 0
    assert np.array_equal(a.get(), want) and a.reshape((3, 4)) is a and a.reshape(12).shape == (12, 1)
    for wrong in lambda: a.reshape(5, 5), lambda: a.share((5, 5)), lambda: a.share(-1), lambda: be.zeros((2, 1.5)):
        with pytest.raises(dcml.ShapeError):
            wrong()


def test_a_reshape_that_must_copy_cannot_be_written(be):
    array, a = filled(be, 3, 4)
    copy = a.T.reshape(2, 6)
    assert np.array_equal((copy + 0).asnumpyarray(), array.T.reshape(2, 6))
    with pytest.raises(dcml.ValueError_, match="read-only"):
        copy[:] = copy + 1
    with pytest.raises(dcml.ValueError_, match="row"):
        a.T.share((2, 2))


def test_transposes_are_views(be):
    array, a = filled(be, 3, 4)
    a.T[:] = a.T * be.array(np.arange(4.0).reshape(4, 1))
    assert np.array_equal(a.get(), array * np.arange(4))
    cube, c = filled(be, 2, 3, 4)
    assert np.array_equal(c.T.get(), cube.swapaxes(1, 2)) and c.T.shape == (2, 4, 3)
    out = be.empty((4, 3))
    assert a.transpose(out) is out and np.array_equal(out.get(), a.get().T) and (a + 0).transpose(out=out) is out
    assert np.array_equal((a + 1).T.asnumpyarray(), a.get().T + 1)


def test_an_array_of_the_type_is_shared_whatever_its_layout(be):
    array = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    a = Tensor(be, dtype=np.float64, ary=array)
    a[:, 1:3] = a[:, 0:2] + 10
    want = np.arange(12.0).reshape(3, 4)
    want[:, 1:3] = want[:, 0:2] + 10
    assert np.array_equal(array, want)


# -- targets that are read -------------------------------------------------------------------------

VIEWS = {"all": lambda x: x, "flat": lambda x: x.reshape(3, 3), "transposed": lambda x: x.T, "reversed": lambda x: x[::-1], "part": lambda x: x[0:2, 0:2],
         "corner": lambda x: x[1:3, 1:3], "columns": lambda x: x[:, 0:2], "others": lambda x: x[:, 1:3], "rows": lambda x: x[1:3], "odd": lambda x: x[::2, ::2]}


@pytest.mark.parametrize("target", VIEWS)
@pytest.mark.parametrize("leaf", VIEWS)
def test_a_tree_is_computed_before_its_target_is_written(be, target, leaf):
    array, a = filled(be, 3, 3)
    into, read = VIEWS[target](array), VIEWS[leaf](array)
    rows, columns = (min(x, y) for x, y in zip(into.shape, read.shape))
    value = read[:rows, :columns] * 2 + read[:rows, :columns].sum(axis=1, keepdims=True)
    x = VIEWS[leaf](a)[0:rows, 0:columns]
    VIEWS[target](a)[0:rows, 0:columns] = x * 2 + be.sum(x, axis=1)
    into[:rows, :columns] = value
    np.testing.assert_allclose(a.get(), array, rtol=1e-14)


def test_a_product_with_its_own_target_is_right(be):
    array, a = filled(be, 3, 3)
    a[:] = be.dot(a, a.T) + a
    np.testing.assert_allclose(a.get(), array @ array.T + array, rtol=1e-14)


def test_values_broadcast_into_their_target_as_numpys_do(be):
    a = be.zeros((2, 3))
    a[:] = be.array([[1.0, 2, 3]]) + 0
    assert a.get().tolist() == [[1, 2, 3]] * 2
    a[:] = be.sum(a, axis=1)
    assert a.get().tolist() == [[6] * 3] * 2
    a[:] = be.array([[1.0], [2.0]])
    assert a.get().tolist() == [[1] * 3, [2] * 3]
    with pytest.raises(dcml.ShapeError, match="\\(2, 4\\).*\\(2, 3\\)"):
        a[:] = be.ones((2, 4)) + 1


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32, np.uint8])
def test_values_are_cast_to_their_targets_type(be, dtype):
    a = be.zeros((1, 3), dtype=dtype)
    a[:] = be.array([[1.5, 2.5, 100.0]]) * 2
    assert a.dtype == dtype and a.get().tolist() == [[3, 5, 200]]


def test_empty_tensors_do_nothing(be):
    a = be.zeros((0, 3))
    a[:] = a + 1
    assert (a * 2).asnumpyarray().shape == (0, 3) and be.sum(a, axis=0).asnumpyarray().tolist() == [[0, 0, 0]]


def random_tree(be, random, x, a):
    """The same expression of tensors and of arrays."""
    for _ in range(random.randint(2, 6)):
        kind = random.randint(6)
        if kind == 0:
            x, a = be.tanh(x), np.tanh(a)
        elif kind == 1:
            x, a = x + be.sum(x, axis=1) * 0.25, a + a.sum(axis=1, keepdims=True) * 0.25
        elif kind == 2:
            x, a = be.maximum(x, 0.5) - x, np.maximum(a, 0.5) - a
        elif kind == 3:
            x, a = x.T, a.T
        elif kind == 4:
            x, a = be.dot(x, x.T) * 0.1, a @ a.T * 0.1
        else:
            x, a = x * x - be.mean(x), a * a - a.mean()
    return x, a


@pytest.mark.parametrize("seed", range(12))
def test_random_trees_on_random_views_are_numpys(be, seed):
    random = np.random.RandomState(seed)
    array = random.uniform(-1, 1, (6, 6))
    a = be.array(array)
    for _ in range(6):
        cuts = [slice(i, i + 3) if random.randint(2) else slice(i, None, 2) for i in random.randint(0, 2, 4)]
        into, read = (cuts[0], cuts[1]), (cuts[2], cuts[3])
        x, y = random_tree(be, random, a[read], array[read])
        if y.shape != array[into].shape:
            continue
        array[into] = y
        a[into] = x
        np.testing.assert_allclose(a.get(), array, rtol=1e-10, atol=1e-10)
