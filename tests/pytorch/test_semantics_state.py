"""State of the wrapped module: modes, statistics, weights changed behind its back, copies, files, threads, processes,
types, autocast and random numbers."""
import copy
import io
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading

import pytest
import torch
import torch.nn.functional as F
from small import TiedLayers
from torch import nn
from torch.nn.utils import prune

import dcml
from dcml.pytorch import DaceModule
from test_semantics import close, gradients, twins, wrap


class Norm(nn.Module):
    def __init__(self, momentum=0.1):
        super().__init__()
        self.fc, self.norm = nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=momentum)

    def forward(self, x):
        return self.norm(self.fc(x))


def same_state(a, b):
    assert list(a.state_dict()) == list(b.state_dict())
    for name, value in b.state_dict().items():
        close(a.state_dict()[name], value)


@pytest.mark.parametrize("momentum", [0.1, 1.0, 0.0, None])
def test_running_statistics(momentum):
    compiled, plain = twins(lambda: Norm(momentum))
    for k in range(4):
        x = torch.randn(5 + k, 3)
        close(compiled(x), plain(x))
        same_state(compiled, plain)
    compiled.eval(), plain.eval()
    close(compiled(torch.ones(2, 3)), plain(torch.ones(2, 3)))
    same_state(compiled, plain)


def test_statistics_restart_after_reset_and_load():
    compiled, plain = twins(lambda: Norm(None))
    saved = copy.deepcopy(plain.state_dict())
    for module in (compiled, plain):
        module(torch.randn(4, 3, generator=torch.Generator().manual_seed(1)))
        module.norm.reset_running_stats()
        module(torch.ones(4, 3) * torch.arange(4.0)[:, None])
    same_state(compiled, plain)
    compiled.load_state_dict(saved)
    plain.load_state_dict(saved)
    x = torch.randn(4, 3)
    close(compiled(x), plain(x))
    same_state(compiled, plain)


def test_modes_of_children_decide():
    compiled, plain = twins(Norm)
    for module in (compiled, plain):
        module.train()
        module.norm.eval()
    x = torch.randn(4, 3)
    close(compiled(x), plain(x))
    same_state(compiled, plain)
    for module in (compiled, plain):
        module.norm.train()
    close(compiled(x), plain(x))
    same_state(compiled, plain)


def test_attributes_set_on_the_wrapper_reach_the_module():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.tensor(2.0))
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return x * self.weight * self.scale
    compiled, x = wrap(Scaled()), torch.ones(2, 3)
    compiled(x)
    compiled.scale = torch.tensor(5.0)
    close(compiled(x), 5 * x)
    compiled.model.weight = nn.Parameter(torch.full((3,), 3.0))
    close(compiled(x), 15 * x)
    assert compiled.weight is compiled.model.weight


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_steps_of_an_optimizer_are_seen_by_the_next_call(optimizer):
    compiled, plain = twins(lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(12, 2)))
    for module in (compiled, plain):
        steps = optimizer(module.parameters(), lr=0.05)
        x = torch.randn(4, 2, 4, 4, generator=torch.Generator().manual_seed(0))
        module.losses = []
        for _ in range(4):
            steps.zero_grad()
            loss = module(x).square().mean()
            loss.backward()
            steps.step()
            module.losses.append(loss.item())
        module.eval()
        with torch.no_grad():
            module.last = module(x)
    assert compiled.losses == pytest.approx(plain.losses, rel=1e-4)
    close(compiled.last, plain.last, 1e-3)


def test_weights_written_through_data_are_seen():
    compiled, plain = twins(lambda: nn.Conv2d(2, 3, 3).eval())
    x = torch.randn(1, 2, 5, 5)
    with torch.no_grad():
        for change in (lambda m: m.weight.data.mul_(2), lambda m: setattr(m.weight, "data", torch.ones(3, 2, 3, 3)),
                       lambda m: m.weight.copy_(m.weight + 1), lambda m: m.bias.zero_()):
            compiled(x)
            for module in (compiled, plain):
                change(module)
            close(compiled(x), plain(x))


def test_functional_call_replaces_parameters():
    compiled, plain = twins()
    fresh = {name: torch.randn_like(p).requires_grad_() for name, p in plain.named_parameters()}
    x = torch.randn(4, 3)
    got, want = torch.func.functional_call(compiled, fresh, (x,)), torch.func.functional_call(plain, fresh, (x,))
    close(got, want)
    names = list(fresh)
    for a, b in zip(torch.autograd.grad(got.sum(), [fresh[n] for n in names]),
                    torch.autograd.grad(want.sum(), [fresh[n] for n in names])):
        close(a, b)
    close(compiled(x), plain(x))


def test_parametrized_and_weight_normed_modules():
    def make():
        module = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 4)), nn.Linear(4, 2))
        nn.utils.parametrize.register_parametrization(module[1], "weight", _Symmetric())
        return module
    torch.manual_seed(0)
    plain = make()
    compiled = wrap(copy.deepcopy(plain))
    assert list(compiled.state_dict()) == list(plain.state_dict())
    x = torch.randn(5, 3)
    for module in (compiled, plain):
        module.result = module(x)
        module.result.square().sum().backward()
    close(compiled.result, plain.result)
    for (name, a), b in zip(compiled.named_parameters(), plain.parameters()):
        close(a.grad, b.grad)


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize("put", [nn.utils.weight_norm, nn.utils.spectral_norm, lambda layer: prune.l1_unstructured(layer, "weight", 0.5)],
                         ids=["weight_norm", "spectral_norm", "pruning"])
def test_weights_that_hooks_of_torch_make_are_those_of_the_last_call(put):
    modules = []
    for _ in range(2):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
        put(module[0])
        modules.append(module)
    modules[0] = wrap(modules[0])
    for k in range(3):
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(k))
        for module in modules:
            module.zero_grad()
            (module(x).sum() + module[0].weight.square().sum()).backward()
            torch.optim.SGD(module.parameters(), 0.5).step()
        compiled, plain = modules
        close(compiled[0].weight, plain[0].weight)
        for a, b in zip(compiled.parameters(), plain.parameters(), strict=True):
            close(a.grad, b.grad)


def test_pruning_again_after_steps_chooses_by_the_trained_weights():
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(6, 8), nn.Tanh())
    compiled = wrap(copy.deepcopy(plain))
    masks = []
    for module in (compiled, plain):
        for _ in range(3):
            prune.l1_unstructured(module[0], "weight", 0.3)
            for k in range(2):
                module.zero_grad()
                (module(torch.arange(12.).reshape(2, 6) / 12) - 1).square().sum().backward()
                torch.optim.SGD(module.parameters(), 0.5).step()
        masks.append(module[0].weight_mask)
    assert torch.equal(*masks)


class _Symmetric(nn.Module):
    def forward(self, w):
        return w.tanh()


# -- copies, files, processes ----------------------------------------------------------------------
def test_deepcopy_before_and_after_a_call():
    compiled, plain = twins()
    x = torch.randn(4, 3)
    early = copy.deepcopy(compiled)
    close(compiled(x), plain(x))
    late = copy.deepcopy(compiled)
    with torch.no_grad():
        compiled.a.weight.zero_()
    for other in (early, late):
        close(other(x), plain(x))
        other(x).sum().backward()
        assert other.a.weight.grad is not None and other.model.a is other.a and compiled.a.weight.grad is None
        other.train(False)
        assert compiled.training and not other.model.training


def test_pickle_and_torch_save_round_trip():
    compiled, plain = twins()
    x = torch.randn(4, 3)
    compiled(x).sum().backward()
    compiled.append_post_onnx_hook("look", _look)
    file = io.BytesIO()
    torch.save(compiled, file)
    file.seek(0)
    for other in (pickle.loads(pickle.dumps(compiled)), torch.load(file, weights_only=False)):
        close(other(x), plain(x))
        assert other.model.a.weight is other.a.weight and list(other.post_onnx_hooks) == ["look"]
        other(x).sum().backward()
    file = io.BytesIO()
    torch.save(compiled.state_dict(), file)
    file.seek(0)
    fresh = wrap(type(plain)())
    fresh.load_state_dict(torch.load(file))
    close(fresh(x), plain(x))


def _look(module):
    assert module.sdfg.name


def test_threads_share_one_module():
    compiled, plain = twins()
    xs = [torch.randn(n % 5 + 1, 3) for n in range(24)]
    wants = [plain(x).detach() for x in xs]
    slopes = [torch.autograd.grad(plain(y := x.clone().requires_grad_()).sum(), y)[0] for x in xs]
    failures = []

    def work(part):
        try:
            for k in range(part, len(xs), 4):
                x = xs[k].clone().requires_grad_()
                result = compiled(x)
                close(result.detach(), wants[k])
                grad, = torch.autograd.grad(result.sum(), x)
                close(grad, slopes[k])
        except BaseException as error:  # noqa: B902  (reported by the main thread)
            failures.append(error)
    threads = [threading.Thread(target=work, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def _in_child(module, x, queue):
    result = module(x)
    queue.put(result.detach().numpy().tolist())


_FORK = """
import os, sys, torch
from torch import nn
torch.set_num_threads(1)
from dcml.pytorch import DaceModule
torch.manual_seed(0)
module = DaceModule(nn.Linear(3, 2), backward=True)
x = torch.ones(4, 3)
called = sys.argv[1] == "called"
if called:
    want = module(x).sum().item()
child = os.fork()
if child == 0:
    result = module(x)
    result.sum().backward()
    ok = not called or abs(result.sum().item() - want) < 1e-5
    os._exit(0 if ok and module.weight.grad is not None else 1)
assert os.waitpid(child, 0)[1] == 0
module(x).sum().backward()
print("ok")
"""


@pytest.mark.parametrize("when", ["imported", "called"])
def test_fork_after_import_and_after_a_call(when):
    done = subprocess.run([sys.executable, "-c", _FORK, when], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.stdout.strip() == "ok", done.stderr


def test_spawned_process_receives_a_module():
    compiled, plain = twins(lambda: nn.Linear(3, 2))
    compiled(torch.ones(2, 3))
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_in_child, args=(compiled, torch.ones(2, 3), queue))
    process.start()
    found = queue.get(timeout=120)
    process.join()
    close(torch.tensor(found), plain(torch.ones(2, 3)).detach())


# -- types and devices -----------------------------------------------------------------------------
def test_to_moves_and_converts_the_module():
    compiled, plain = twins()
    x = torch.randn(4, 3)
    compiled(x)
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.bfloat16, 5e-2), (torch.float32, 1e-2)):
        assert compiled.to(dtype) is compiled
        plain.to(dtype)
        assert compiled.model.a.weight.dtype == dtype
        got = compiled(x.to(dtype))
        assert got.dtype == dtype
        close(got, plain(x.to(dtype)), tolerance)
        got.sum().backward()
        assert compiled.a.weight.grad.dtype == dtype
        compiled.zero_grad()


def test_mixed_types_promote_or_fail_as_in_torch():
    compiled, plain = twins()
    x = torch.ones(2, 3, dtype=torch.float64)
    with pytest.raises(RuntimeError):
        plain(x)
    with pytest.raises(dcml.Error):
        compiled(x)


@pytest.mark.parametrize("device", ["meta"])
def test_other_devices_are_refused_by_name(device):
    compiled, _ = twins()
    with pytest.raises(dcml.DeviceError, match=device):
        compiled(torch.ones(2, 3, device=device))


def test_autocast_is_honoured_in_forward_and_backward():
    compiled, plain = twins()
    for module in (compiled, plain):
        x = torch.ones(4, 3, requires_grad=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            module.result = module(x)
            loss = module.result.float().square().sum()
        loss.backward()
        module.seen = x.grad
    assert compiled.result.dtype == plain.result.dtype == torch.bfloat16
    close(compiled.result, plain.result, 2e-2)
    close(compiled.seen, plain.seen, 5e-2)
    for a, b in zip(gradients(compiled), gradients(plain)):
        assert a.dtype == torch.float32
        close(a, b, 1e-1)
    assert compiled(torch.ones(2, 3)).dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.autocast("cpu", enabled=False):
        assert compiled(torch.ones(2, 3)).dtype == torch.float32


def test_default_dtype_is_that_of_the_call():
    class Ones(nn.Module):
        def forward(self, i):
            return i / 2, torch.ones(2), i * 0.5
    compiled, i = DaceModule(Ones()), torch.arange(3)
    assert [t.dtype for t in compiled(i)] == [torch.float32] * 3
    torch.set_default_dtype(torch.float64)
    try:
        assert [t.dtype for t in compiled(i)] == [torch.float64] * 3
    finally:
        torch.set_default_dtype(torch.float32)


def test_no_grad_and_inference_mode():
    compiled, plain = twins()
    x = torch.randn(4, 3, requires_grad=True)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            result = compiled(x)
        assert not result.requires_grad and result.is_inference() == (mode is torch.inference_mode)
        close(result, plain(x).detach())
    inference = torch.inference_mode()
    with inference:
        y = torch.randn(4, 3)
    close(DaceModule(copy.deepcopy(plain))(y), plain.requires_grad_(False)(y))


# -- random numbers --------------------------------------------------------------------------------
def test_dropout_scales_drops_and_repeats():
    compiled = wrap(nn.Dropout(0.25))
    x = torch.ones(4000, requires_grad=True)
    torch.manual_seed(7)
    first = compiled(x)
    first.sum().backward()
    assert torch.equal(first.detach(), x.grad)  # the mask of the forward is that of the backward
    kept = first > 0
    close(first[kept], torch.full((int(kept.sum()),), 1 / 0.75))
    assert abs(kept.float().mean() - 0.75) < 0.03
    torch.manual_seed(7)
    assert torch.equal(compiled(x), first) and not torch.equal(compiled(x), first)
    assert torch.equal(compiled.eval()(x), x)


def test_two_dropouts_of_one_module_are_independent():
    class Twice(nn.Module):
        def forward(self, x):
            return F.dropout(x, 0.5, self.training), F.dropout(x, 0.5, self.training)
    a, b = DaceModule(Twice())(torch.ones(1000))
    assert 0.4 < ((a > 0) == (b > 0)).float().mean() < 0.6


def test_attention_dropout_is_reproducible():
    torch.manual_seed(0)
    compiled = wrap(nn.MultiheadAttention(8, 2, dropout=0.3, batch_first=True))
    x = torch.randn(2, 5, 8)
    torch.manual_seed(3)
    first = compiled(x, x, x, need_weights=False)[0]
    torch.manual_seed(3)
    assert torch.equal(compiled(x, x, x, need_weights=False)[0], first)
    assert not torch.equal(compiled(x, x, x, need_weights=False)[0], first)
    close(compiled.eval()(x, x, x, need_weights=False)[0], compiled.model(x, x, x, need_weights=False)[0])


def test_random_tensors_have_the_right_distribution():
    class Noise(nn.Module):
        def forward(self, x):
            return torch.rand_like(x), torch.randn_like(x), torch.bernoulli(x * 0 + 0.2)
    torch.manual_seed(0)
    uniform, normal, coin = DaceModule(Noise())(torch.zeros(20000))
    assert 0 <= uniform.min() and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.02
    assert abs(normal.mean()) < 0.03 and abs(normal.std() - 1) < 0.03
    assert set(coin.unique().tolist()) == {0.0, 1.0} and abs(coin.mean() - 0.2) < 0.02


# -- what a capture has built in -------------------------------------------------------------------
def test_attributes_that_forward_reads_are_seen_when_they_change():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.steps, self.drop = 2.0, 0, nn.Dropout(0.0)
            self.mask = torch.ones(3)

        def forward(self, x):
            return self.drop(x * self.scale * self.mask)
    compiled, x = DaceModule(Scaled()), torch.ones(2, 3)
    close(compiled(x), 2 * x)
    compiled.model.scale = 3.0
    close(compiled(x), 3 * x)
    compiled.model.mask = torch.full((3,), 5.0)
    close(compiled(x), 15 * x)
    compiled.model.mask.mul_(2)
    close(compiled(x), 30 * x)
    compiled.drop.p = 1.0
    close(compiled(x), 0 * x)
    compiled.drop.p = 0.0
    close(compiled(x), 30 * x)
    compiled.scale = -0.0
    assert torch.signbit(compiled(x)).all()


def test_equal_attributes_of_different_types_are_different_programs():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 1

        def forward(self, x):
            return x * self.scale
    compiled, x = DaceModule(Scaled()), torch.ones(2, dtype=torch.int64)
    for scale, dtype in ((1, torch.int64), (1.0, torch.float32), (True, torch.int64), (1.0, torch.float32)):
        compiled.scale = scale
        for _ in range(3):
            assert compiled(x).dtype == dtype


def test_attributes_that_forward_does_not_read_compile_nothing():
    class Counted(nn.Module):
        def __init__(self):
            super().__init__()
            self.epoch = 0

        def forward(self, x):
            return x + 1
    compiled, x = DaceModule(Counted()), torch.ones(2)
    for epoch in range(3):
        compiled.model.epoch = epoch
        compiled(x)
    assert len(compiled._captures) == 1


def test_hooks_on_the_state_run_for_both():
    log, (compiled, plain) = [], twins(lambda: nn.Linear(3, 2))
    for module in (compiled, plain):
        module.register_state_dict_pre_hook(lambda *_: log.append("before saving"))
        module.register_state_dict_post_hook(lambda *_: log.append("after saving"))
        module.register_load_state_dict_pre_hook(lambda *_: log.append("before loading"))
        module.register_load_state_dict_post_hook(lambda *_: log.append("after loading"))
        module.load_state_dict(module.state_dict())
    assert len(log) == 8 and log[:4] == log[4:]


def test_replaced_children_are_seen():
    compiled, plain = twins()
    x = torch.randn(2, 3)
    compiled(x)
    fresh = nn.Linear(4, 7)
    compiled.b = plain.b = fresh
    close(compiled(x), plain(x))
    compiled.model.a = plain.a = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    close(compiled(x), plain(x))
    compiled.model.a[1] = plain.a[1] = nn.Sigmoid()
    close(compiled(x), plain(x))
    compiled, plain = DaceModule(plain.a), plain.a
    compiled[1] = nn.Tanh()
    close(compiled(x), plain(x))
    del compiled[1]
    close(compiled(x), plain(x))
    assert len(plain) == 1


def test_parameters_of_another_shape_or_type_are_seen():
    compiled, plain = twins(lambda: nn.Embedding(4, 3))
    i = torch.tensor([0, 3])
    compiled(i)
    compiled.weight = plain.weight = nn.Parameter(torch.randn(9, 5))
    close(compiled(i), plain(i))
    for module in (compiled.model, plain):
        module.to(torch.float64)
    assert compiled(i).dtype == torch.float64
    close(compiled(i), plain(i))


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3, affine=False)
        self.register_buffer("mask", None)

    def forward(self, x):
        x = self.norm(x) if self.mask is None else self.norm(x) * self.mask
        return x * self.scale if hasattr(self, "scale") else x


def test_tensors_that_come_and_go_are_seen():
    compiled, plain = twins(Masked)
    x = torch.randn(4, 3)

    def alike():
        for _ in range(3):
            close(compiled(x), plain(x))
    alike()
    for module in (compiled, plain):
        module.mask = torch.tensor([1.0, 0.0, 2.0])
    alike()
    for norm in (compiled.norm, plain.norm):
        norm.weight, norm.bias = nn.Parameter(torch.full((3,), 2.0)), nn.Parameter(torch.ones(3))
    alike()
    for module in (compiled, plain):
        module.mask = module.norm.bias = None
    alike()
    for module in (compiled.model, plain):
        module.register_buffer("scale", torch.tensor(3.0))
    alike()
    for module in (compiled.model, plain):
        del module.scale
    alike()


def test_weights_that_are_untied_later_are_two():
    compiled, plain = twins(TiedLayers)
    x = torch.randn(2, 3)
    close(compiled(x), plain(x))
    compiled.b.weight = plain.b.weight = nn.Parameter(torch.ones(3, 3))
    close(compiled(x), plain(x))
    compiled.a.weight = plain.a.weight = compiled.b.weight
    close(compiled(x), plain(x))
    compiled(x).sum().backward()
    found = compiled.a.weight.grad.clone()
    compiled.a.weight.grad = None
    plain(x).sum().backward()
    close(found, plain.a.weight.grad)


def test_sparse_tensors_and_objects_are_refused_by_name():
    compiled = DaceModule(nn.Linear(3, 2))
    compiled(torch.ones(2, 3))
    for x in (torch.ones(2, 3).to_sparse(), torch.ones(2, 3).to_sparse_csr()):
        with pytest.raises(dcml.Error, match="sparse"):
            compiled(x)
    with torch._subclasses.FakeTensorMode() as mode, pytest.raises(dcml.Error, match="FakeTensor"):
        compiled(mode.from_tensor(torch.ones(2, 3)))
    with pytest.raises(dcml.Error, match="object"):
        compiled(object())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.skipif("none" == torch.backends.quantized.engine, reason="torch has no quantised kernels here")
def test_quantised_parts_are_refused_by_name():
    with pytest.raises(dcml.Error, match="'0.*packed: wrap the module as it was before"):
        wrap(nn.Sequential(torch.ao.nn.quantized.dynamic.Linear(3, 4)))(torch.ones(2, 3))


def test_lazily_negated_tensors_are_read_negated():
    x = torch.complex(torch.ones(2, 3), torch.ones(2, 3)).conj().imag
    assert x.is_neg()
    compiled, plain = twins(lambda: nn.Linear(3, 2))
    close(compiled(x), plain(x))
