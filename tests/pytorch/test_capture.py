"""What capture keeps of a module besides its operators: names, extents, buffers, structure, refusals."""
import os

import pytest
import torch
import torch.nn.functional as F
from captured import Call, check, run_capture
from small import TiedEmbedding
from torch import nn

import dcml
from dcml.pytorch import DaceModule
from dcml.pytorch.call.keys import bind_arguments
from dcml.pytorch.trace.capture import capture
from dcml.pytorch.call.results import Fixed, Passed


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4 * 36, 5)

    def forward(self, x):
        return self.fc(F.relu(self.norm(self.conv(x))).flatten(1))


def accepts(made, module, *args, **kwargs):
    return made.guard.refusal([a for a in args if isinstance(a, torch.Tensor)],
                              lambda: bind_arguments(module, args, kwargs)) is None


def test_parameters_keep_their_qualified_names():
    made = check(Net().eval(), (torch.randn(3, 1, 8, 8),))
    assert [n for n, _ in made.params] == ["conv.weight", "conv.bias", "norm.weight", "norm.bias", "fc.weight",
                                           "fc.bias", "norm.running_mean", "norm.running_var"]
    assert made.graph.params == [n for n, _ in made.params] and made.mutated == []


def test_training_reports_changed_statistics():
    made = check(Net().train(), (torch.randn(3, 1, 8, 8),))
    assert {n for _, n in made.mutated} == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}


def test_capture_leaves_the_module_as_it_was():
    module = Net().train()
    module.norm.momentum = None
    before = {k: v.clone() for k, v in module.state_dict().items()}
    capture(module, (torch.randn(3, 1, 8, 8),), train=False)
    assert module.training and module.norm.training and module.norm.momentum is None
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())


def test_batch_extent_is_symbolic():
    module = Net().eval()
    made = capture(module, (torch.randn(3, 1, 8, 8),))
    shape = made.graph.info(made.graph.inputs[0])[1]
    assert isinstance(shape[0], str) and tuple(shape[1:]) == (1, 8, 8)
    other = torch.randn(7, 1, 8, 8)
    result, _ = run_capture(made, module, (other,))
    torch.testing.assert_close(result, module(other), rtol=1e-4, atol=1e-4)


def test_guard_follows_extents():
    module = Net().eval()
    made = capture(module, (torch.randn(3, 1, 8, 8),))
    assert accepts(made, module, torch.randn(9, 1, 8, 8))
    assert not accepts(made, module, torch.randn(1, 1, 8, 8))  # export says nothing about extent 1
    assert not accepts(made, module, torch.randn(3, 1, 9, 8))
    assert not accepts(made, module, torch.randn(3, 8, 8))


def test_guard_ties_equal_extents():
    module = Call(lambda a, b: a + b)
    made = capture(module, (torch.randn(3, 2), torch.randn(3, 2)))
    assert accepts(made, module, torch.randn(5, 2), torch.randn(5, 2))
    assert not accepts(made, module, torch.randn(5, 2), torch.randn(4, 2))


def test_guard_evaluates_conditions_of_export():
    module = Call(lambda x: x.view(-1, 2, 4))
    made = check(module, (torch.randn(6, 4),))
    assert accepts(made, module, torch.randn(8, 4)) and not accepts(made, module, torch.randn(7, 4))


def test_static_capture_of_a_module_that_fixes_its_batch():
    module = Call(lambda x: x + torch.ones(3, 2))
    made = check(module, (torch.randn(3, 2),))
    assert not made.guard.symbolic and not accepts(made, module, torch.randn(4, 2))


def test_tied_weights_are_one_parameter():
    made = check(TiedEmbedding(), (torch.tensor([[1, 2], [3, 4]]),))
    assert len(made.params) == 1


def test_unused_parameters_are_left_out():
    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, x):
            return self.a(x)
    assert [n for n, _ in check(Unused(), (torch.randn(3, 2),)).params] == ["a.weight", "a.bias"]


def test_structured_arguments_and_results():
    class Structured(nn.Module):
        def forward(self, pair, table, *, scale=1.0, skip=None):
            left, right = pair
            return {"sum": (left + right * scale, None), "passed": [left, table["k"] @ right.T, "text", 7]}
    args = ((torch.randn(3, 4), torch.randn(3, 4)), {"k": torch.randn(5, 4)})
    made = check(Structured(), args, {"scale": 2.0})
    assert sum(isinstance(o, Passed) for o in made.outputs) == 1
    assert [o.value for o in made.outputs if isinstance(o, Fixed)] == [None, "text", 7]


def test_a_value_returned_twice_is_one_output():
    made = check(Call(lambda x: ((y := x * 2), y)), (torch.randn(3, 2),))
    assert made.outputs == [0, 0] and len(made.graph.outputs) == 1


def test_input_changed_in_place_is_reported():
    def forward(x):
        x.mul_(2)
        return x + 1
    module, x = Call(forward), torch.ones(3, 2)
    made = capture(module, (x.clone(),))
    assert [leaf for _, leaf, _ in made.changed_inputs] == [0]
    result, _ = run_capture(made, module, (x,))
    assert torch.equal(result, torch.full((3, 2), 3.0))


def test_lifted_constants_are_constants():
    made = check(Call(lambda x: x + torch.tensor([1.0, 2.0])), (torch.randn(3, 2),))
    assert made.params == []


def test_results_of_no_grad_regions_pass_no_gradient():
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(2, 2)

        def forward(self, x):
            with torch.no_grad():
                y = self.fc(x)
            return y * x
    made = check(Frozen(), (torch.randn(3, 2),))
    assert "StopGradient" in made.graph.text()


def test_unknown_overload_names_operator_and_line():
    def forward(x):
        return torch.hash_tensor(x)
    with pytest.raises(dcml.UnsupportedOpError, match=r"hash_tensor.*test_capture\.py:\d+: return torch.hash_tensor"):
        capture(Call(forward), (torch.eye(3),))


def test_branching_on_random_numbers_is_refused_with_its_line():
    def forward(x):
        return x + 1 if torch.rand([]) > 0.5 else x
    with pytest.raises(dcml.UnsupportedOpError, match=r"branches on values.*test_capture\.py:\d+: return x \+ 1 if") as found:
        capture(Call(forward), (torch.randn(4),))
    assert [os.path.basename(frame.path) for frame in found.traceback] == ["test_capture.py", "capture.py"]  # no tracer's
    assert found.value.__cause__ is found.value.__context__ is None


def test_module_that_cannot_be_traced_is_a_model_error():
    with pytest.raises(dcml.ModelError, match="cannot trace Call: ZeroDivisionError"):
        capture(Call(lambda x: x * (1 // 0)), (torch.randn(4),))


@pytest.mark.parametrize("loss, args", [
    (nn.GaussianNLLLoss(), (torch.ones(4, 3), torch.zeros(4, 3), torch.full((1, 3), 2.0))),
    (nn.GaussianNLLLoss(full=True, reduction="sum"), (torch.ones(4, 3), torch.zeros(4, 3), torch.full((4,), 2.0))),
    (nn.MultiLabelMarginLoss(reduction="none"), (torch.randn(4), torch.tensor([1, 3, -1, 0]))),
    (nn.MultiLabelMarginLoss(), (torch.randn(2, 4), torch.tensor([[1, 3, -1, 0], [-1, 1, 2, 2]])))],
    ids=["variance in a row", "variance without an axis", "one sample", "classes after the first -1"])
def test_losses_that_are_traced_in_another_form(loss, args):
    torch.testing.assert_close(DaceModule(loss)(*args), loss(*args))


def test_assertions_are_checked_at_each_call():
    loss = DaceModule(nn.GaussianNLLLoss())
    x = torch.ones(3)
    torch.testing.assert_close(loss(x, x * 2, x), nn.GaussianNLLLoss()(x, x * 2, x))
    with pytest.raises(ValueError, match="var has negative"):
        loss(x, x * 2, -x)


class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.images = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.ReLU())
        self.rows, self.unused = nn.LazyLinear(5), nn.LazyLinear(5)

    def forward(self, x, otherwise=False):
        return self.unused(x) if otherwise else self.rows(self.images(self.norm(x)).flatten(1)).relu()


def test_lazy_modules_take_their_shapes_from_the_first_call_as_in_eager_mode():
    found = []
    for wrap in (lambda m: m, lambda m: DaceModule(m, backward=True)):
        torch.manual_seed(0)
        module, x = Lazy(), torch.randn(2, 3, 8, 8)
        del module.unused
        run = wrap(module)
        result = run(x)
        result.sum().backward()
        assert module.training and module.norm.num_batches_tracked == module.images[1].num_batches_tracked == 1
        assert type(module.rows) is nn.Linear and not module.rows._forward_pre_hooks
        found.append([result, *module.buffers(), *[p.grad for p in module.parameters()]])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


def test_a_lazy_module_that_no_call_runs_is_refused_by_name():
    module = DaceModule(Lazy())
    with pytest.raises(dcml.ModelError, match="'unused.weight' has no shape yet"):
        module(torch.randn(2, 3, 8, 8))
    assert module.model.training and module.model.rows.in_features == 144
    with pytest.raises(RuntimeError, match="running_mean should contain 4"):
        DaceModule(Lazy())(torch.randn(2, 4, 8, 8))


def test_composite_without_row_is_decomposed():
    made = check(Call(lambda x: F.pairwise_distance(x, x * 2)), (torch.randn(3, 4),))
    assert "pairwise" not in made.graph.text().lower()


def test_low_precision_types_are_kept():
    for dtype in (torch.float16, torch.bfloat16):
        made = capture(Call(lambda x: F.relu(x) * 2 + 1), (torch.randn(3, 4).to(dtype),))
        assert made.graph.info(made.graph.inputs[0])[0] == {torch.float16: 10, torch.bfloat16: 16}[dtype]
