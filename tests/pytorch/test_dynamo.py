"""dcml as a backend of torch.compile."""
import torch
from torch import nn

from dcml.pytorch.dynamo import backend


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


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


def test_symbolic_extents_arrive_as_numbers():
    compiled = torch.compile(lambda x: x.reshape(x.shape[0] * 2, -1) + 1, backend=backend, dynamic=True)
    for batch in (3, 5):
        x = torch.randn(batch, 4)
        close(compiled(x), x.reshape(batch * 2, -1) + 1)
