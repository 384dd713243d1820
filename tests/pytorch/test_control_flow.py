"""torch.cond inside a module, and Python code that branches on values of tensors: results and gradients against eager PyTorch."""
import copy

import pytest
import torch

import dcml
from dcml.pytorch import DaceModule


class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(3, 3), torch.nn.LayerNorm(3)

    def forward(self, x):
        y = torch.cond(x.sum() > 0, lambda x: self.linear(x).sin(), lambda x: self.norm(x) * 2, (x,))
        return y + x


@pytest.mark.parametrize("sign", [1, -1])
def test_the_branch_that_is_taken_gives_value_and_gradients(sign):
    torch.manual_seed(0)
    module = Branches()
    compiled = DaceModule(module, backward=True)
    for extent in (4, 6):
        x = sign * torch.rand(extent, 3)
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        taken = module.linear(a).sin() if sign > 0 else module.norm(a) * 2
        (taken + a).square().sum().backward()
        wanted = [None if p.grad is None else p.grad.clone() for p in module.parameters()]
        module.zero_grad()
        result = compiled(b)
        torch.testing.assert_close(result, taken + a)
        result.square().sum().backward()
        torch.testing.assert_close(b.grad, a.grad, rtol=1e-4, atol=1e-4)
        for p, want in zip(module.parameters(), wanted):
            torch.testing.assert_close(p.grad, torch.zeros_like(p) if want is None else want, rtol=1e-4, atol=1e-4)
        module.zero_grad()


def test_an_infinite_gradient_of_the_other_branch_stays_there():
    class Root(torch.nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, torch.sqrt, lambda x: 3 * x, (x,))
    x = torch.zeros(4, requires_grad=True)
    DaceModule(Root(), backward=True)(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.full((4,), 3.0))


def test_branches_may_hold_branches_and_give_several_results():
    class Nested(torch.nn.Module):
        def forward(self, x):
            def inner(x):
                return torch.cond(x.mean() > 1, lambda x: (x + 1, x - 1), lambda x: (x * 2, x / 2), (x,))
            return torch.cond(x.sum() > 0, inner, lambda x: (-x, x.abs()), (x,))
    compiled = DaceModule(Nested())
    for value in (2.0, 0.5, -1.0):
        x = torch.full((3,), value)
        wanted = ((x + 1, x - 1) if value > 1 else (x * 2, x / 2)) if value > 0 else (-x, x.abs())
        torch.testing.assert_close(compiled(x), wanted)


def test_an_operator_that_is_missing_in_a_branch_is_named():
    class Missing(torch.nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: x + torch.linalg.eigvals(x).real, torch.neg, (x,))
    with pytest.raises(dcml.UnsupportedOpError, match="linalg_eig"):
        DaceModule(Missing())(torch.rand(3, 3))


class Decides(torch.nn.Module):
    """A module that is a function of itself and x."""
    def __init__(self, function, dropout=0.0):
        super().__init__()
        self.linear, self.norm, self.function = torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), function
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, x):
        return self.function(self, self.linear(x))


def _clamped(self, y):
    if not torch.isfinite(y).all():
        y = torch.nan_to_num(y).clamp(-1, 1)
    return y.sin()


def _twice(self, y):
    y = y * 2 if y.sum() > 0 else y - 1
    return y.cos() if y[0, 0] > y[0, 1] else y.sin()


def _halved(self, y):
    while y.abs().max() > 1:
        y = y / 2
    return y.square()


def _of_numbers(self, y):
    n = min(int(y.detach().abs().sum().long()), 3)
    return sum([y * k for k in range(n)], y)


def _raises(self, y):
    if torch.isnan(y).any():
        raise ValueError("not a number")
    return y.exp()


def _by_name(self, y):
    ways = {"way_0": torch.sin, "way_1": torch.cos, "way_2": torch.square}
    return ways[f"way_{y.sum(0).argmax()}"](y)


def _by_attribute(self, y):
    for k in (y.sum(0) > 0).nonzero():
        y = getattr(self, f"linear{k[0]:d}"[:6])(y) * f"{k[0]}".count("1")
    return y


DECIDES = {"text": _by_name, "attribute": _by_attribute, "finite": _clamped, "twice": _twice, "while": _halved, "numbers": _of_numbers,
           "equal": lambda self, y: y * 2 if torch.equal(y.sum() > 0, torch.tensor(True)) else y,
           "close": lambda self, y: y * 2 if torch.allclose(y.sum().sign(), torch.ones([]), rtol=1e-3) else y,
           "in place": lambda self, y: y.add_(1).mul_(2) if bool((y > 0).any()) else y.sub_(1)}


@pytest.mark.parametrize("name", DECIDES)
def test_each_way_that_values_decide_gives_values_and_gradients(name):
    torch.manual_seed(0)
    module = Decides(DECIDES[name])
    torch.nn.init.eye_(module.linear.weight)
    torch.nn.init.zeros_(module.linear.bias)
    compiled = DaceModule(module, backward=True)
    for x in (torch.rand(4, 3), -torch.rand(4, 3), torch.full((4, 3), torch.inf), torch.rand(5, 3), 4 * torch.randn(6, 3)):
        x.requires_grad_()
        given = [x, *module.linear.parameters()]
        got, want = compiled(x), module(x)
        torch.testing.assert_close(got, want, equal_nan=True)
        for g, w in zip(*[torch.autograd.grad(y.square().sum(), given) for y in (got, want)]):
            torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-4, equal_nan=True)
    assert 2 <= len(compiled._captures) <= 8
    made = len(compiled._captures)
    for x in 3 * [torch.rand(4, 3), -torch.rand(4, 3)]:
        torch.testing.assert_close(compiled(x), module(x))
    assert len(compiled._captures) == made


def test_an_attempt_that_values_turn_down_changes_nothing():
    def normed(self, y):
        y = self.norm(y)
        return y * 2 if y[0, 0] > 0 else y
    module = Decides(normed)
    eager, compiled = copy.deepcopy(module), DaceModule(module, backward=True)
    x = torch.rand(4, 3)
    for sign in (1, -1, -1, 1, 1):
        torch.testing.assert_close(compiled(sign * x), eager(sign * x))
    assert module.norm.num_batches_tracked == 5
    torch.testing.assert_close(module.norm.running_var, eager.norm.running_var)


def test_all_attempts_of_a_call_draw_the_same_random_numbers():
    def drops(self, y):
        y = self.dropout(y)
        return (y, y) if y.sum() > 0 else (y, -y)
    module = Decides(drops, dropout=0.5)
    compiled, signs = DaceModule(module), []
    for _ in range(40):
        y, z = compiled(torch.ones(4, 3) - 0.5)
        torch.testing.assert_close(z, y if y.sum() > 0 else -y)
        signs.append(bool(y.sum() > 0))
    assert len(compiled._captures) == 1 + (len(set(signs)) > 1)


def test_what_values_decide_may_raise_an_error_of_forward():
    compiled = DaceModule(Decides(_raises))
    compiled(torch.ones(4, 3))
    with pytest.raises(ValueError, match="not a number.*test_control_flow.py") as raised:
        compiled(torch.full((4, 3), torch.nan))
    assert isinstance(raised.value, dcml.ModelError)
    compiled(torch.ones(4, 3))


def test_lists_of_counts_decide_how_tensors_are_split_and_repeated():
    def parts(self, y):
        counts = y[:, 2].detach().long()
        places = torch.repeat_interleave(torch.arange(len(y)), counts)
        made = [part.softmax(0) for part in y[places].split(counts.tolist())] if counts.sum() > 2 else [y]
        return torch.cat(made) + y.repeat_interleave(counts, 0)
    module = Decides(parts)
    torch.nn.init.eye_(module.linear.weight)
    torch.nn.init.zeros_(module.linear.bias)
    compiled = DaceModule(module, backward=True)
    for counts in ([2, 1], [1, 3], [2, 1], [1, 1]):
        x = torch.cat([torch.randn(2, 2), torch.tensor(counts)[:, None] + 0.5], 1).requires_grad_()
        got, want = compiled(x), module(x)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(*[torch.autograd.grad(y.square().sum(), x)[0] for y in (got, want)])
    assert len(compiled._captures) == 3


def test_a_condition_that_many_layers_ask_anew_is_one_until_a_tensor_changes():
    def layers(self, y):
        limit, scale = y.abs().sum(0), torch.ones(2)
        for _ in range(70):
            y = y * 0.99 if limit.mean() > 0 and int(limit.argmax()) < 3 else y + 1
        if scale.sum() > 1:
            scale.sub_(1)
        return y if scale.sum() > 1 else -y
    module = Decides(layers)
    compiled = DaceModule(copy.deepcopy(module))
    for x in (torch.randn(4, 3), torch.zeros(4, 3)):
        torch.testing.assert_close(compiled(x), module(x))
    assert all(len(one.capture.decided) == 4 for some in compiled._captures._captures.values() for one in some)


def test_a_way_that_cannot_be_finished_is_left_for_the_other():
    def chosen(self, y):
        places = y[:, 0].detach().long()
        if (places >= len(y)).any():
            places = places.clamp(max=len(y) - 1)
        return y[places] * 2
    module = Decides(chosen)
    torch.nn.init.eye_(module.linear.weight)
    torch.nn.init.zeros_(module.linear.bias)
    compiled = DaceModule(module, backward=True)
    for most in (2.5, 7.5, 2.5, 7.5):
        x = torch.rand(4, 3) + torch.tensor([[0.5], [1.5], [2.0], [most - 1]])
        torch.testing.assert_close(compiled(x), module(x))
    assert len(compiled._captures) == 2
    with pytest.raises(dcml.Error, match="out of range"):
        compiled(x - 50)


@pytest.mark.parametrize("function", [lambda self, y: y * int(y.detach().abs().sum().clamp(max=1e9).long()).bit_length(),
                                      lambda self, y: y * sum(bool(one > 0) for one in y.flatten())])
def test_more_than_a_few_ways_are_refused_with_the_line(function):
    compiled = DaceModule(Decides(function))
    with pytest.raises(dcml.UnsupportedOpError, match=r"more than 16 ways.*torch\.compile.*move the line.*test_control_flow\.py:\d+"):
        for k in range(200):
            compiled(torch.randn(4, 3) * 2.0 ** k)
    assert len(compiled._captures) == 16


def test_a_branch_on_nothing_but_random_numbers_is_refused_unless_it_is_always_the_same():
    def dropped(chance):
        return DaceModule(Decides(lambda self, y: y * 2 if torch.rand([]) < chance else y))
    x = torch.rand(4, 3)
    for chance in (0.0, 1.0):
        compiled = dropped(chance)
        torch.testing.assert_close(compiled(x), compiled.model(x))
    with pytest.raises(dcml.UnsupportedOpError, match="branches on values.*test_control_flow.py"):
        dropped(0.5)(x)
