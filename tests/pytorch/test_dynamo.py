"""dcml as a backend of torch.compile: forward, training, changing extents, the entry point."""
import copy
import os
import pathlib
import re
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dcml
from dcml.pytorch.dynamo import backend


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def close(a, b, tolerance=1e-4):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_compiled_model_computes_and_trains():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    compiled = torch.compile(model, backend=backend)
    x = torch.randn(5, 4)
    close(compiled(x), model(x))
    compiled(x).square().sum().backward()
    found = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(x).square().sum().backward()
    for a, p in zip(found, model.parameters()):
        close(a, p.grad)


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_training_steps_follow_eager(dynamic):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))
    model = copy.deepcopy(plain)
    compiled = torch.compile(model, backend=backend, dynamic=dynamic)
    losses = []
    for net, call in ((model, compiled), (plain, plain)):
        steps = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
        noise = torch.Generator().manual_seed(0)
        losses.append([])
        for batch in (6, 6, 4, 9, 6):
            x, y = torch.randn(batch, 2, 6, generator=noise), torch.randint(3, (batch,), generator=noise)
            loss = F.cross_entropy(call(x), y)
            steps.zero_grad()
            loss.backward()
            steps.step()
            losses[-1].append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    for (name, a), b in zip(model.state_dict().items(), plain.state_dict().values()):
        close(a, b, 1e-3)


def test_symbolic_extents_arrive_as_numbers():
    compiled = torch.compile(lambda x: x.reshape(x.shape[0] * 2, -1) + 1, backend=backend, dynamic=True)
    for batch in (3, 5):
        x = torch.randn(batch, 4)
        close(compiled(x), x.reshape(batch * 2, -1) + 1)


def test_symbolic_extents_are_captured_once(monkeypatch):
    from dcml.pytorch.trace import capture
    made, real = [], capture.capture
    monkeypatch.setattr(capture, "capture", lambda *args, **kwargs: made.append(args) or real(*args, **kwargs))
    linear = nn.Linear(4, 6)

    def function(x, k):  # halves of the result are halves of the weight
        return linear(x).chunk(2, 1)[0].reshape(x.shape[0] * 3) * k + x.shape[0]
    compiled = torch.compile(function, backend=backend, dynamic=True)
    for rows in (2, 3, 5, 8, 2):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x, 0.5), function(x, 0.5))
    assert len(made) == 1


def test_graph_breaks_and_several_results():
    def function(x):
        y = torch.sin(x)
        torch._dynamo.graph_break()
        return {"a": y * 2, "b": [y.sum(), x]}
    x = torch.randn(4, requires_grad=True)
    got = torch.compile(function, backend=backend)(x)
    want = function(x)
    close(got["a"], want["a"])
    close(torch.autograd.grad(got["a"].sum() + got["b"][0], x)[0], 3 * x.cos())


def test_a_wrapped_module_inside_a_compiled_one():
    from dcml.pytorch import DaceModule
    torch.manual_seed(0)
    inner = nn.Linear(3, 3)
    outer = nn.Sequential(DaceModule(inner, backward=True), nn.ReLU())
    x = torch.randn(2, 3)
    close(torch.compile(outer, backend=backend)(x), inner(x).relu())


_BY_NAME = """
import torch
assert "dcml" in torch._dynamo.list_backends(), torch._dynamo.list_backends()
model = torch.nn.Linear(3, 2)
x = torch.ones(4, 3)
result = torch.compile(model, backend="dcml")(x)
assert torch.allclose(result, model(x), atol=1e-5)
result.sum().backward()
print(type(result.grad_fn).__name__)
"""


def test_backend_by_its_name(tmp_path):
    """As installed: the entry points of pyproject.toml in a folder of metadata on the path."""
    text = (pathlib.Path(__file__).parents[2] / "pyproject.toml").read_text()
    entry = re.search(r'\[project.entry-points.torch_dynamo_backends\]\ndcml = "(.*)"', text).group(1)
    metadata = tmp_path / "dcml-0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: dcml-here\nVersion: 0\n")
    (metadata / "entry_points.txt").write_text(f"[torch_dynamo_backends]\ndcml = {entry}\n")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run([sys.executable, "-c", _BY_NAME], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("CppFunction", "_NodeBackward")


def test_regions_of_checkpoint_are_plain_code():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh())

    def run(x):
        return torch.utils.checkpoint.checkpoint(net, x, use_reentrant=False) * 2

    x, y = (torch.ones(2, 3, requires_grad=True) for _ in range(2))
    torch.compile(run, backend=backend)(x).sum().backward()
    run(y).sum().backward()
    close(x.grad, y.grad)


def test_an_optimizer_can_be_compiled():
    torch.manual_seed(0)
    net = nn.Linear(3, 2)
    other = copy.deepcopy(net)
    for model, wrap in ((net, lambda step: step), (other, lambda step: torch.compile(step, backend=backend))):
        optimizer = torch.optim.Adam(model.parameters(), 0.05)
        step = wrap(optimizer.step)
        for k in range(3):
            optimizer.zero_grad()
            model(torch.full((1, 3), k + 1.0)).square().sum().backward()
            step()
    close(other.weight, net.weight)
    assert other.weight.requires_grad and other.weight.is_leaf


def test_autograd_functions_keep_their_gradient():
    class Tripled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.floor()

        @staticmethod
        def backward(ctx, g):
            return 3 * g

    x = torch.rand(4, requires_grad=True)
    torch.compile(lambda x: Tripled.apply(2 * x), backend=backend)(x).sum().backward()
    close(x.grad, torch.full((4,), 6.0))


def test_a_refusal_names_the_users_line_not_that_of_generated_code():
    def function(x):
        return torch.hash_tensor(x.relu())
    with pytest.raises(dcml.UnsupportedOpError, match=r"test_dynamo\.py:\d+: return torch\.hash_tensor"):
        torch.compile(function, backend=backend)(torch.ones(3))
