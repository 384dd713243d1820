"""Extents that depend on values: places where a mask holds, and counts."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dcml
from dcml.pytorch import DaceModule


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.fc = function, nn.Linear(4, 4)

    def forward(self, *args):
        return self.function(self.fc, *args)


def expert(fc, x):
    out = torch.zeros_like(x)
    for k in range(2):
        chosen, = torch.where(x[:, 0] > k * 0.3)
        out = out.index_add(0, chosen, fc(x[chosen]) * (k + 1))
    return out


def masked_rows(fc, x):
    mask, out = x[:, 0] > 0, x * 2
    out[mask] = fc(x[mask])
    return out, x[mask, 1], x[None, mask], x[mask].shape[0]


def masked_loss(fc, x):
    mask = x[:, 0] > 0
    return F.cross_entropy(fc(x)[mask], (x[:, 1] > 0).long()[mask]), F.nll_loss(x[mask], (x[:, 1] > 0).long()[mask])


def mask_again(fc, x):
    out = x * 2
    out[out > 0] = out[out > 0].sin()
    out[:, x[0] > 0] = fc(x)[:, x[0] > 0]
    return out


MASKS = {
    "a mask computed twice": mask_again,
    "where": lambda fc, x: torch.where(x > 0),
    "nonzero": lambda fc, x: (x > 0).nonzero(),
    "argwhere": lambda fc, x: torch.argwhere(x > 0.5),
    "elements": lambda fc, x: x[x > 0].tanh(),
    "rows": lambda fc, x: fc(x[x[:, 0] > 0]).tanh(),
    "columns": lambda fc, x: x[:, x[0] > 0] * 2,
    "mean": lambda fc, x: (x[x > 0].mean(), x[x > 0].sum() / (x > 0).nonzero().shape[0]),
    "none": lambda fc, x: (x[x > 100].sum() + x.sum(), x[x > 100]),
    "masked_select": lambda fc, x: x.masked_select(x > 0),
    "two masks": lambda fc, x: x[x > 0].sum() * x[x < 0].sin(),
    "detached": lambda fc, x: (x[x > 0].detach().sum(), x[x > 0]),
    "masked_select of rows": lambda fc, x: fc(x).masked_select(x[:, :1] > 0),
    "sorted": lambda fc, x: fc(x)[x[:, 0] > 0].sort(0).values,
    "best": lambda fc, x: fc(x)[x[:, 1] > -9].topk(int((x[:, 1] > -9).sum()), dim=0).values,
    "a count by int()": lambda fc, x: fc(x)[:int((x[:, 0] > 0).sum())],
    "a number": lambda fc, x: fc(x) * x.sum().item() + float(x[0, 0]),
    "a double": lambda fc, x: x.double() / x.double().sum().item(),
    "many numbers": lambda fc, x: fc(x)[:, 0] * x[0].tolist()[2],
    "joined": lambda fc, x: torch.cat([x[x > 0], x[x < 0].square()]),
    "twice": lambda fc, x: fc(x)[x[:, 0] > -0.5][(fc(x)[x[:, 0] > -0.5] > 0).any(1)],
    "set from the second on": lambda fc, x: torch.slice_scatter(x[x[:, 0] > -9], fc(x[x[:, 0] > -9])[:-1], 0, 1),
    "set from the second last on": lambda fc, x: torch.slice_scatter(x[x[:, 0] > -9], fc(x)[:2], 0, -2),
    "experts": expert, "masked rows": masked_rows, "masked loss": masked_loss,
}


@pytest.mark.parametrize("what", MASKS)
def test_places_of_a_mask(what):
    torch.manual_seed(0)
    plain = Calls(MASKS[what])
    compiled = DaceModule(plain, backward=True)
    for n in (8, 8, 9, 12, 9):
        x = torch.randn(n, 4).requires_grad_()
        want, got = (m(x) for m in (plain, compiled))
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        roots = [[t for t in (y if isinstance(y, tuple) else (y,)) if isinstance(t, torch.Tensor)] for y in (want, got)]
        assert [t.requires_grad for t in roots[0]] == [t.requires_grad for t in roots[1]]
        assert [t.stride() for t in roots[0] if t.numel()] == [t.stride() for t in roots[1] if t.numel()]
        sums = [sum(t.square().sum() for t in r if t.requires_grad) for r in roots]
        if isinstance(sums[0], torch.Tensor):
            leaves = [x, *plain.parameters()]
            found = [torch.autograd.grad(s, leaves, allow_unused=True, materialize_grads=True) for s in sums]
            torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-4)
    assert len(compiled._captures) == 1


COUNTS = {
    "bincount": lambda i, w: torch.bincount(i),
    "a least length": lambda i, w: torch.bincount(i, minlength=5),
    "weights": lambda i, w: torch.bincount(i, w, minlength=5),
    "weights in float64": lambda i, w: i.bincount(w.double()),
    "used": lambda i, w: w / torch.bincount(i, minlength=w.shape[0])[:w.shape[0]].clamp(min=1),
}


@pytest.mark.parametrize("what", COUNTS)
def test_bincount(what):
    compiled = DaceModule(Calls(lambda fc, *args: COUNTS[what](*args)))
    for most, n in ((3, 9), (5, 9), (7, 9), (7, 4), (2, 5)):
        i, w = torch.randint(0, most, (n,)), torch.rand(n)
        torch.testing.assert_close(compiled(i, w), COUNTS[what](i, w))


def test_a_count_whose_length_what_follows_tells():
    """torch then takes the length for known, though it is found at run time."""
    plain = Calls(lambda fc, i, x: fc(x) / torch.bincount(i, minlength=x.shape[0]).clamp(min=1).unsqueeze(1))
    compiled = DaceModule(plain, backward=True)
    for n in (3, 3, 4):
        i, x = torch.randint(0, n, (9,)), torch.randn(n, 4)
        torch.testing.assert_close(compiled(i, x), plain(i, x))


def test_bincount_refuses_what_torch_refuses():
    compiled = DaceModule(Calls(lambda fc, i: torch.bincount(i, minlength=3)))
    assert compiled(torch.zeros(0, dtype=torch.int64)).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="non-negative"):
        compiled(torch.tensor([1, -1]))


def lengths(*most):
    return [torch.randint(1, m, (4,)) for m in most]


SIZES = {
    "slice": lambda fc, n, x: fc(x)[:n[0].item()],
    "longest": lambda fc, n, x: fc(x)[:, :n.max()].sum(1),
    "mask of lengths": lambda fc, n, x: torch.arange(n.max().item()) < n.unsqueeze(1),
    "split": lambda fc, n, x: [part.sum(0) for part in x.repeat(8, 1)[:n.sum()].split(n.tolist())],
    "repeated": lambda fc, n, x: torch.repeat_interleave(fc(x), n, dim=0),
    "repeated places": lambda fc, n, x: torch.repeat_interleave(n),
    "zeros": lambda fc, n, x: torch.zeros(n[1].item(), 4) + fc(x)[0],
    "numbered": lambda fc, n, x: torch.arange(int(n[1]) + 2).float() * x.sum(),
    "one_hot": lambda fc, n, x: torch.nn.functional.one_hot(n),
    "narrow": lambda fc, n, x: x.repeat(8, 1).narrow(0, n[0].item(), 2),
    "returned": lambda fc, n, x: (n.sum().item(), x.sum()),
    "unique": lambda fc, n, x: torch.unique(n, return_inverse=True, return_counts=True),
    "unique in rows": lambda fc, n, x: torch.unique(n.view(2, 2), return_inverse=True),
    "unique rows": lambda fc, n, x: torch.unique(n.view(2, 2) > 2, dim=0, return_inverse=True),
    "runs": lambda fc, n, x: torch.unique_consecutive(n // 3, return_inverse=True, return_counts=True),
    "runs of rows": lambda fc, n, x: torch.unique_consecutive(n.view(4, 1) > 3, return_counts=True, dim=0),
    "runs in rows": lambda fc, n, x: torch.unique_consecutive(n.view(2, 2) // 3, return_inverse=True),
}


@pytest.mark.parametrize("what", SIZES)
def test_extents_that_numbers_of_tensors_tell(what):
    torch.manual_seed(0)
    plain = Calls(SIZES[what])
    compiled = DaceModule(plain, backward=True)
    for n in lengths(5, 5, 7, 3):
        x = torch.randn(4, 4).requires_grad_()
        want, got = (m(n, x) for m in (plain, compiled))
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        first = [y[0] if isinstance(y, (tuple, list)) else y for y in (want, got)]
        if isinstance(first[0], torch.Tensor) and first[0].requires_grad:
            leaves = [x, *plain.parameters()]
            found = [torch.autograd.grad(y.square().sum(), leaves, allow_unused=True, materialize_grads=True) for y in first]
            torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-4)
    assert len(compiled._captures) == 1


@pytest.mark.parametrize("what", ("elements", "rows", "mean", "experts", "a number"))
def test_second_derivatives_where_extents_depend_on_values(what):
    torch.manual_seed(0)
    plain = Calls(MASKS[what])
    compiled = DaceModule(plain, backward=True)
    for n in (6, 9):
        x = torch.randn(n, 4).requires_grad_()
        found = []
        for module in (plain, compiled):
            y = module(x)
            slope, = torch.autograd.grad((y[0] if isinstance(y, tuple) else y).sin().sum(), x, create_graph=True)
            found.append(torch.autograd.grad(slope.square().sum(), [x, *plain.parameters()], allow_unused=True, materialize_grads=True))
        torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-4)


def test_what_was_taken_for_granted_of_a_number_is_checked():
    compiled = DaceModule(Calls(lambda fc, n, x: x[:6].split(n.tolist())))
    assert [len(part) for part in compiled(torch.tensor([2, 4]), torch.rand(6, 2))] == [2, 4]
    for n in ([2, 5], [7, -1]):
        with pytest.raises((dcml.Error, ValueError)):
            compiled(torch.tensor(n), torch.rand(6, 2))
    with pytest.raises(ValueError, match="negative"):
        DaceModule(Calls(lambda fc, n: torch.repeat_interleave(n)))(torch.tensor([1, -1]))


def test_more_values_than_places_of_a_mask_are_an_error():
    def unlike(fc, x):
        out = x.clone()
        out[x > 0] = x[x > -1]
        return out
    with pytest.raises(dcml.ShapeError, match="expected"):
        DaceModule(Calls(unlike))(torch.randn(6, 4))


@pytest.mark.parametrize("check", (lambda x: torch._check_tensor_all(x < 9, lambda: "too large"), lambda x: torch._check((x < 9).all().item())),
                         ids=["of each element", "of an item"])
def test_what_forward_asserts_of_a_tensor_is_checked_at_each_call(check):
    compiled = DaceModule(Calls(lambda fc, x: (check(x), fc(x))[1]))
    x = torch.ones(2, 4)
    assert torch.allclose(compiled(x), compiled.model(x))
    with pytest.raises(ValueError, match="asserts of a tensor does not hold.*test_counted.py"):
        compiled(10 * x)


def found(fc, x, check):
    places = (x[:, 0] > 0).nonzero()
    check(places.size(0))
    return places + 1


@pytest.mark.parametrize("check", (lambda n: torch._check(n == 2), lambda n: torch._check(n <= 2)), ids=["equal", "at most"])
def test_what_forward_asserts_of_an_extent_that_values_tell_is_checked_at_each_call(check):
    compiled = DaceModule(Calls(lambda fc, x: found(fc, x, check)))
    x = torch.ones(5, 4)
    x[2:] = -1
    assert compiled(x).flatten().tolist() == [1, 2]
    with pytest.raises(ValueError, match="does not"):
        compiled(torch.ones(5, 4))


def test_a_number_that_is_asserted_to_be_an_extent_is_that_extent():
    def filled(fc, x, n):
        n = n.item()
        torch._check(n // 2 == 3)
        return x + x.new_ones(n), torch.arange(n)
    x = torch.randn(6)
    compiled = DaceModule(Calls(filled))
    assert torch.equal(compiled(x, torch.tensor(6))[0], x + 1)
    with pytest.raises(ValueError, match="does not"):
        compiled(x, torch.tensor(7))


def test_an_arange_by_a_number_that_is_asserted_has_known_parts():
    compiled = DaceModule(Calls(lambda fc, n: torch.ops.aten.split_with_sizes.default(torch.arange(n.item()), [2, 3])))
    assert [part.tolist() for part in compiled(torch.tensor([5]))] == [[0, 1], [2, 3, 4]]
    with pytest.raises(ValueError, match="does not"):
        compiled(torch.tensor([6]))


def test_a_boolean_that_a_tensor_tells_is_a_number():
    module = Calls(lambda fc, x: fc(x) * (x > 0).any().item() + torch.full((4,), (x > 0).all().item()) * int((x > 0.9).any()))
    compiled = DaceModule(module)
    for x in (torch.rand(3, 4), -torch.rand(3, 4)):
        torch.testing.assert_close(compiled(x), module(x))


def test_a_fraction_that_python_counts_by_is_refused_with_two_ways_out():
    with pytest.raises(dcml.UnsupportedOpError, match="branches on values.*torch.compile.*move the line.*test_counted.py"):
        DaceModule(Calls(lambda fc, x: [x for _ in range(int(x.sum()))]))(torch.rand(5))


def test_branches_on_values_may_stand_before_extents_that_depend_on_them():
    def selected(fc, x):
        if x.max() >= 50:
            raise ValueError("too large")
        y = fc(x) * 2 if x.sum() > 0 else fc(x)
        return y[x > 0.5]
    module = Calls(selected)
    compiled = DaceModule(module, backward=True)
    for x in (torch.rand(3, 4), -torch.rand(3, 4), torch.rand(5, 4), torch.rand(3, 4)):
        got, want = compiled(x), module(x)
        torch.testing.assert_close(got, want)
        for g, w in zip(*[torch.autograd.grad(y.sum(), [*module.parameters()]) for y in (got, want)]):
            torch.testing.assert_close(g, w)
    assert len(compiled._captures) == 2
    with pytest.raises(ValueError, match="too large"):
        compiled(100 * torch.rand(3, 4))


def repeated(x, n):
    """Python needs the number itself."""
    for _ in range(int(n)):
        x = x * 1.5
    return x


BESIDE_NUMBERS = {
    "nonzero": lambda x, k: [(x > 0).nonzero(), x.nonzero(), k[0].nonzero(), torch.argwhere(x > 0.5), *torch.where(x > 0)],
    "masks": lambda x, k: [x[x > 0], x[k > 0].tanh(), x[:, x[0] > 0], x[k > 1, 2], x[None, k > 1], x[x > 100]],
    "masked_select": lambda x, k: [x.masked_select(x > 0), x.masked_select(k[:, None] > 1)],
    "unique": lambda x, k: [*torch.unique(k, return_inverse=True, return_counts=True), torch.unique(x[:, :2] > 0),
                            *torch.unique_consecutive(k, return_inverse=True, return_counts=True)],
    "a loop over unique": lambda x, k: [x[k == u].sum() for u in torch.unique(k)],
    "one_hot": lambda x, k: [F.one_hot(k)],
    "repeated": lambda x, k: [x.repeat_interleave(k, 0), x.repeat_interleave(k[0]), torch.repeat_interleave(k)],
    "parts": lambda x, k: [x.narrow(1, k.max(), 1), *x.tensor_split(k[:2], 1), *x.tensor_split(k[0])],
    "a tensor of tensors": lambda x, k: [torch.tensor([k[0], 2, k[1]]), torch.tensor([[x[0, 0], k[0]], [True, 3]]),
                                         torch.tensor((x[1, 1],), dtype=torch.float64)],
}


@pytest.mark.parametrize("what", BESIDE_NUMBERS)
def test_extents_that_values_tell_where_python_needs_numbers_as_well(what):
    torch.manual_seed(0)
    module = Calls(lambda fc, x, k: [repeated(fc(x), k.max()), *BESIDE_NUMBERS[what](x, k)])
    compiled = DaceModule(module, backward=True)
    for k in ([2, 1, 3, 2], [2, 1, 3, 2], [1, 1, 0, 3]):
        x = torch.randn(4, 4).requires_grad_()
        got, want = compiled(x, torch.tensor(k)), module(x, torch.tensor(k))
        torch.testing.assert_close(got, want)
        for g, w in zip(got, want):
            assert g.requires_grad == w.requires_grad
            if g.requires_grad:
                torch.testing.assert_close(*[torch.autograd.grad(y.square().sum(), x, retain_graph=True) for y in (g, w)])
