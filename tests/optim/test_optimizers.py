"""dcml.optim against torch.optim: the same numbers, the same state, and clear refusals."""
import copy
import itertools

import pytest

torch = pytest.importorskip("torch")

import dcml  # noqa: E402
from dcml import optim  # noqa: E402
from dcml.optim import fused  # noqa: E402

SHAPES = [(3, 4), (7,), (), (2, 3, 4, 5), (0, 3)]
OPTIONS = {
    "Adam": [{}, {"weight_decay": 0.1, "betas": (0.8, 0.99)}, {"amsgrad": True, "maximize": True, "eps": 1e-3}, {"lr": torch.tensor(0.01, dtype=torch.float64)}],
    "AdamW": [{}, {"weight_decay": 0.1, "amsgrad": True}, {"maximize": True, "lr": 0.02}],
    "SGD": [{"lr": 0.1}, {"lr": 0.1, "momentum": 0.9}, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
            {"lr": 0.1, "momentum": 0.8, "dampening": 0.5, "maximize": True}],
}
CASES = [(name, k) for name in OPTIONS for k in range(len(OPTIONS[name]))]
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 4e-3}


def params(shapes=SHAPES, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.nn.Parameter(torch.randn(s, generator=generator, dtype=torch.float64).to(dtype)) for s in shapes]


def pair(name, options, **kind):
    """Ours and torch's, over equal parameters."""
    a, b = params(**kind), params(**kind)
    return (a, getattr(optim, name)(a, **options)), (b, getattr(torch.optim, name)(b, foreach=False, **options))


def fill(*lists, seed=1):
    generator = torch.Generator().manual_seed(seed)
    for group in zip(*lists):
        g = torch.randn(group[0].shape, generator=generator, dtype=torch.float64).to(group[0].dtype)
        for p in group:
            p.grad = g.clone()


def agree(a, b, tolerance=1e-5):
    for p, q in zip(a, b, strict=True):
        torch.testing.assert_close(p, q, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name, k", CASES)
def test_steps_are_those_of_torch(name, k, dtype):
    (a, ours), (b, theirs) = pair(name, OPTIONS[name][k], dtype=dtype)
    for seed in range(3):
        fill(a, b, seed=seed)
        ours.step(), theirs.step()
    agree(a, b, TOLERANCE[dtype])


@pytest.mark.parametrize("name, k", CASES)
@pytest.mark.parametrize("back", [False, True], ids=["from torch", "to torch"])
def test_state_goes_over_in_the_middle_of_training(name, k, back):
    (a, ours), (b, theirs) = pair(name, OPTIONS[name][k])
    for seed in range(4):
        fill(a, b, seed=seed)
        if seed == 2 and back:
            theirs.load_state_dict(copy.deepcopy(ours.state_dict()))
        elif seed == 2:
            ours.load_state_dict(copy.deepcopy(theirs.state_dict()))
        ours.step(), theirs.step()
    agree(a, b)
    for p, q in zip(a, b):
        assert ours.state[p].keys() == theirs.state[q].keys()
        for key in ours.state[p].keys() - {"momentum_buffer"}:
            torch.testing.assert_close(ours.state[p][key], theirs.state[q][key], rtol=1e-5, atol=1e-5)
    assert ours.state_dict()["param_groups"][0].keys() == theirs.state_dict()["param_groups"][0].keys()


@pytest.mark.parametrize("name, k", [("Adam", 2), ("SGD", 3)])
def test_parameters_without_a_gradient_are_left_out_and_count_their_own_steps(name, k):
    (a, ours), (b, theirs) = pair(name, OPTIONS[name][k])
    for seed, missing in enumerate([(), (0, 2), (1,), ()]):
        fill(a, b, seed=seed)
        for j in missing:
            a[j].grad = b[j].grad = None
        ours.step(), theirs.step()
    agree(a, b)


def test_groups_schedulers_and_later_groups():
    a, b = params(), params()
    made = []
    for kind, p in (optim.Adam, a), (torch.optim.Adam, b):
        optimizer = kind([{"params": p[:2], "lr": 0.1}, {"params": p[2:4], "weight_decay": 0.1}], lr=0.01)
        made.append((optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)))
    for seed in range(4):
        fill(a, b, seed=seed)
        for (optimizer, scheduler), p in zip(made, (a, b)):
            if seed == 2:
                optimizer.add_param_group({"params": p[4:], "amsgrad": True})
            optimizer.step()
            scheduler.step()
    agree(a, b)


def test_a_learning_rate_compiles_nothing():
    (a, ours), (b, theirs) = pair("Adam", {})
    before = None
    for lr in 0.1, 0.2, 0.3:
        fill(a, b)
        for optimizer in ours, theirs:
            optimizer.param_groups[0]["lr"] = lr
            optimizer.step()
        before = before or fused._function.cache_info().misses
    assert fused._function.cache_info().misses == before
    agree(a, b)


def test_closures_run_with_gradients_and_give_the_loss():
    p = torch.nn.Parameter(torch.tensor([2.0]))
    optimizer = optim.SGD([p], lr=0.25)

    def closure():
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 4 and p.item() == 1


@pytest.mark.parametrize("turn", list(itertools.product(*[[lambda t: t, lambda t: t.contiguous(memory_format=torch.channels_last), lambda t: t.mT.contiguous().mT]] * 2)),
                         ids=[f"{a} {b}" for a in ("plain", "channels last", "turned") for b in ("plain", "channels last", "turned")])
def test_parameters_and_gradients_may_lie_in_any_order(turn):
    (a, ours), (b, theirs) = pair("Adam", {}, shapes=[(2, 3, 4, 5), (6,)])
    for seed in range(3):
        fill(a, b, seed=seed)
        a[0].data, a[0].grad = turn[0](a[0].data), turn[1](a[0].grad)
        ours.step(), theirs.step()
    agree(a, b)


def test_a_parameter_with_gaps_and_one_of_complex_numbers():
    whole, other = torch.zeros(4, 6), torch.zeros(4, 6)
    made = []
    for kind, base in (optim.Adam, whole), (torch.optim.Adam, other):
        p, c = torch.nn.Parameter(base[:, ::2]), torch.nn.Parameter(torch.ones(3, dtype=torch.complex64))
        made.append((p, c, kind([p, c], lr=0.1)))
    for _ in range(2):
        for p, c, optimizer in made:
            p.grad, c.grad = torch.arange(12.0).reshape(4, 3), torch.tensor([1j, 2, 1 - 1j])
            optimizer.step()
    agree(made[0][:2], made[1][:2])
    assert not whole[:, 1::2].any()


def test_autograd_notices_that_parameters_have_changed():
    p = torch.nn.Parameter(torch.ones(3))
    loss = (p * p).sum()
    p.grad = torch.ones(3)
    optim.SGD([p], lr=0.1).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_gradients_are_scaled_back_by_a_scaler():
    p = torch.nn.Parameter(torch.zeros(2))
    optimizer, scaler = optim.SGD([p], lr=1.0, fused=True), torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale((p * torch.tensor([1.0, 2.0])).sum()).backward()
    scaler.step(optimizer)
    assert p.tolist() == [-1, -2]


def test_more_parameters_than_slots_and_a_copy_of_the_optimizer():
    (a, ours), (b, theirs) = pair("Adam", {}, shapes=[(k % 3 + 1,) for k in range(fused.MOST_SLOTS + 5)])
    fill(a, b)
    ours.step(), theirs.step()
    agree(a, b)
    twin = copy.deepcopy(ours)
    for p in twin.param_groups[0]["params"]:
        p.grad = torch.ones_like(p)
    twin.step()
    assert {s["step"].item() for s in twin.state.values()} == {2} and {s["step"].item() for s in ours.state.values()} == {1}


def test_slots_are_few_and_enough():
    counts = [fused._slots(n) for n in range(1, 200)]
    assert all(n <= s <= 1.5 * n for n, s in enumerate(counts, 1)) and len(set(counts)) < 17


def with_gradient(p, g):
    p = torch.nn.Parameter(p)
    p.grad = g
    return [p]


@pytest.mark.parametrize("make, error, says", [
    (lambda: optim.Adam(params(), capturable=True), dcml.UnsupportedOpError, "capturable"),
    (lambda: optim.SGD(params(), lr=0.1, differentiable=True), dcml.UnsupportedOpError, "differentiable"),
    (lambda: optim.Adam(with_gradient(torch.ones(2), torch.ones(2).to_sparse())).step(), RuntimeError, "sparse"),
    (lambda: optim.SGD(with_gradient(torch.ones(2), torch.ones(2).to_sparse()), lr=0.1).step(), dcml.UnsupportedOpError, "sparse"),
    (lambda: optim.Adam(with_gradient(torch.ones(2, device="meta"), torch.ones(2, device="meta"))).step(), dcml.DeviceError, "meta"),
    (lambda: optim.Adam(with_gradient(torch.ones(2, dtype=torch.float8_e5m2), torch.ones(2, dtype=torch.float8_e5m2))).step(), dcml.DTypeError, "float8"),
    (lambda: optim.Adam([*with_gradient(x := torch.ones(4), torch.ones(4)), *with_gradient(x[1:], torch.ones(3))]).step(), dcml.ValueError_, "overlaps"),
], ids=["capturable", "differentiable", "sparse", "sparse SGD", "meta", "float8", "overlap"])
def test_what_cannot_be_done_is_refused(make, error, says):
    with pytest.raises(error, match=says):
        make()


def test_a_refused_step_changes_nothing():
    good, bad = with_gradient(torch.ones(2), torch.ones(2)), with_gradient(torch.ones(2), torch.ones(2).to_sparse())
    optimizer = optim.SGD(good + bad, lr=0.1, momentum=0.9)
    with pytest.raises(dcml.UnsupportedOpError):
        optimizer.step()
    assert good[0].tolist() == [1, 1] and not optimizer.state[good[0]]


def test_the_same_steps_give_the_same_bits():
    def run():
        (a, ours), _ = pair("AdamW", {"weight_decay": 0.1}, shapes=[(300, 301), (5,)])
        for seed in range(3):
            fill(a, seed=seed)
            ours.step()
        return a
    assert all(torch.equal(p, q) for p, q in zip(run(), run()))
