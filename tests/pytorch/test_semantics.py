"""What PyTorch promises of a module's forward and backward, kept by the wrapped module: gradients and their graph,
structure of arguments and results, types and extents.  DCML_AUTOGRAD chooses the autograd node under test."""
import collections
import copy
import gc
import weakref

import pytest
import torch
from small import TiedEmbedding
from torch import nn
from torch.utils.checkpoint import checkpoint

import dcml
from dcml.pytorch import DaceModule


def close(a, b, tolerance=1e-4):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def wrap(module, **options):
    return DaceModule(module, backward=True, **options)


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))


def twins(make=Two):
    torch.manual_seed(0)
    plain = make()
    return wrap(copy.deepcopy(plain)), plain


def gradients(module):
    return [p.grad for p in module.parameters()]


# -- the graph of gradients ------------------------------------------------------------------------
def test_a_second_backward_needs_retain_graph():
    compiled, plain = twins()
    x = torch.randn(5, 3)
    loss = compiled(x).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    (2 * plain(x).sum()).backward()
    for a, b in zip(gradients(compiled), gradients(plain)):
        close(a, b)


def test_several_forwards_before_their_backwards():
    compiled, plain = twins()
    xs = [torch.randn(n, 3) for n in (2, 5, 5, 2)]
    losses = [compiled(x).square().sum() * (k + 1) for k, x in enumerate(xs)]
    for loss in reversed(losses):
        loss.backward()
    for k, x in enumerate(xs):
        (plain(x).square().sum() * (k + 1)).backward()
    for a, b in zip(gradients(compiled), gradients(plain)):
        close(a, b)


def test_gradients_accumulate_over_calls():
    compiled, plain = twins()
    for module in (compiled, plain):
        for k in range(3):
            module(torch.full((2, 3), float(k))).sum().backward()
    for a, b in zip(gradients(compiled), gradients(plain)):
        close(a, b)


def test_autograd_grad_of_some_inputs():
    compiled, plain = twins()
    x = torch.randn(4, 3, requires_grad=True)
    found = torch.autograd.grad(compiled(x).sum(), [x, compiled.a.weight])
    want = torch.autograd.grad(plain(x).sum(), [x, plain.a.weight])
    for a, b in zip(found, want):
        close(a, b)
    assert compiled.b.weight.grad is None


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_recomputes(reentrant):
    compiled, plain = twins()
    for module in (compiled, plain):
        x = torch.ones(4, 3, requires_grad=True)
        checkpoint(module, x, use_reentrant=reentrant).square().sum().backward()
        module.seen = x.grad
    close(compiled.seen, plain.seen)
    for a, b in zip(gradients(compiled), gradients(plain)):
        close(a, b)


@pytest.mark.parametrize("make", [Two, lambda: nn.Sequential(*[nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 3)) for _ in range(6)])])
def test_a_penalty_of_gradients_goes_through_a_checkpoint(make):
    modules = twins(make)
    for module in modules:
        x = torch.linspace(-1, 1, 12).view(4, 3).requires_grad_()
        slope, = torch.autograd.grad(checkpoint(module, x, use_reentrant=False).square().sum(), x, create_graph=True)
        slope.square().sum().backward()
        module.seen = x.grad
    close(modules[0].seen, modules[1].seen)
    for a, b in zip(*map(gradients, modules)):
        close(a, b)


class TwoResults(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 2)

    def forward(self, x, z):
        h = self.a(x)
        return h.tanh(), (h * z).sum(1), z.sqrt()


def batched(results, given):
    noise = torch.Generator().manual_seed(0)
    seeds = [torch.randn(5, *r.shape, generator=noise) for r in results]
    one = [torch.autograd.grad(results[0], given, seeds[0], is_grads_batched=True, allow_unused=True, retain_graph=True)]
    one += [torch.autograd.grad(results[:2], given, seeds[:2], is_grads_batched=True, retain_graph=True)]
    own, function = given[1].numel(), torch.vmap(lambda v: torch.autograd.grad(results[1], given[:2], v, retain_graph=True))
    return *one, function(seeds[1]), function(seeds[1][:0]), torch.vmap(function, in_dims=1, out_dims=1)(torch.stack([seeds[1]] * own, 1))


def test_many_gradients_at_once_are_those_of_each():
    modules = twins(TwoResults)
    for module in modules:
        x, z = torch.linspace(-1, 1, 12).view(4, 3).requires_grad_(), torch.zeros(4, 1, requires_grad=True)
        module.seen = batched(module(x, z), (x, z, *module.parameters()))
    for got, want in zip(modules[0].seen, modules[1].seen):
        for a, b in zip(got, want):
            assert (a is None) == (b is None)
            if a is not None:
                close(a, b)


def test_jacobians_and_hessians_may_be_asked_for_at_once():
    modules, x = twins(), torch.linspace(-1, 1, 6).view(2, 3)
    for function in (lambda m: torch.autograd.functional.jacobian(m, x, vectorize=True),
                     lambda m: torch.autograd.functional.jacobian(m, x, create_graph=True, vectorize=True).detach(),
                     lambda m: torch.autograd.functional.hessian(lambda v: m(v).pow(3).sum(), x, vectorize=True)):
        close(function(modules[0]), function(modules[1]))


def test_what_many_gradients_give_is_differentiable():
    modules = twins()
    for module in modules:
        x = torch.linspace(-1, 1, 6).view(2, 3).requires_grad_()
        seeds = torch.eye(4).view(4, 2, 2)
        slopes, = torch.autograd.grad(module(x), x, seeds, is_grads_batched=True, create_graph=True)
        slopes.square().sum().backward()
        module.seen = x.grad
    close(modules[0].seen, modules[1].seen)
    for a, b in zip(*map(gradients, modules)):
        close(a, b)


def test_double_backward_is_that_of_eager():
    for reduce in (lambda y: y.square().sum(), lambda y: y.sum()):
        modules = twins()
        for module in modules:
            x = torch.linspace(-1, 1, 6).view(2, 3).requires_grad_()
            grad, = torch.autograd.grad(reduce(module(x)), x, create_graph=True)
            (module(x).sum() + grad.square().sum()).backward()
            module.seen = x.grad
        close(modules[0].seen, modules[1].seen)
        for a, b in zip(*map(gradients, modules)):
            close(a, b)


def test_functorch_transforms_are_refused():
    compiled, _ = twins()
    x = torch.randn(4, 3)
    for transform in (torch.func.vmap(compiled), torch.func.grad(lambda v: compiled(v).sum()),
                      torch.func.jacrev(compiled), torch.func.jacfwd(compiled),
                      lambda v: torch.func.jvp(compiled, (v,), (v,))):
        with pytest.raises(dcml.UnsupportedOpError, match="functorch|torch.func"):
            transform(x)


def test_forward_mode_differentiation_is_refused():
    compiled, _ = twins()
    x = torch.randn(4, 3)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x)
        for _ in range(3):
            with pytest.raises(dcml.UnsupportedOpError, match="forward-mode"):
                compiled(dual)


@pytest.mark.parametrize("wants_grad", [True, False])
def test_what_the_backward_pass_reads_must_not_change_before_it(wants_grad):
    for spoil in (lambda x, m: x.detach().add_(1), lambda x, m: m.b.weight.detach().add_(1)):
        compiled, plain = twins(Square)
        for module in (compiled, plain):
            x = torch.randn(4, 3, requires_grad=wants_grad)
            loss = module(x).sum()
            spoil(x, module)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()


class Square(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x):
        return self.b(self.a(x)).square()


class Shift(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return x * 2 + self.weight


def test_what_the_backward_pass_does_not_read_may_change_before_it():
    compiled, plain = twins(Shift)
    for module in (compiled, plain):
        x = torch.ones(4, 3)
        loss = module(x).sum()
        with torch.no_grad():
            module.weight.add_(1)
            x.add_(1)
        loss.backward()
    close(compiled.weight.grad, plain.weight.grad)


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(2, 2)

    def forward(self, x):
        y = self.a(x * 1)
        x.mul_(3)
        return y + x.exp()


def test_inputs_changed_in_place_keep_their_history():
    compiled, plain = twins(InPlace)
    for module in (compiled, plain):
        leaf = torch.tensor([[0.1, 0.2]], requires_grad=True)
        x = leaf * 1
        y = module(x)
        (y.sum() + x.square().sum()).backward()
        module.seen = leaf.grad, x.detach()
    close(compiled.seen[0], plain.seen[0])
    close(compiled.seen[1], plain.seen[1])
    for a, b in zip(gradients(compiled), gradients(plain)):
        close(a, b)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        compiled(torch.ones(1, 2, requires_grad=True))


class Averaged(nn.Module):
    """Changes a buffer that its backward pass reads as it was."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.ones(3))
        self.a = nn.Linear(3, 3)

    def forward(self, x):
        y = self.a(x) * self.mean.clone()
        with torch.no_grad():
            self.mean.mul_(0.5).add_(x.mean(0))
        return y


def test_buffers_that_a_call_changes_and_its_backward_reads():
    compiled, plain = twins(Averaged)
    for module in (compiled, plain):
        for k in range(4):
            module(torch.full((2, 3), k + 1.0)).square().sum().backward()
    close(compiled.mean, plain.mean)
    for a, b in zip(gradients(compiled), gradients(plain)):
        close(a, b)


@pytest.mark.parametrize("in_cpp", [True, False])
def test_forward_runs_once_a_call_though_its_backward_reads_what_it_changes(in_cpp):
    compiled = DaceModule(Averaged(), backward=True, compile_torch_extension=in_cpp)
    for rows in (2, 2, 2, 5):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
            result = compiled(torch.ones(rows, 3))
        steps = {event.key: event.count for event in seen.key_averages() if event.key.startswith("dcml::")}
        assert steps and set(steps.values()) == {1}, steps
        before = compiled.mean.clone()
        result.square().sum().backward()
        close(compiled.mean, before)


def test_spectral_norm_trains():
    compiled, plain = twins(lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)))
    for module in (compiled, plain):
        steps = torch.optim.SGD(module.parameters(), 0.1)
        for _ in range(4):
            steps.zero_grad()
            module(torch.ones(2, 4)).square().sum().backward()
            steps.step()
    for (name, a), b in zip(compiled.state_dict().items(), plain.state_dict().values()):
        close(a, b, 1e-3)


def test_attributes_set_by_forward_are_refused_by_name_and_line():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * self.calls
    module = wrap(Counts())
    line = r"test_semantics\.py:\d+: self.calls"
    with pytest.raises(dcml.UnsupportedOpError, match=r"sets the attribute 'calls'.*" + line):
        module(torch.ones(2))
    assert module.calls == 0


def test_results_and_saved_values_are_freed():
    class Tracer:
        pass
    compiled, _ = twins()
    x, marker = torch.randn(4, 3, requires_grad=True), Tracer()
    result, ref = compiled(x), weakref.ref(marker)
    result.grad_fn.metadata["marker"] = marker
    result.sum().backward()
    del result, marker
    gc.collect()
    assert ref() is None


def test_inputs_that_need_gradients_may_change_between_calls():
    compiled, plain = twins()
    for wanted, frozen in ((False, False), (True, False), (True, True), (False, False), (False, True)):
        grads = []
        for module in (compiled, plain):
            module.zero_grad()
            module.a.requires_grad_(not frozen)
            x = torch.ones(2, 3, requires_grad=wanted)
            module(x).square().sum().backward()
            grads.append([x.grad, *gradients(module)])
        for a, b in zip(*grads):
            assert (a is None) == (b is None)
            if a is not None:
                close(a, b)


def test_without_backward_results_carry_no_gradient():
    module = DaceModule(Two())
    assert not module(torch.randn(2, 3, requires_grad=True)).requires_grad


def test_tied_weights_receive_the_sum_of_their_gradients():
    compiled, plain = twins(TiedEmbedding)
    assert compiled.out.weight is compiled.emb.weight and len(list(compiled.parameters())) == 1
    assert list(compiled.state_dict()) == ["emb.weight", "out.weight"]
    for module in (compiled, plain):
        module(torch.tensor([[1, 2], [1, 5]])).square().sum().backward()
    close(compiled.emb.weight.grad, plain.emb.weight.grad)


def test_hooks_on_parameters_results_and_modules_run():
    compiled, plain = twins()
    logs = []
    for module in (compiled, plain):
        log = []
        module.a.weight.register_hook(lambda g, log=log: log.append(("grad", g.sum())) or g * 2)
        module.a.weight.register_post_accumulate_grad_hook(lambda p, log=log: log.append(("post", p.grad.sum())))
        module.register_forward_pre_hook(lambda m, args, log=log: log.append(("pre", args[0].sum())) or (args[0] + 1,))
        module.register_forward_hook(lambda m, args, out, log=log: log.append(("out", out.sum())) or out * 3)
        module.register_full_backward_hook(lambda m, gi, go, log=log: log.append(("back", go[0].sum())))
        x = torch.ones(2, 3, requires_grad=True)
        module(x).sum().backward()
        log.append(("x", x.grad.sum()))
        logs.append(log)
    names = [[name for name, _ in log] for log in logs]
    assert collections.Counter(names[0]) == collections.Counter(names[1])
    for name, value in logs[0]:
        close(value, dict(logs[1])[name])


CHANGES = {
    "forward hook": lambda m: m.register_forward_hook(lambda _, args, y: 2 * y),
    "forward pre hook": lambda m: m.register_forward_pre_hook(lambda _, args: (2 * args[0],)),
    "backward hook": lambda m: m.register_full_backward_hook(lambda _, given, grads: (2 * given[0],)),
    "backward pre hook": lambda m: m.register_full_backward_pre_hook(lambda _, grads: (2 * grads[0],)),
    "hook of all modules": lambda m: nn.modules.module.register_module_forward_hook(
        lambda module, args, y: 2 * y if module is m else y),
    "forward of the instance": lambda m: setattr(m, "forward", lambda x, was=m.forward: 2 * was(x)),
    "compile": lambda m: m.compile(backend=lambda graph, inputs: lambda *given: [2 * y for y in graph(*given)]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_put_around_a_module_after_many_calls_is_seen(name):
    found = []
    for module in twins():
        def step(x):
            y = module(x)
            return y.detach().clone(), *torch.autograd.grad(y.sum(), [x, module.b.weight])
        for seed in range(5):
            torch.manual_seed(seed)
            x = torch.randn(5, 3, requires_grad=True)
            step(x)
        handle = CHANGES[name](module)
        found.append([step(x), step(x)])
        if handle is not None:
            handle.remove()
            found[-1].append(step(x))
    close(*found)


def test_a_subclass_may_wrap_forward():
    class Doubled(DaceModule):
        def forward(self, x):
            return 2 * super().forward(x)

    plain, x = Two(), torch.randn(5, 3)
    module = Doubled(plain)
    for _ in range(5):
        close(module(x), 2 * plain(x))


def test_hooks_of_children_run():
    compiled, plain = twins()
    compiled.a.register_forward_hook(lambda m, args, out: out * 2)
    plain.a.register_forward_hook(lambda m, args, out: out * 2)
    close(compiled(torch.ones(2, 3)), plain(torch.ones(2, 3)))


# -- arguments and results -------------------------------------------------------------------------
class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, batch, scale=1.0, *, flip=False, extra=None):
        y = self.fc(batch["x"]) * scale
        y = y.flip(0) if flip else y
        y = y if extra is None else y + extra[0]
        return {"y": y, "rest": (batch["x"], [None, y.sum(0)]), "tag": "text", "n": 3, "none": None}


def test_nested_dictionaries_tuples_none_and_texts_come_back():
    compiled, plain = twins(Named)
    x = torch.randn(4, 3)
    for args, kwargs in ((({"x": x},), {}), (({"x": x}, 2.5), {}), (({"x": x},), {"flip": True, "scale": 3}),
                         (({"x": x},), {"extra": (torch.ones(3), None)})):
        got, want = compiled(*args, **kwargs), plain(*args, **kwargs)
        assert list(got) == list(want) and got["tag"] == "text" and got["n"] == 3 and got["none"] is None
        assert isinstance(got["rest"], tuple) and got["rest"][0] is x and got["rest"][1][0] is None
        close(got["y"], want["y"])
        close(got["rest"][1][1], want["rest"][1][1])


def test_gradients_through_nested_results():
    compiled, plain = twins(Named)
    for module in (compiled, plain):
        x = torch.ones(4, 3, requires_grad=True)
        out = module({"x": x}, extra=(torch.ones(3, requires_grad=True),))
        (out["rest"][1][1].square().sum() + out["rest"][0].sum()).backward()
        module.seen = x.grad
    close(compiled.seen, plain.seen)
    close(compiled.fc.weight.grad, plain.fc.weight.grad)


Pair = collections.namedtuple("Pair", "left right")


def test_named_tuples_keep_their_type():
    class Pairs(nn.Module):
        def forward(self, p):
            return Pair(p.left + 1, p.right * 2)
    got = DaceModule(Pairs())(Pair(torch.ones(2), torch.ones(3)))
    assert isinstance(got, Pair)
    close(got.right, torch.full((3,), 2.0))


def test_python_numbers_are_part_of_the_program():
    class Scaled(nn.Module):
        def forward(self, x, times, flag):
            for _ in range(times):
                x = x * 2 if flag else x + 1
            return x
    compiled, plain = twins(Scaled)
    for times, flag in ((1, True), (3, True), (3, False), (0, False), (True, 1)):
        close(compiled(torch.ones(2), times, flag), plain(torch.ones(2), times, flag))


def test_equal_numbers_of_different_types_are_different_programs():
    class Add(nn.Module):
        def forward(self, x, y):
            return x + y
    compiled = DaceModule(Add())
    x = torch.ones(2, dtype=torch.int64)
    assert compiled(x, 1).dtype == torch.int64
    assert compiled(x, 1.0).dtype == torch.float32
    assert compiled(x, True).dtype == torch.int64


def test_zero_and_negative_zero_are_different_numbers():
    class Divide(nn.Module):
        def forward(self, x, y):
            return x / y
    compiled = DaceModule(Divide())
    x = torch.ones(2)
    assert (compiled(x, 0.0) > 0).all() and (compiled(x, -0.0) < 0).all()


@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x[::2], lambda x: x[:, 1:], lambda x: x.expand(3, 4, 4),
                                  lambda x: x.flip(0), lambda x: x.as_strided((3, 3), (1, 1))])
def test_inputs_need_not_be_contiguous(view):
    class Ramp(nn.Module):
        def forward(self, x):
            return (x * x).cumsum(-1)
    compiled, plain = twins(Ramp)
    grads = []
    for module in (compiled, plain):
        base = torch.arange(16.0).reshape(4, 4).requires_grad_()
        result = module(view(base))
        result.sum().backward()
        grads.append((result.detach(), base.grad))
    close(*[g[0] for g in grads])
    close(*[g[1] for g in grads])


def test_channels_last_inputs_and_weights():
    compiled, plain = twins(lambda: nn.Conv2d(3, 4, 3))
    x = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
    close(compiled(x), plain(x))
    compiled.to(memory_format=torch.channels_last)
    compiled(x).sum().backward()
    plain(x).sum().backward()
    close(compiled.weight.grad, plain.weight.grad)


def test_results_overlap_arguments_where_they_are_views_of_them_and_nowhere_else():
    class Views(nn.Module):
        def forward(self, x):
            return x.reshape(-1), x[0], x + 0, x
    x = torch.zeros(2, 3)
    a, b, c, same = DaceModule(Views())(x)
    assert same is x
    a += 1
    assert x.all() and b.all() and not c.any()


# -- types and extents -----------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_floating_types(dtype):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2)).to(dtype)
    compiled = wrap(copy.deepcopy(plain))
    tolerance = {torch.float64: 1e-12, torch.float16: 5e-3, torch.bfloat16: 5e-2}[dtype]
    for module in (compiled, plain):
        torch.manual_seed(1)
        x = torch.randn(3, 4, dtype=dtype, requires_grad=True)
        module.result = module(x)
        module.result.float().square().sum().backward()
        module.seen = x.grad
    assert compiled.result.dtype == dtype and compiled.seen.dtype == dtype
    close(compiled.result, plain.result, tolerance)
    close(compiled.seen, plain.seen, tolerance)


def test_integers_and_booleans_go_in_and_come_out():
    class Mixed(nn.Module):
        def forward(self, x, i, m):
            return x[i] * m, i + 1, ~m, i.argmax(), x > 0
    compiled, plain = twins(Mixed)
    x = torch.randn(5, requires_grad=True)
    i, m = torch.tensor([1, 3, 3]), torch.tensor([True, False, True])
    got, want = compiled(x, i, m), plain(x, i, m)
    for a, b in zip(got, want):
        assert a.dtype == b.dtype and a.requires_grad == b.requires_grad
        close(a, b)
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        j = torch.arange(4, dtype=dtype)
        got = DaceModule(_Twice())(j)
        assert got.dtype == dtype and torch.equal(got, j * 2)


class _Twice(nn.Module):
    def forward(self, x):
        return x * 2


def test_0_dimensional_tensors():
    class Scalars(nn.Module):
        def forward(self, x, y):
            return x * y, x.sum(), (x + y).exp()
    compiled, plain = twins(Scalars)
    grads = []
    for module in (compiled, plain):
        x, y = torch.tensor(0.5, requires_grad=True), torch.tensor(2.0)
        a, b, c = module(x, y)
        assert a.shape == b.shape == c.shape == ()
        (a + b + c).backward()
        grads.append(x.grad)
    close(*grads)


@pytest.mark.parametrize("shape", [(0, 3), (4, 0, 3), (0, 0, 3)])
def test_empty_tensors(shape):
    compiled, plain = twins()
    for module in (compiled, plain):
        x = torch.zeros(shape, requires_grad=True)
        result = module(x)
        assert result.shape == (*shape[:-1], 2)
        (result.sum() + 1).backward()
        assert x.grad.shape == shape
    for a, b in zip(gradients(compiled), gradients(plain)):
        close(a, b)


def test_reductions_of_empty_tensors():
    class Reductions(nn.Module):
        def forward(self, x):
            return x.sum(), x.mean(), x.prod(), x.sum(0), x.softmax(-1), x.mean(0)
    for a, b in zip(DaceModule(Reductions())(torch.zeros(0, 3)), Reductions()(torch.zeros(0, 3))):
        torch.testing.assert_close(a, b, equal_nan=True)


def test_infinities_and_nan_follow_eager():
    class Chain(nn.Module):
        def forward(self, x):
            return (torch.relu(x), x.exp().sum(), x.max(), x.softmax(0), x.clamp(-1, 1), torch.maximum(x, -x),
                    x.sort()[0])
    x = torch.tensor([float("inf"), 1.0, float("nan"), float("-inf")])
    for values in (x, x[:2], x[1:3], x[[1, 3]]):
        for a, b in zip(DaceModule(Chain())(values), Chain()(values)):
            torch.testing.assert_close(a, b, equal_nan=True)


@pytest.mark.parametrize("boolean", [True, False])
def test_rows_that_attention_masks_out_entirely(boolean):
    class Attention(nn.Module):
        def forward(self, q, k, v, mask):
            return nn.functional.scaled_dot_product_attention(q, k, v, mask)
    keep = torch.tensor([[True, False, True], [False, False, False]])
    mask = keep if boolean else torch.zeros(2, 3).masked_fill(~keep, float("-inf"))
    found = []
    for module in (wrap(Attention()), Attention()):
        noise = torch.Generator().manual_seed(0)
        q, k, v = (torch.randn(1, n, 4, generator=noise, requires_grad=True) for n in (2, 3, 3))
        result = module(q, k, v, mask)
        found.append([result, *torch.autograd.grad(result.square().sum(), [q, k, v])])
    for a, b in zip(*found):
        close(a, b)
    assert not found[0][0][0, 1].any()


def test_filling_by_index_with_repeats():
    class Fill(nn.Module):
        def forward(self, x, i, v):
            return x.index_fill(0, i, v)
    for start, places in ((torch.ones(4, 2), [2, 0, 2]), (torch.ones(()), [0, 0])):
        found = []
        for module in (wrap(Fill()), Fill()):
            x, v = start.clone().requires_grad_(), torch.tensor(3.0, requires_grad=True)
            result = module(x, torch.tensor(places), v)
            found.append([result, *torch.autograd.grad(result.square().sum(), [x, v])])
        for a, b in zip(*found):
            close(a, b)
