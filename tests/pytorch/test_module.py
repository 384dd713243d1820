"""DaceModule and dace_module as a user meets them."""
import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dcml
from dcml.pytorch import DaceModule, dace_module


class Net(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(dropout)
        self.fc = nn.Linear(4 * 36, 5)

    def forward(self, x, scale=1.0):
        x = F.relu(self.norm(self.conv(x)))
        return self.fc(self.drop(x.flatten(1))) * scale


def pair(training=False, **options):
    """The same network twice: compiled, and as torch runs it."""
    torch.manual_seed(0)
    plain = Net()
    return DaceModule(copy.deepcopy(plain), training=training, **options), plain


def close(a, b, tolerance=1e-4):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def image(batch=3):
    return torch.randn(batch, 1, 8, 8, generator=torch.Generator().manual_seed(batch))


def test_forward_computes_what_the_module_computes():
    compiled, plain = pair()
    close(compiled(image()), plain.eval()(image()))
    assert not compiled(image()).requires_grad


def test_state_dict_and_names_are_those_of_the_module():
    compiled, plain = pair()
    assert list(compiled.state_dict()) == list(plain.state_dict())
    assert [n for n, _ in compiled.named_parameters()] == [n for n, _ in plain.named_parameters()]
    assert compiled.model.fc.weight is compiled.fc.weight is dict(compiled.named_parameters())["fc.weight"]
    compiled.load_state_dict({k: v + 1 for k, v in plain.state_dict().items()})
    close(compiled.model.fc.bias, plain.fc.bias + 1)


def test_nested_in_another_module_the_names_are_unchanged():
    compiled, plain = pair()
    outer = nn.Sequential(compiled, nn.ReLU())
    assert list(outer.state_dict()) == ["0." + k for k in plain.state_dict()]
    outer.load_state_dict({"0." + k: v for k, v in plain.state_dict().items()})
    close(outer(image()), plain.eval()(image()).relu())


def test_changed_parameters_are_seen():
    compiled, plain = pair()
    compiled(image())
    with torch.no_grad():
        for module in (compiled, plain):
            module.fc.weight.mul_(2)
    compiled.fc.bias = plain.fc.bias = nn.Parameter(torch.arange(5.0))
    close(compiled(image()), plain.eval()(image()))


def test_gradients_of_parameters_and_inputs():
    compiled, plain = pair(backward=True)
    a, b = image().requires_grad_(), image().requires_grad_()
    compiled(a).square().sum().backward()
    plain.eval()(b).square().sum().backward()
    close(a.grad, b.grad, 1e-3)
    for p, q in zip(compiled.parameters(), plain.parameters()):
        close(p.grad, q.grad, 1e-3)


def test_frozen_parameters_get_no_gradient():
    compiled, _ = pair(backward=True)
    compiled(image()).sum().backward()
    compiled.zero_grad()
    compiled.conv.requires_grad_(False)
    compiled(image()).sum().backward()
    assert compiled.conv.weight.grad is None and compiled.fc.weight.grad is not None


def test_no_grad_gives_plain_results():
    compiled, plain = pair(backward=True)
    with torch.no_grad():
        assert not compiled(image()).requires_grad
    assert compiled(image()).requires_grad
    with torch.inference_mode():
        close(compiled(image()), plain.eval()(image()))


def test_first_call_without_gradients_does_not_forget_no_grad_regions():
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x):
            with torch.no_grad():
                y = self.fc(x)
            return y * x
    compiled, x = DaceModule(Frozen(), backward=True), torch.randn(4, 3)
    with torch.inference_mode():
        compiled(x)
    with torch.no_grad():
        compiled(x)
    x.requires_grad_()
    compiled(x).sum().backward()
    assert compiled.fc.weight.grad is None
    close(x.grad, compiled.fc(x).detach())


def test_autocast_is_part_of_the_capture():
    compiled = DaceModule(nn.Linear(3, 3))
    x = torch.randn(2, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = compiled(x)
    assert low.dtype == torch.bfloat16
    close(compiled(x), compiled.model(x).detach())


def test_training_updates_running_statistics():
    compiled, plain = pair(training=True, backward=True)
    for batch in (3, 5):
        close(compiled(image(batch)), plain.train()(image(batch)))
    for (name, a), b in zip(compiled.named_buffers(), plain.buffers()):
        close(a, b)
    assert compiled.norm.num_batches_tracked == 2


def test_train_and_eval_switch():
    compiled, plain = pair()
    for mode in (True, False, True):
        close(compiled.train(mode)(image()), plain.train(mode)(image()))
    assert compiled.training and compiled.model.training and compiled.norm.training
    compiled.norm.eval()
    plain.norm.eval()
    close(compiled(image()), plain(image()))


def test_wrapping_leaves_the_mode_of_the_module_unless_told():
    plain = Net()
    compiled = DaceModule(plain)
    assert compiled.training and plain.training
    close(compiled(image()), copy.deepcopy(plain)(image()))
    assert not DaceModule(plain, training=False).training and not plain.norm.training
    assert DaceModule(plain, training=True).training and plain.norm.training


def test_two_batch_sizes_share_a_capture():
    compiled, plain = pair()
    for batch in (3, 6, 2):
        close(compiled(image(batch)), plain.eval()(image(batch)))
    assert len(compiled._captures) == 1
    close(compiled(image(1)), plain(image(1)))


def test_arguments_by_name_and_value():
    compiled, plain = pair()
    close(compiled(image(), scale=2.0), plain.eval()(image(), scale=2.0))
    close(compiled(image(), 3.0), plain(image(), 3.0))
    close(compiled(image()), plain(image()))


def test_structured_results():
    class Structured(nn.Module):
        def forward(self, pair):
            a, b = pair["a"], pair["b"]
            return {"sum": a + b, "rest": (a, [a * 2, None, 4])}
    module = Structured()
    given = {"a": torch.ones(2, 3), "b": torch.zeros(2, 3)}
    result = DaceModule(module)(given)
    assert result["rest"][0] is given["a"] and result["rest"][1][1:] == [None, 4]
    close(result["sum"], torch.ones(2, 3))


def test_several_outputs_are_differentiable():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x):
            y = self.fc(x)
            return y, y.exp()
    module = DaceModule(Two(), backward=True)
    _, second = module(torch.randn(4, 3))
    second.sum().backward()
    assert module.fc.weight.grad.abs().sum() > 0


def test_dropout_follows_torchs_seed():
    compiled = DaceModule(nn.Dropout(0.5), training=True)
    ones = torch.ones(200)
    torch.manual_seed(1)
    first, second = compiled(ones), compiled(ones)
    torch.manual_seed(1)
    assert torch.equal(compiled(ones), first) and not torch.equal(first, second)


def test_training_loop_lowers_the_loss():
    compiled, _ = pair(backward=True, training=True)
    x, y = image(16), torch.arange(16) % 5
    optimiser = torch.optim.SGD(compiled.parameters(), 0.1)
    losses = []
    for _ in range(15):
        loss = F.cross_entropy(compiled(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_hooks_run_in_order_and_see_graphs():
    compiled, _ = pair(backward=True)
    seen = []
    compiled.append_post_onnx_hook("second", lambda m: seen.append(("onnx", m.sdfg.name, m.dace_model.sdfg.name)))
    compiled.prepend_post_onnx_hook("first", lambda m: seen.append("first"))
    compiled.append_post_autodiff_hook("autodiff", lambda f, b: seen.append((type(f).__name__, type(b).__name__)))
    compiled.append_post_compile_hook("compile", lambda c: seen.append("compiled"))
    compiled(image())
    assert list(compiled.post_onnx_hooks) == ["first", "second"]
    assert seen == ["first", ("onnx", "dace_model", "dace_model"), ("SDFG", "SDFG"), "compiled"]
    compiled(image())
    assert len(seen) == 4
    compiled.reset_sdfg()
    compiled(image())
    assert len(seen) == 8


def test_graphs_can_be_looked_at():
    compiled, _ = pair(backward=True, sdfg_name="net")
    with pytest.raises(dcml.Error, match="call the module once"):
        compiled.sdfg
    compiled(image())
    assert compiled.sdfg.name == "net" and compiled.forward_sdfg.name and compiled.backward_sdfg.name
    assert compiled.dace_model.inputs == ["x"]


def test_dummy_inputs_capture_at_once():
    compiled = DaceModule(Net(), dummy_inputs=(image(),))
    assert compiled.sdfg.name == "dace_model"


def test_cuda_without_gpu_is_an_error():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(dcml.DeviceError, match="no GPU"):
        DaceModule(Net(), cuda=True)


def test_copies_are_independent():
    compiled, _ = pair(backward=True)
    compiled(image())
    other = copy.deepcopy(compiled)
    with torch.no_grad():
        other.fc.bias += 1
    close(other(image()), compiled(image()) + 1)
    assert other.model.fc.bias is other.fc.bias


@pytest.mark.parametrize("what", [torch.nn.ReLU(), int, 3], ids=repr)
def test_what_is_no_class_of_modules_is_not_decorated(what):
    for decorate in (dace_module, dace_module(backward=True)):
        with pytest.raises(dcml.ValueError_, match="use DaceModule" if isinstance(what, torch.nn.Module) else "subclasses of nn.Module"):
            decorate(what)


def test_decorator_with_and_without_arguments():
    @dace_module
    class Plain(nn.Module):
        """Doubles."""
        def forward(self, x):
            return x * 2

    @dace_module(backward=True, sdfg_name="named")
    class Trained(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.fc = nn.Linear(n, n)

        def forward(self, x):
            return self.fc(x)

    close(Plain()(torch.ones(2)), torch.full((2,), 2.0))
    assert Plain.__name__ == "Plain" and Plain.__doc__ == "Doubles." and isinstance(Plain(), DaceModule)
    model = Trained(3)
    model(torch.ones(2, 3)).sum().backward()
    assert model.model.fc.weight.grad is not None and model.sdfg.name == "named"


def test_debug_transients_are_returned():
    compiled = DaceModule(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), debug_transients=True)
    result, *rest = compiled(torch.randn(4, 2))
    assert len(rest) == len(compiled.transients) == 2  # the last operator's value is the result
    close(rest[0].relu(), result)
    close(rest[1], result)


def test_inputs_changed_in_place_change():
    class InPlace(nn.Module):
        def forward(self, x):
            return x.mul_(2) + 1
    x = torch.ones(3)
    close(DaceModule(InPlace())(x), torch.full((3,), 3.0))
    close(x, torch.full((3,), 2.0))


def test_a_module_without_tensors_gives_tensors():
    class Numbers(torch.nn.Module):
        def forward(self):
            return torch.arange(5.0)
    result = DaceModule(Numbers())()
    assert isinstance(result, torch.Tensor)
    torch.testing.assert_close(result, torch.arange(5.0))
