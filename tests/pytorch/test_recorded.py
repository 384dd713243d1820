"""Modules traced by writing down what forward calls, and when torch.export traces them instead."""
import functools
import os
import re
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from captured import check
from torch import nn

from dcml import Error
from dcml.pytorch import DaceModule
from dcml.pytorch.record import recorder
from dcml.pytorch.record.symbols import Beyond, Fixed, Merge, Number, Polynomial, Worlds, number, symbol
from dcml.pytorch.trace import capture as tracing
from dcml.pytorch.trace import exported, recorded

pytestmark = pytest.mark.usefixtures("interpreted")


def captured(way, module, *args):
    return tracing._captured(way, module, args, None, "graph", True, None, False, None)


def text(made):
    """A graph with symbols numbered as they are met."""
    names = {}
    return re.sub(r"\bs\d+\b", lambda found: names.setdefault(found.group(), f"s{len(names)}"), str(made.graph))


class Forward(nn.Module):
    """A layer and a function of it and the arguments."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.function = nn.Linear(4, 4), function
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, *args):
        return self.function(self, *args)


def normalised(self, x):
    return F.relu(F.batch_norm(self.layer(x), self.seen, self.seen + 1, training=False), inplace=True)


def changed_in_place(self, x):
    y = self.layer(x)
    y[:, 0] = 0
    self.seen.add_(y.detach().mean(0))
    return y.view(-1), x.shape[0] * 4


def with_a_region_without_gradient(self, x):
    with torch.no_grad():
        h = self.layer(x) * 2
    return self.layer(h)


def cast(self, x):
    with torch.autocast("cpu", torch.bfloat16):
        y = F.layer_norm(self.layer(x), (4,))
        with torch.autocast("cpu", enabled=False):
            z = self.layer(x)
    return y + z


SAME = {"normalised": normalised, "cast": cast,
        "attention": lambda self, x: F.scaled_dot_product_attention(*[self.layer(x).view(-1, 2, 2, 1)] * 3),
        "another batch": lambda self, x: torch.cat([x, x]) @ self.layer.weight,
        "drawn": lambda self, x: F.dropout(self.layer(x), 0.5)}


@pytest.mark.parametrize("function", SAME.values(), ids=SAME)
def test_recording_gives_the_graph_that_export_gives(function):
    module, x = Forward(function), torch.randn(6, 4)
    assert text(captured(recorded, module, x)) == text(captured(exported, module, x))


def with_constants(self, x):
    return x * torch.tensor([1.0, 2.0, 3.0, 4.0]) + torch.arange(4)


@pytest.mark.parametrize("function", [normalised, cast, changed_in_place, with_a_region_without_gradient, with_constants])
def test_what_is_recorded_computes_what_torch_computes(function):
    check(Forward(function), (torch.randn(6, 4),))


FRESH = {"zeros_like": torch.zeros_like, "full_like": lambda x: torch.full_like(x, 2.0), "empty_like": torch.empty_like,
         "rand_like": torch.rand_like, "new_ones": lambda x: x.new_ones(x.shape), "new_empty": lambda x: x.new_empty(x.shape)}


@pytest.mark.parametrize("beyond", (False, True), ids=("recorded", "exported"))
@pytest.mark.parametrize("make", FRESH.values(), ids=FRESH)
def test_what_is_put_into_a_tensor_made_like_another_has_its_gradient(make, beyond):
    def put(self, x):
        y = make(x if not beyond or x.shape[0] > 4 else -x)
        y[:, 0], y[:, 1:] = self.layer(x)[:, 0], x[:, 1:]
        return y
    plain, x = Forward(put), torch.randn(6, 4).requires_grad_()
    found = []
    for module in (plain, DaceModule(plain, backward=True)):
        y = module(x)
        found.append([y, *torch.autograd.grad(y.square().sum(), [x, *plain.layer.parameters()])])
    torch.testing.assert_close(found[1], found[0])


BEYOND = {"divides an extent": lambda self, x: x[:x.shape[0] // 2],
          "not less than that many": lambda self, x: x[:5],
          "an operator of functions": lambda self, x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))}


@pytest.mark.parametrize("function", BEYOND.values(), ids=BEYOND)
def test_what_cannot_be_written_down_is_traced_by_export(function):
    module, x = Forward(function), torch.randn(6, 4)
    with pytest.raises(Beyond):
        captured(recorded, module, x)
    check(module, (x,))
    assert all(type(p) is nn.Parameter for p in module.parameters())


BOUNDED = {"at least": (lambda self, x: x if x.shape[0] >= 4 else -x, (4, None)),
           "more than": (lambda self, x: x if x.shape[0] > 4 else -x, (5, None)),
           "not as many as": (lambda self, x: x if x.shape[0] != 4 else -x, (5, None)),
           "exactly the least": (lambda self, x: x if x.shape[0] >= 6 else -x, (6, None)),
           "at most that many": (lambda self, x: x + torch.arange(64.0)[:x.shape[0], None], (2, 63)),
           "between": (lambda self, x: x if 3 <= x.shape[0] < 99 else -x, (3, 98)),
           "enough for a window": (lambda self, x: F.conv1d(x.T[None], torch.ones(1, 4, 5)), (6, None))}  # as the call has: 4 are too few


@pytest.mark.parametrize("what", BOUNDED)
def test_comparisons_with_numbers_bound_an_extent(what):
    function, bounds = BOUNDED[what]
    module, compiled = Forward(function), DaceModule(Forward(function))
    shapes, ranges = captured(recorded, module, torch.randn(6, 4)).guard.told()
    assert shapes == [["s0", 4]] and ranges == {"s0": bounds}
    for extent in (6, 7, 12, bounds[0], *([bounds[1]] if bounds[1] else [])):
        x = torch.randn(extent, 4)
        torch.testing.assert_close(compiled(x), module(x))
    assert len(compiled._captures) == 1
    x = torch.randn(5, 4) if what == "enough for a window" else torch.randn(2, 4)
    torch.testing.assert_close(compiled(x), module(x))


FIXED = {"a number": lambda self, x: x * float(x.shape[0]), "labels": lambda self, x: F.cross_entropy(x @ x.T, torch.arange(len(x))),
         "rows": lambda self, x: torch.stack([row.sin() for row in x])}


@pytest.mark.parametrize("function", FIXED.values(), ids=FIXED)
def test_an_extent_that_python_takes_for_a_number_is_one_in_the_capture(function):
    module, compiled = Forward(function), DaceModule(Forward(function))
    assert captured(recorded, module, torch.randn(6, 4)).guard.shapes == [[6, 4]]
    for extent in (6, 4, 6, 5):
        x = torch.randn(extent, 4)
        torch.testing.assert_close(compiled(x), module(x))
    assert len(compiled._captures) == 3


@pytest.mark.parametrize("function", [
    lambda self, x: torch.autograd.grad(self.layer(x).sum(), [self.layer.weight])[0], lambda self, x: x[x > 0],
    lambda self, x: x * x.max().item(), lambda self, x: torch.tensor(x.tolist())], ids=["gradient", "mask", "item", "list"])
def test_gradients_and_values_of_tensors_are_not_written_down(function):
    with pytest.raises(Beyond):
        captured(recorded, Forward(function), torch.randn(6, 4))


def test_extents_that_must_be_equal_are_one_symbol_and_others_are_not():
    def shapes(function):
        return captured(recorded, Forward(function), torch.ones(6, 4), torch.ones(6, 4)).guard.shapes
    assert shapes(lambda self, x, y: x + y) == [["s0", 4], ["s0", 4]]
    assert shapes(lambda self, x, y: (x * 2, y * 2)) == [["s0", 4], ["s1", 4]]
    assert shapes(lambda self, x, y: F.mse_loss(x, y)) == [["s0", 4], ["s0", 4]]


def test_of_many_first_extents_those_that_are_equal_are_one_symbol():
    states = [torch.ones(3 if k % 2 else 5, 4) for k in range(20)]
    made = captured(recorded, Forward(lambda self, *states: [self.layer(s) for s in states]), *states)
    assert made.guard.shapes == [["s1" if k % 2 else "s0", 4] for k in range(20)]


def test_an_extent_that_torch_goes_through_step_by_step_is_a_number():
    made = captured(recorded, Forward(lambda self, *given: F.bilinear(*given)), torch.ones(6, 3), torch.ones(6, 4), torch.ones(5, 3, 4))
    assert made.guard.shapes == [["s0", 3], ["s0", 4], [5, 3, 4]]


IMAGE = torch.rand(2, 3, 8, 9)
THREE = torch.rand(3)
TOLD = {"batch_norm.default": (IMAGE, THREE, THREE, None, None, True, 0.1, 1e-5, True),
        "grid_sampler.default": (IMAGE, torch.rand(2, 4, 5, 2), 2, 2, True),
        "grid_sampler_2d.default": (IMAGE, torch.rand(2, 4, 5, 2), 0, 1, False),
        "upsample_bilinear2d.vec": (IMAGE, None, True, [2.0, 1.5]), "upsample_bilinear2d.default": (IMAGE, [5, 7], False),
        "upsample_bicubic2d.vec": (IMAGE, [5, 7], False, None), "upsample_bicubic2d.default": (IMAGE, [5, 7], False, 0.6, 0.8)}


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", TOLD)
def test_what_another_operator_tells_of_a_result_is_what_eager_gives_in_fewer_calls(name, order):
    function, image = functools.reduce(getattr, name.split("."), torch.ops.aten), TOLD[name][0].contiguous(memory_format=order)
    want = function(image, *TOLD[name][1:])
    image, *rest = [t.to("meta") if isinstance(t, torch.Tensor) else t for t in (image, *TOLD[name][1:])]
    made, calls = _calls(recorder._TOLD_BY[function], image, *rest)
    assert (made.shape, made.stride(), made.dtype) == (want.shape, want.stride(), want.dtype)
    assert 2 * calls < _calls(function, image, *rest)[1]


@pytest.mark.parametrize("axes", [(0, 1, 2, 3), (0, 3, 1, 2), (1, 0, 2, 3), (3, 2, 1, 0)])
@pytest.mark.parametrize("training", [True, False])
def test_a_normalised_image_lies_as_in_eager(axes, training):
    layer, image = nn.BatchNorm2d(3).train(training), torch.rand([(4, 3, 5, 6)[axes.index(k)] for k in range(4)]).permute(axes)
    assert image.shape == (4, 3, 5, 6)
    assert DaceModule(Forward(lambda self, x: (layer(x), layer(x).is_contiguous())))(image)[0].stride() == layer(image).stride()


def test_statistics_of_other_channels_are_refused():
    with pytest.raises((RuntimeError, Error), match="running_mean should contain 3 elements not 2"):
        DaceModule(Forward(lambda self, x: F.batch_norm(x, torch.zeros(2), torch.ones(2))))(IMAGE)


def test_layers_that_are_alike_are_told_once(monkeypatch):
    asked, run = [], recorder._run
    monkeypatch.setattr(recorder, "_run", lambda function, args, kwargs: asked.append(str(function)) or run(function, args, kwargs))
    layers = nn.Sequential(*[nn.Sequential(nn.LayerNorm(4), nn.GELU(), nn.Flatten()) for _ in range(5)])
    made = captured(recorded, layers, torch.rand(6, 4))
    worlds = 4
    assert asked.count("aten.layer_norm.default") == asked.count("aten.gelu.default") == worlds
    assert len([node for node in str(made.graph).splitlines() if "LayerNormalization" in node or "layer_norm" in node]) >= 5


def test_what_may_share_memory_with_an_argument_is_told_each_time():
    def forward(self, x):
        a, b = x.reshape(-1), x.reshape(-1)
        a += 1
        return a, b, x.contiguous() is x
    x = torch.rand(6, 4)
    made = DaceModule(Forward(lambda self, x: forward(self, x * 2)))(x)
    want = forward(None, x * 2)
    assert torch.equal(made[0], want[0]) and torch.equal(made[1], want[1]) and made[2] is want[2]


def _calls(function, *args):
    """(result, how many functions of Python it took)."""
    calls, before = [], sys.getprofile()
    sys.setprofile(lambda frame, event, about: calls.append(event) if event == "call" else None)
    try:
        return function(*args), len(calls)
    finally:
        sys.setprofile(before)


def test_five_axes_are_no_image_for_cubic_interpolation():
    with pytest.raises(RuntimeError, match="only supports 4D"):
        DaceModule(Forward(lambda self, x, grid: torch.grid_sampler(x, grid, 2, 0, False)))(torch.rand(1, 1, 2, 2, 2), torch.rand(1, 1, 1, 1, 3))


def test_an_extent_that_a_constant_or_a_branch_tells_is_a_number():
    def shapes(function):
        return captured(recorded, Forward(function), torch.ones(6, 4)).guard.shapes
    table = torch.ones(6, 1)
    assert shapes(lambda self, x: x + table) == [[6, 4]]
    assert shapes(lambda self, x: self.layer(x) if x.shape == (6, 4) else x) == [[6, 4]]


def test_comparisons_are_decided_where_all_extents_from_two_on_agree():
    worlds = Worlds({"s": 6, "t": 6})
    s, t, eight = (Number(expr, worlds) for expr in (symbol("s"), symbol("t"), number(8)))
    assert (symbol("s") - number(1)).signs(worlds.bounds) == {1} and (symbol("s") - number(2)).signs(worlds.bounds) == {0, 1}
    assert s.ge(number_node(2)).value and not s.eq(number_node(1)).value and s.mul(t).ne(number_node(0)).value
    with pytest.raises(Beyond):
        s.lt(eight)
    with pytest.raises(Merge):
        s.eq(t)
    with pytest.raises(Fixed):
        s.ne(number_node(6))
    with pytest.raises(Beyond) as different:
        s.eq(eight)
    assert not isinstance(different.value, Fixed)


def number_node(value):
    return Number(number(value), None)


def test_an_extent_is_the_polynomial_that_its_values_tell():
    worlds = Worlds({"s": 6, "t": 5})
    for expr in (symbol("s") * number(3) + number(2), symbol("s") * symbol("t"), symbol("t") * symbol("t") * number(4)):
        assert worlds.fitted(tuple([expr.at(values) for values in worlds.values])).node.expr == expr
    longer = worlds.int_of(symbol("t") + number(2)).node.expr  # as keys that attention adds
    assert worlds.fitted(tuple([values["s"] * (values["t"] + 2) for values in worlds.values])).node.expr == symbol("s") * longer
    joined = symbol("s") * number(4) + symbol("t") * number(2)  # as twice the one behind the other
    for expr in (symbol("s") + symbol("t"), joined, joined * number(3) + number(5)):
        assert worlds.fitted(tuple([expr.at(values) for values in worlds.values])).node.expr == expr
    with pytest.raises(Beyond):
        worlds.fitted(tuple([values["s"] // 2 for values in worlds.values]))
    assert str(Polynomial({("s",): 2, (): 1})) == "2*s + 1" and issubclass(Fixed, Beyond)


def test_an_error_of_forward_is_raised_as_it_is():
    def fails(self, x):
        raise KeyError("mine")
    with pytest.raises(KeyError, match="mine"):
        captured(recorded, Forward(fails), torch.ones(6, 4))


FIRST_CALL = """
import sys, torch
from dcml.pytorch import DaceModule
layers = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Mish(), torch.nn.Flatten(), torch.nn.Linear(64, 5)
model = DaceModule(torch.nn.Sequential(*layers), backward=True)
torch.nn.functional.cross_entropy(model(torch.randn(2, 3, 6, 6)), torch.tensor([1, 2])).backward()
print([name for name in ("sympy", "torch._dynamo") if name in sys.modules])
"""


def test_a_first_call_loads_neither_sympy_nor_dynamo(tmp_path):
    told = subprocess.run([sys.executable, "-c", FIRST_CALL], capture_output=True, text=True, check=True,
                          env={**os.environ, "DCML_CACHE": str(tmp_path)})
    assert told.stdout.strip() == "[]"


def test_what_forward_changed_before_it_went_beyond_is_as_it_was():
    cache = {}

    def remembers(self, x):
        if "table" not in cache:
            cache["table"] = torch.ones(4)
        try:
            return x * 2 * cache["table"] if x.shape[0] // 2 > 2 else -x
        except Exception:  # what recording ends with is not an error of forward
            return x

    with pytest.raises(Beyond):
        captured(recorded, Forward(remembers), torch.ones(6, 4))
    assert not cache


def test_an_operator_made_of_others_may_be_registered_at_any_time():
    with torch.library._scoped_library("dcml_tests", "DEF") as library:
        for name in ("doubled", "tripled"):  # the second after torch's table of decompositions was read
            library.define(f"{name}(Tensor x) -> Tensor")
            library.impl(name, lambda x: x * 2 + 1, "CompositeImplicitAutograd")
            function = getattr(torch.ops.dcml_tests, name)
            check(Forward(lambda self, x, f=function: f(self.layer(x))), [torch.randn(3, 4)])


def test_the_first_sizes_of_pictures_have_captures_of_their_own():
    module = Forward(lambda self, x: F.avg_pool2d(x, 3, 2))
    compiled = DaceModule(module)
    for size, captures in ((8, 1), (9, 2), (12, 3), (11, 4), (10, 4), (17, 4)):
        x = torch.randn(2, 3, size, size)
        torch.testing.assert_close(compiled(x), module(x))
        assert len(compiled._captures) == captures
