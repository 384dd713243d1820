"""A table of what forward may do in Python and to autograd, each compared with eager mode: values, gradients, what
becomes of the arguments, types and structure of the result."""
import collections
import dataclasses
import enum

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree

import dcml
from dcml.pytorch import DaceModule
from dcml.pytorch.call import trees


class Calls(nn.Module):
    """Calls a function of itself and its arguments."""

    def __init__(self, function):
        super().__init__()
        self.function, self.fc = function, nn.Linear(4, 4)
        self.register_buffer("mean", torch.ones(4))

    def forward(self, *args, **kwargs):
        return self.function(self, *args, **kwargs)


def given(*shape):
    return torch.randn(*shape or (3, 4)).requires_grad_()


def outcome(module, arguments):
    """Values, gradients, arguments and buffers after a call, as comparable leaves; the result's kind."""
    torch.manual_seed(1)
    args = arguments()
    before = [t for t in trees.flatten(args)[0] if isinstance(t, torch.Tensor)]
    leaves, shape = trees.flatten(module(*args))
    results = [t for t in leaves if isinstance(t, torch.Tensor)]
    wanted = [t for t in (*before, *module.parameters()) if t.requires_grad and t.is_leaf]
    roots = [t.abs().cos().sum() for t in results if t.requires_grad]
    grads = torch.autograd.grad(sum(roots), wanted, allow_unused=True) if roots and wanted else ()
    tensors = [t.detach() for t in (*results, *before, *module.buffers())]
    others = [v for v in leaves if not isinstance(v, torch.Tensor)]
    return tensors, [t.requires_grad for t in results], grads, others, str(shape), [t._version for t in before]


def check(function, arguments, calls=2):
    torch.manual_seed(0)
    plain = Calls(function)
    torch.manual_seed(0)
    compiled = DaceModule(Calls(function), backward=True)
    for k in range(calls):
        want, got = (outcome(m, lambda: arguments(k)) for m in (plain, compiled))
        for a, b in zip(got[0] + list(got[2]), want[0] + list(want[2]), strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        assert got[1] == want[1] and got[3:] == want[3:]


# -- autograd inside forward -----------------------------------------------------------------------
def through_data(self, x):
    y = x * 2
    y.data.add_(1)
    self.fc.weight.data = self.fc.weight.data.clamp(max=0.1)
    return self.fc(y) * x.data


def under_no_grad(self, x):
    y = x * 2
    with torch.no_grad():
        self.fc.weight.mul_(0.5)
        self.fc.weight[0].add_(1)
        y[0] = 1
    with torch.no_grad():
        self.fc.weight.sub_(0.1)
        self.mean.add_(x.mean(0))
    return self.fc(y) * y * self.mean, y


def under_no_grad_and_view(self, x):
    with torch.no_grad():
        x.mul_(3)
    return x[0] * 1, x[0]


def changes_argument(self, x):
    with torch.no_grad():
        x.mul_(2)
    return x * x


def alias_of_detached(self, x):
    y = x * 2
    y.detach().add_(1)
    return y * y


def detached_twice(self, x):
    self.fc.weight.data.mul_(0.5)
    self.fc.weight.data[1] = 1
    self.fc.weight[0].detach().add_(1)
    y = x * 2
    y.detach().mul_(0.5)
    first, rest = y[:1], y[1:]
    rest.detach().t().add_(1)
    return self.fc(y) * y, first * rest


def detached_in_place(self, x):
    y = x * 2
    y.detach_()
    return y * x


def seen_by_views(self, x):
    y = x * 2
    view = y.view(-1)
    with torch.no_grad():
        y[1].add_(1)
    return view * 2, y * y


def in_inference_mode(self, x):
    with torch.inference_mode():
        y = self.fc(x)
    return y + 0, x * 2


def of_types(self, x):
    known = [type(v) in (torch.Tensor, nn.Parameter) for v in (x, x * 2, self.fc.weight)]
    own = type("Own", (), {})
    return x * 2 if all(known) and type(own()) is own and isinstance(own, type) else x * 3


def gradient_without_graph(self, x):
    y = self.fc(x).square().sum()
    return x * 2, torch.autograd.grad(y, self.fc.weight)[0]


def at_places(self, x, k, last):
    y = torch.stack([x, x * 2], 1)
    y[k, :, last] = x[0, :2]
    y[None, 0, ..., k] = 3
    y[:, k % 2] += x[:1]
    y[k] = y[last].double()
    self.mean[k] += 1
    return y.sin() * self.mean


def normed_rows(self, places):
    y = nn.functional.embedding(places, self.fc.weight, max_norm=0.5, norm_type=2.5)
    return y, nn.functional.embedding_bag(places + 1, self.fc.weight, max_norm=0.3)


AUTOGRAD = {
    "data": (through_data, lambda k: (given(),)),
    "changes without gradient": (under_no_grad, lambda k: (given(),)),
    "a leaf changed without gradient": (changes_argument, lambda k: (given(),)),
    "an argument changed without gradient": (changes_argument, lambda k: (given() * 1,)),
    "a detached alias changed": (alias_of_detached, lambda k: (given(),)),
    "detached aliases changed one after the other": (detached_twice, lambda k: (given(),)),
    "detach_": (detached_in_place, lambda k: (given(),)),
    "inference mode inside": (in_inference_mode, lambda k: (given(),)),
    "a gradient without graph": (gradient_without_graph, lambda k: (given(),)),
    "numbers in tensors as indices": (at_places, lambda k: (given(), torch.tensor(k), torch.tensor(-1, dtype=torch.int32))),
    "rows of at most a norm": (normed_rows, lambda k: (torch.tensor([[0, k], [2, 1]]),)),
    "views of what changes": (seen_by_views, lambda k: (given(),)),
    "a view of an argument that changes": (lambda self, x: (x.mul_(2), x[1:].t(), x.detach()[0]), lambda k: (given() * 1,)),
    "a view of what changes without gradient": (under_no_grad_and_view, lambda k: (given() * 1,)),
    "does an argument require a gradient": (lambda self, x: x * 2 if x.requires_grad else x * 3,
                                            lambda k: (given().requires_grad_(k % 2 == 0),)),
    "the type of a tensor": (of_types, lambda k: (given(),)),
    "how an argument lies in memory": (lambda self, x: x * 2 if x.is_contiguous() else x * 3,
                                       lambda k: (given().t() if k % 2 else given(),)),
    "an argument made contiguous": (lambda self, x: x.contiguous().view(-1),
                                    lambda k: (given(6, 4)[::2] if k % 2 else given(),)),
}


@pytest.mark.parametrize("what", AUTOGRAD)
def test_autograd_inside_forward(what):
    check(*AUTOGRAD[what], calls=3)


def test_whether_gradients_are_on_is_that_of_the_call():
    compiled, x = DaceModule(Calls(lambda self, x: x * 2 if torch.is_grad_enabled() else x * 3)), torch.ones(2)
    for _ in range(3):
        assert compiled(x)[0] == 2
        with torch.no_grad():
            assert compiled(x)[0] == 3


def modes(self, x):
    seen = [torch.is_grad_enabled()]
    for region in (torch.no_grad, torch.enable_grad, lambda: torch.set_grad_enabled(True), lambda: torch.set_grad_enabled(False)):
        with region():
            seen.append(torch.is_grad_enabled())
            with torch.enable_grad():
                seen.append(torch.is_grad_enabled())
            seen.append(torch.is_grad_enabled())
        seen.append(torch.is_grad_enabled())
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    seen.append(torch.is_grad_enabled())
    torch.set_grad_enabled(before)
    return [*seen, torch.is_grad_enabled()], x + 1


@pytest.mark.parametrize("on", [True, False])
def test_regions_of_forward_turn_gradients_on_and_off_as_in_eager(on):
    module = Calls(modes)
    with torch.set_grad_enabled(on):
        assert DaceModule(module)(torch.ones(2))[0] == module(torch.ones(2))[0]


def test_an_extent_in_a_text_is_that_of_the_call():
    module = Calls(lambda self, x: x + 1 if f"{x.shape[0]} rows" == "3 rows" and "[3, " in str(x.shape) else x - 1)
    compiled = DaceModule(module)
    for rows in (3, 4, 3, 5):
        assert torch.equal(compiled(torch.ones(rows, 2)), module(torch.ones(rows, 2)))


def changes_with_and_without(self, x):
    view = x.view(-1)
    with torch.no_grad():
        x.add_(1)
    return x.relu_() * view.sum()


def test_changes_with_and_without_gradient_are_refused():
    with pytest.raises(dcml.UnsupportedOpError, match="without a gradient.*test_like_eager.py"):
        DaceModule(Calls(changes_with_and_without), backward=True)(given())


@pytest.mark.parametrize("module", [nn.ReLU(inplace=True), Calls(lambda self, x: x.add_(1))])
def test_a_changed_argument_that_is_returned_is_the_argument(module):
    x = torch.randn(3, 4)
    want = module(x.clone())
    for _ in range(3):
        given = x.clone()
        assert DaceModule(module)(given) is given
        torch.testing.assert_close(given, want)


OUTSIDE = nn.Parameter(torch.randn(4))
OWN = {
    "a parameter": lambda self, x: self.fc.weight,
    "a view of it": lambda self, x: self.fc.weight[1:].t(),
    "its data": lambda self, x: self.fc.weight.data,
    "a buffer": lambda self, x: (x + self.mean, self.mean),
    "rows of a buffer": lambda self, x: (x + 1, self.mean[::2]),
    "a buffer that changes": lambda self, x: self.mean.add_(x.detach()[0]),
    "a view of one that changes": lambda self, x: (self.mean.mul_(2), self.mean[1:]),
    "one that gets a result": lambda self, x: ((y := x.detach()[0] * 2), self.mean.copy_(y)),
    "what it was before it changed": lambda self, x: (self.mean.clone(), self.mean.add_(1)),
    "a parameter of nobody": lambda self, x: OUTSIDE,
    "what an attribute holds": lambda self, x: self.plain.view(2, 2),
}


@pytest.mark.parametrize("what", OWN)
def test_what_is_the_modules_own_is_returned_as_itself(what):
    torch.manual_seed(0)
    plain, inside = Calls(OWN[what]), Calls(OWN[what])
    inside.load_state_dict(plain.state_dict())
    plain.plain = inside.plain = torch.arange(4.0)
    compiled, x = DaceModule(inside, backward=True), given()
    for _ in range(3):
        want, got = (module(x) if isinstance(module(x), tuple) else (module(x),) for module in (plain, compiled))
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0)
            places = [_place(t, module) for t, module in ((a, inside), (b, plain))]
            assert places[0] == places[1] and type(a) is type(b)
            assert (a.stride(), a.requires_grad, a.is_leaf) == (b.stride(), b.requires_grad, b.is_leaf)
        if any(t.requires_grad for t in want):
            (grads, wanted) = ([torch.autograd.grad(sum(t.sum() for t in some if t.requires_grad), [OUTSIDE, *module.parameters()],
                                                    allow_unused=True) for some, module in ((got, inside), (want, plain))])
            for a, b in zip(grads, wanted):
                assert (a is None) == (b is None) and (a is None or torch.equal(a, b))


def test_a_buffer_that_gets_what_has_a_gradient_is_a_result_with_that_gradient():
    (plain, compiled), x = [Calls(lambda self, x: self.mean.mul_(x[0])) for _ in range(2)], given()
    compiled = DaceModule(compiled, backward=True)
    want, got = (torch.autograd.grad(module(x).sum(), x)[0] for module in (plain, compiled))
    assert torch.equal(got, want)


def _place(tensor, module):
    """Which tensor of a module it is or looks at, and from where on."""
    held = {"outside": OUTSIDE, "plain": module.plain, **module.state_dict(keep_vars=True)}
    return [(name, own is tensor, tensor.storage_offset()) for name, own in held.items()
            if own.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()]


# -- arguments and results of all kinds ------------------------------------------------------------
class Mode(enum.Enum):
    A, B = 1, 2


class Level(enum.IntEnum):
    LOW, HIGH = 1, 2


@dataclasses.dataclass
class Batch:
    x: object
    n: int = 2


@dataclasses.dataclass(frozen=True)
class Config:
    n: int = 2


class Own(dict):
    pass


class Plain:
    def __init__(self, x, rest=None):
        self.x, self.rest = x, rest


class Registered:
    def __init__(self, a, b):
        self.a, self.b = a, b


_pytree.register_pytree_node(Registered, lambda r: ([r.a, r.b], None), lambda v, _: Registered(*v),
                             serialized_type_name="test_like_eager.Registered")
Pair = collections.namedtuple("Pair", "a b")

KINDS = {
    "dtype": (lambda self, x, d: x.to(d), lambda k: (given(), [torch.float64, torch.float16][k])),
    "device": (lambda self, x, d: x.to(d) * 2, lambda k: (given(), torch.device("cpu"))),
    "size": (lambda self, x, s: (x.reshape(s) * 2, s, x.shape, s.numel()), lambda k: (given(), torch.Size([4, 3]))),
    "enum": (lambda self, x, m: (x * 2 if m is Mode.A else x * 3, m), lambda k: (given(), [Mode.A, Mode.B][k])),
    "int enum": (lambda self, x, m: (x * m, m), lambda k: (given(), [Level.LOW, Level.HIGH][k])),
    "slice": (lambda self, x, s: x[s] * 2, lambda k: (given(), slice(0, k + 1))),
    "ellipsis": (lambda self, x, s: x[s] * 2, lambda k: (given(), ...)),
    "complex number": (lambda self, x, z: x * z, lambda k: (given(), complex(1, k))),
    "numpy number": (lambda self, x, z: x * z, lambda k: (given(), np.float32(k))),
    "set": (lambda self, x, s: x * max(s), lambda k: (given(), {1, k})),
    "data class": (lambda self, b: Batch(b.x * b.n, b.n), lambda k: (Batch(given(), k),)),
    "frozen data class": (lambda self, x, c: (x * c.n, c), lambda k: (given(), Config(k))),
    "own dictionary": (lambda self, d: Own(y=d["x"] * 2, none=None), lambda k: (Own(x=given()),)),
    "plain object": (lambda self, o: Plain(o.x * 2, [o.rest, o.x + 1]), lambda k: (Plain(given(), {"k": k}),)),
    "registered": (lambda self, r: Registered(r.a * 2, r.b), lambda k: (Registered(given(), k),)),
    "nested": (lambda self, p: Pair([Batch(p.a.x * 2)], p.b), lambda k: (Pair(Batch(given()), {"c": Config(1)}),)),
    "types": (lambda self, x: (x * 2, x.dtype, x.device, "text", None, Mode.B, 1.5), lambda k: (given(),)),
}


@pytest.mark.parametrize("what", KINDS)
def test_arguments_and_results(what):
    check(*KINDS[what])


def test_a_distribution_comes_back_as_one():
    compiled, x = DaceModule(Calls(lambda self, x: torch.distributions.Normal(self.fc(x), 1.0))), torch.ones(2, 4)
    torch.testing.assert_close(compiled(x).log_prob(x), compiled.model(x).log_prob(x), rtol=1e-4, atol=1e-5)


REFUSED = {
    "a generator": (lambda self, x: (v for v in [x]), lambda: (given(),), "returns a generator"),
    "a function": (lambda self, x, f: f(x), lambda: (given(), torch.sin), "type builtin_function"),
    "another device": (lambda self, x: x.to("meta") * 2, lambda: (given(),), "device 'meta'"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_kept_is_refused(what):
    function, arguments, message = REFUSED[what]
    with pytest.raises(dcml.Error, match=message):
        DaceModule(Calls(function), backward=True)(*arguments())
