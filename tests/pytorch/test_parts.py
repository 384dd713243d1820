"""The backward pass in parts: gradients are in place, and hooks on them have run, before later ones are computed."""
import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dcml.pytorch import DaceModule

WIDTH, LAYERS = 512, 4  # a weight is 1 MiB: each layer is a part of its own


def network():
    torch.manual_seed(0)
    return nn.Sequential(*[layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())])


def watched(model, events):
    """After a forward: each step of the backward pass appends 'step' to events."""
    events.clear()
    model._captures.last.last_function.observe(lambda label, begins: events.append("step") if begins else None)


@pytest.fixture
def x():
    return torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(1))


def test_hooks_run_between_the_parts(x):
    net = network()
    model, events = DaceModule(net, backward=True), []
    y = model(x)
    for name, p in net.named_parameters():
        p.register_post_accumulate_grad_hook(lambda p, name=name: events.append(name))
    watched(model, events)
    y.sum().backward()
    names = [e for e in events if e != "step"]
    assert names[::2] == [f"{2 * k}.weight" for k in reversed(range(LAYERS))]
    assert events.index("6.weight") < events.index("2.weight") and "step" in events[events.index("6.weight"):]
    assert events[events.index("2.weight"):].count("step") < events[events.index("6.weight"):].count("step")


def test_gradients_are_those_of_eager_also_when_kept_and_repeated(x):
    net = network()
    other = copy.deepcopy(net)
    model, (a, b) = DaceModule(net, backward=True), (x.clone().requires_grad_(), x.clone().requires_grad_())
    y, z = model(a), other(b)
    for _ in range(2):
        y.square().sum().backward(retain_graph=True)
        z.square().sum().backward(retain_graph=True)
    torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)
    for p, q in zip(net.parameters(), other.parameters()):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layer", [0, 2, 6])
def test_some_gradients_alone(x, layer):
    net = network()
    y = DaceModule(net, backward=True)(x).square().sum()
    want, = torch.autograd.grad(net(x).square().sum(), [net[layer].weight])
    for _ in range(2):
        found, = torch.autograd.grad(y, [net[layer].weight], retain_graph=True)
        torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-4)


def test_an_optimizer_in_the_backward_pass(x):
    """Each weight is changed as soon as its gradient is there: the parts before have read it, later ones do not."""
    losses = []
    for wrap in (lambda net: net, lambda net: DaceModule(net, backward=True)):
        net = network()
        model = wrap(net)
        for p in net.parameters():
            optimizer = torch.optim.SGD([p], 0.05)
            p.register_post_accumulate_grad_hook(lambda p, o=optimizer: o.step() or o.zero_grad())
        for _ in range(4):
            loss = model(x).square().mean()
            loss.backward()
            losses.append(loss.item())
    assert losses[3] < losses[0]
    assert losses[:4] == pytest.approx(losses[4:], rel=1e-4)


def test_what_a_later_part_reads_must_stay(x):
    net = network()
    y = DaceModule(net, backward=True)(x)

    def change(p):
        with torch.no_grad():
            net[2].weight.zero_()

    net[6].weight.register_post_accumulate_grad_hook(change)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


def test_a_gradient_that_is_the_results_own_is_handed_on():
    class Shifted(nn.Module):
        def forward(self, x, y):
            return x + 1, y * 2

    x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    model, g = DaceModule(Shifted(), backward=True), torch.randn(3)
    for _ in range(2):
        a, b = model(x, y)
        gx, gy = torch.autograd.grad((a, b), (x, y), (g, g))
        assert gx.data_ptr() == g.data_ptr()
        torch.testing.assert_close(gy, 2 * g)
    a, b = model(x, y)
    b.sum().backward()
    assert x.grad is None and torch.equal(y.grad, torch.full((3,), 2.0))


def test_buckets_of_ddp_overlap_with_the_backward_pass(x, tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        net = network()
        inner, events = DaceModule(net, backward=True), []
        model = DistributedDataParallel(inner, bucket_cap_mb=2)

        def hook(state, bucket):
            events.append("bucket")
            done = torch.futures.Future()
            done.set_result(bucket.buffer())
            return done

        model.register_comm_hook(None, hook)
        for _ in range(2):
            loss = model(x).sum()
            watched(inner, events)
            loss.backward()
    finally:
        dist.destroy_process_group()
    assert events.count("bucket") > 1
    assert "step" in events[events.index("bucket"):]
