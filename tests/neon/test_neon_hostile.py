"""Methods of Neon's backend, given anything, return or raise one of Python's exceptions for wrong arguments, and never another."""
import random

import numpy as np
import pytest

import dcml
from dcml import _core
from dcml.neon.backends import Autodiff, gen_backend
from dcml.neon.backends.backend import Backend, OpTreeNode, Tensor
from dcml.neon.backends.nervanacpu import NervanaCPU

CHANGE_THE_BACKEND = {"gen_rng", "rng_set_state", "set_caffe_compat", "cleanup_backend", "allocate_backend", "tensor_cls"}
METHODS = sorted(n for n in dir(Backend) if not n.startswith("_") and callable(getattr(Backend, n)) and n not in CHANGE_THE_BACKEND)
OF_TENSORS = ["get", "set", "fill", "copy_from", "reshape", "share", "take", "transpose", "__getitem__", "__setitem__", "__add__", "__pow__"]
EXPECTED = (dcml.Error, TypeError, ValueError, IndexError, OverflowError, MemoryError)


def anything(be):
    """Functions that make one argument each."""
    conv = be.conv_layer(np.float32, 2, 2, 2, H=3, W=3, R=2, S=2)
    pool = be.pool_layer(np.float32, "max", 2, 2, H=4, W=4, R=2, S=2)
    constants = [1.5, 2, -1, None, "a", np.float32(2), [1, 2], (2, 3), {}, conv, pool, np.float64, True, float("nan"), 1 << 70, be, np.tanh]
    return [lambda: be.ones((2, 3)), lambda: be.ones((3, 2)).T, lambda: be.ones((2, 2, 2)), lambda: be.ones((3, 3))[0:2], lambda: be.ones((2, 3)) + 1,
            lambda: be.sum(be.ones((2, 3)), axis=1), lambda: np.ones((2, 3)), lambda: be.array([[1, 2, 0]], dtype=np.int32), lambda: be.zeros((0, 3)),
            lambda: be.onehot(be.array([1, 0], dtype=np.int32), 0), lambda: be.zeros(conv.dimI), lambda: be.zeros(pool.dimI), lambda: be.zeros(pool.dimO),
            lambda: [be.ones((2, 2))] * 2, lambda: OpTreeNode({"op": "add"}, be.ones((2, 2)), None), *(lambda x=x: x for x in constants)]


@pytest.mark.parametrize("seed", range(3))
def test_any_call_returns_or_says_what_is_wrong(seed):
    choose = random.Random(seed)
    be = gen_backend(rng_seed=0, batch_size=2)
    make = anything(be)
    returned = 0
    for _ in range(1500):
        name = choose.choice(METHODS + ["." + n for n in OF_TENSORS])
        method = getattr(be.ones((2, 3)), name[1:]) if name[0] == "." else getattr(be, name)
        arguments = [choose.choice(make)() for _ in range(choose.randint(0, 5))]
        try:
            found = method(*arguments)
            if isinstance(found, OpTreeNode):
                found.pp(), found.key(), found.asnumpyarray()
                Autodiff(found, be).get_grad_tensor([x for x in found.traverse([]) if isinstance(x, Tensor) and x.dtype.kind == "f"])
            returned += 1
        except EXPECTED:
            pass
        except Exception as error:
            raise AssertionError(f"{name}({', '.join(map(repr, arguments))})") from error
    assert returned > 50


KINDS = tuple, int, int


@pytest.mark.parametrize("given", [(), ((), (1, 2, 3)), ((), (int, int, int)), ([], KINDS), ((3,), KINDS), (((3, (1, 2)),), KINDS), (((3, "a"),), KINDS),
                                   (((3, {}),), (tuple, int, 3)), (((3, 1), (3, (2, 3, 4))), KINDS), (((3, 1, 1),), KINDS)], ids=range(10))
def test_keys_of_what_are_no_trees_are_errors(given):
    with pytest.raises(TypeError):
        _core.tree_key(*given)


def test_a_key_of_many_nodes_numbers_each_once():
    class Node(tuple):
        pass
    x, target = 3.0, object()
    for _ in range(5000):
        x = Node(({"op": "add", "shape": 1}, x, Node(({"op": "pow", "shape": 1}, x, 2))))
    key, operands, numbers, has_gradient = _core.tree_key(((target, x),), (Node, int, str))
    assert len(key) == 20003 and numbers == [3.0, 3.0] and not has_gradient and key[:3] == [1, "add", "add"]
    assert operands == [target] and key[-1] == 0


@pytest.mark.parametrize("kept, pairs, types, name", [([], (), KINDS, "a"), ({}, [], KINDS, "a"), ({}, (), 3, "a"), ({}, (), KINDS, 1),
                                                      ({}, ((3, 1),), KINDS, "a")], ids=range(5))
def test_what_cannot_be_run_as_trees_is_an_error(kept, pairs, types, name):
    with pytest.raises((TypeError, AttributeError)):
        _core.run_trees(kept, 8, pairs, types, name)


@pytest.mark.parametrize("given", [(), ("add", None, int, int, 0, 2), ("add", None, tuple, int, 2, 1), ("add", None, tuple, int, 0, 3),
                                   ("neg", None, tuple, int, 0, 1, True), (3, None, tuple, int, 0, 1)], ids=range(6))
def test_operators_of_trees_say_what_they_take(given):
    with pytest.raises((TypeError, ValueError)):
        _core.TreeOperator(*given)


def test_an_operator_of_trees_leaves_what_it_cannot_serve_to_the_method():
    asked = []
    make = _core.TreeOperator("add", lambda *given, **named: asked.append((given, named)), OpTreeNode, Tensor, 0, 2)
    x, y = NervanaCPU().ones((2, 3)), NervanaCPU().ones((3, 2))
    assert isinstance(make(x, 1), OpTreeNode) and isinstance(make(2.5, x), OpTreeNode) and isinstance(make(x, x), OpTreeNode) and not asked
    for given in ((x, y), (x, True), (1, 2), (x, None), (x,), (x, x, x)):
        assert make(*given) is None
    assert make(x, b=x) is None and len(asked) == 7
