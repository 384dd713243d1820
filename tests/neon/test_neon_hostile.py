"""Methods of Neon's backend, given anything, return or raise one of Python's exceptions for wrong arguments, and never another."""
import random

import numpy as np
import pytest

import dcml
from dcml import _core
from dcml.neon.backends import Autodiff, gen_backend
from dcml.neon.backends.backend import Backend, OpTreeNode, Tensor

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


@pytest.mark.parametrize("given", [(), ((), None, {}, (1, 2, 3)), ((), None, {}, (int, int, int)), ([], None, {}, (tuple, int, int)),
                                   ((3, None, (1, 2)), None, {}, (tuple, int, int)), (("a",), lambda x: "z", {}, (tuple, int, str)),
                                   (({},), None, {}, (tuple, int, 3)), ((1, (2, 3, 4)), None, {}, (tuple, int, int))], ids=range(8))
def test_keys_of_what_are_no_trees_are_errors(given):
    with pytest.raises(TypeError):
        _core.tree_key(*given)


def test_a_key_of_many_nodes_numbers_each_once():
    class Node(tuple):
        pass
    x = 3.0
    for _ in range(5000):
        x = Node(({"op": "add", "shape": 1}, x, Node(({"op": "pow", "shape": 1}, x, 2))))
    key, numbers, has_gradient = _core.tree_key((x,), None, {}, (Node, int, str))
    assert len(key) == 20002 and numbers == [3.0, 3.0] and not has_gradient and key[:3] == [1, "add", "add"]
