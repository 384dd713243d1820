"""Modules whose tensors are on a GPU: results, gradients and state as eager has them there."""
import copy
import threading
import time

import pytest
import torch
import torch.nn.functional as F
from small import Calls
from torch import nn

import dcml
from dcml import _core
from dcml.pytorch import DaceModule

pytestmark = pytest.mark.gpu


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.norm = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)

    def forward(self, x):
        return F.relu(self.norm(self.two(F.silu(self.one(x)))) + x)


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(11, 6), nn.Linear(6, 11)

    def forward(self, words):
        return self.out(self.table(words)).mean(1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2))


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor([1., 2, 3, 4]))
        self.fixed = torch.tensor([4., 3, 2, 1])

    def forward(self, x):
        return x * self.scale + torch.arange(4, device=x.device) + torch.tensor(0.5)


def rows(*shape):
    return torch.randn(*shape)


CASES = {
    "mlp": (lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3)), lambda: [rows(5, 8)]),
    "batchnorm": (lambda: nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)), lambda: [rows(6, 8)]),
    "convolutions": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 4)), lambda: [rows(2, 3, 8, 8)]),
    "residual": (Residual, lambda: [rows(2, 4, 6, 6)]),
    "embedding": (Words, lambda: [torch.randint(0, 11, (4, 7))]),
    "attention": (Attention, lambda: [rows(2, 5, 16)]),
    "lstm": (lambda: nn.LSTM(4, 6, batch_first=True), lambda: [rows(2, 5, 4)]),
    "buffers": (Scaled, lambda: [rows(3, 4)]),
}


def tensors(tree):
    return [t for t in torch.utils._pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


def train(module, args, steps=3, optimizer=torch.optim.SGD):
    """Results of each step, gradients of the last one, and the state at the end."""
    params = list(module.parameters())
    optimizer, results = optimizer(params, lr=0.1) if params else None, []
    for _ in range(steps):
        outputs = tensors(module(*args))
        results += [t.detach().clone() for t in outputs]
        if not params:
            continue
        optimizer.zero_grad()
        sum((t.float() ** 2).mean() for t in outputs).backward()
        optimizer.step()
    return results, [p.grad for p in params], [t.detach().clone() for t in [*params, *module.buffers()]]


def agree(got, want, tolerance=2e-3):
    for g, w in zip(tensors(got), tensors(want), strict=True):
        assert g.device == w.device and g.dtype == w.dtype
        torch.testing.assert_close(g, w, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_three_steps_of_training_are_those_of_eager(name):
    make, given = CASES[name]
    torch.manual_seed(0)
    module, args = make().cuda(), [t.cuda() for t in given()]
    want = train(copy.deepcopy(module), args)
    agree(train(DaceModule(module, backward=True), args), want)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=["bf16", "f16", "f64"])
def test_other_types_train(dtype):
    torch.manual_seed(0)
    module, args = CASES["mlp"][0]().cuda().to(dtype), [rows(5, 8).cuda().to(dtype)]
    want = train(copy.deepcopy(module), args)
    agree(train(DaceModule(module, backward=True), args), want, 1e-4 if dtype == torch.float64 else 5e-2)


def test_autocast_for_the_gpu_gives_what_eager_gives():
    torch.manual_seed(0)
    module, x = CASES["mlp"][0]().cuda(), rows(5, 8).cuda()
    compiled = DaceModule(copy.deepcopy(module), backward=True)
    full = compiled(x)
    with torch.autocast("cuda", torch.bfloat16):
        want, got = module(x), compiled(x)
        assert got.dtype == want.dtype == torch.bfloat16 and full.dtype == torch.float32
    agree(got, want, 5e-2)


def test_a_module_that_moves_to_the_gpu_and_back_is_served_in_both_places():
    torch.manual_seed(0)
    module, x = nn.Linear(4, 3), rows(2, 4)
    compiled, want = DaceModule(module, backward=True), module(x).detach()
    agree(compiled(x).detach(), want)
    compiled.cuda()
    agree(compiled(x.cuda()).detach(), want.cuda())
    compiled.cpu()
    agree(compiled(x).detach(), want)


def test_cuda_true_moves_the_module():
    compiled = DaceModule(nn.Linear(4, 3), cuda=True)
    assert compiled.model.weight.is_cuda and compiled(rows(2, 4).cuda()).is_cuda


def test_tensors_on_several_devices_are_named():
    with pytest.raises(dcml.DeviceError, match=r"cpu.*cuda:0|cuda:0.*cpu"):
        DaceModule(nn.Linear(4, 3).cuda())(rows(2, 4))
    with pytest.raises(dcml.DeviceError, match=r"argument 0 is on cuda:0.*argument 1 is on cpu"):
        DaceModule(Calls(lambda x, y: x + y))(rows(3).cuda(), rows(3))
    function = _core.Function(_core.parse("graph g opset 21 {\n  input x: f32[3]\n  input y: f32[3]\n  temp z: f32[3]\n  outputs z\n"
                                          "  state s {\n    map i in 0:3 {\n      z[i] = x[i] + y[i]\n    }\n  }\n}"))
    with pytest.raises(dcml.DeviceError, match="'x'.*'y'|'y'.*'x'"):
        function(rows(3).cuda(), rows(3))


def test_a_number_on_the_host_goes_with_tensors_on_the_gpu():
    compiled = DaceModule(Calls(lambda x, y: x * y), backward=True)
    x, y = rows(3).cuda().requires_grad_(), torch.tensor(2., requires_grad=True)
    result = compiled(x, y)
    result.sum().backward()
    agree(result.detach(), x.detach() * 2)
    agree([x.grad, y.grad], [torch.full((3,), 2., device="cuda"), x.detach().sum().cpu()])


def test_results_that_forward_moves_to_the_host_are_there():
    compiled = DaceModule(Calls(lambda x: (x.cpu() + 1, (x.cpu() * 2).cuda())), backward=True)
    x = rows(3).cuda().requires_grad_()
    on_host, on_gpu = compiled(x)
    agree([on_host, on_gpu], [x.cpu() + 1, x * 2])
    (on_host.sum() + on_gpu.sum().cpu()).backward()
    agree(x.grad, torch.full((3,), 3., device="cuda"))


def test_arguments_that_forward_moves_to_the_gpu_get_gradients_where_they_are():
    module = nn.Linear(4, 3).cuda()
    compiled, x = DaceModule(Calls(lambda x: F.linear(x.cuda(), module.weight)), backward=True), rows(2, 4).requires_grad_()
    compiled(x).sum().backward()
    agree(x.grad, module.weight.detach().sum(0).expand(2, 4).cpu())


def test_streams_of_the_caller_order_the_work():
    torch.manual_seed(0)
    compiled, w = DaceModule(Calls(lambda x: (x @ x).relu() + 1), backward=True), rows(512, 512).cuda()
    compiled(w)
    side = torch.cuda.Stream()
    for k in range(20):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x = (w * (k + 1)).requires_grad_()
            y = compiled(x)
            y.sum().backward()
        torch.cuda.current_stream().wait_stream(side)
        x2 = x.detach().requires_grad_()
        want = (x2 @ x2).relu() + 1
        want.sum().backward()
        torch.testing.assert_close(y, want, rtol=2e-2, atol=1)
        torch.testing.assert_close(x.grad, x2.grad, rtol=2e-2, atol=10)


def test_the_backward_pass_runs_on_the_stream_of_the_forward_with_parts():
    torch.manual_seed(0)
    module = nn.Sequential(*[nn.Sequential(nn.Linear(600, 600), nn.ReLU()) for _ in range(4)]).cuda()
    x, side = rows(8, 600).cuda(), torch.cuda.Stream()
    want = train(copy.deepcopy(module), [x])
    for extension in True, False:
        compiled = DaceModule(copy.deepcopy(module), backward=True, compile_torch_extension=extension)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            got = train(compiled, [x])
        torch.cuda.current_stream().wait_stream(side)
        agree(got, want)


def test_threads_with_streams_of_their_own_agree():
    module, x = CASES["mlp"][0]().cuda(), rows(64, 8).cuda()
    compiled, want, failed = DaceModule(module, backward=True), module(x).detach(), []
    compiled(x)

    def work():
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
                for _ in range(50):
                    y = compiled(x)
                    torch.testing.assert_close(y, want, rtol=2e-3, atol=2e-3)
        except Exception as error:
            failed.append(error)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed


def test_a_second_backward_wants_retain_graph():
    compiled, x = DaceModule(Calls(lambda x: torch.exp(x) * x), backward=True), rows(5).cuda().requires_grad_()
    y = compiled(x).sum()
    y.backward(retain_graph=True)
    first = x.grad.clone()
    y.backward()
    agree(x.grad, 2 * first)
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_second_derivatives():
    compiled, x = DaceModule(Calls(lambda x: torch.sin(x) * x), backward=True), rows(5).cuda().requires_grad_()
    first, = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
    second, = torch.autograd.grad(first.sum(), x)
    agree([first, second], [torch.sin(x) + x * torch.cos(x), 2 * torch.cos(x) - x * torch.sin(x)])


@pytest.mark.parametrize("extension", [True, False], ids=["c++", "python"])
def test_anomaly_detection_reads_what_the_parts_hand_over(extension):
    module = nn.Sequential(*[nn.Linear(600, 600) for _ in range(3)]).cuda()
    with torch.autograd.detect_anomaly(check_nan=True):
        DaceModule(module, backward=True, compile_torch_extension=extension)(rows(4, 600).cuda()).sum().backward()
    assert all(p.grad.isfinite().all() for p in module.parameters())


@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD"])
def test_compiled_steps_of_optimisers_are_those_of_torch(name):
    torch.manual_seed(0)
    options = {"lr": 0.05, "weight_decay": 0.01, **({"momentum": 0.9} if name == "SGD" else {})}
    ours, theirs = ([nn.Parameter(p.clone()) for p in made] for made in [[rows(3, 4).cuda(), rows(70, 30).cuda(), rows(5).cuda()]] * 2)
    a, b = getattr(dcml.optim, name)(ours, **options), getattr(torch.optim, name)(theirs, **options)
    for _ in range(4):
        for p, q in zip(ours, theirs):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        a.step(), b.step()
        agree([p.detach() for p in ours], [q.detach() for q in theirs], 1e-5)


def test_dropout_keeps_its_share_and_follows_the_seed():
    compiled, x = DaceModule(nn.Dropout(0.3), backward=True), torch.ones(200_000, device="cuda", requires_grad=True)
    compiled.train()
    torch.manual_seed(7)
    first, second = compiled(x), compiled(x)
    torch.manual_seed(7)
    again = compiled(x)
    assert abs((first != 0).float().mean().item() - 0.7) < 0.01
    assert torch.equal(first, again) and not torch.equal(first, second)
    first.sum().backward()
    assert torch.equal(x.grad, first.detach())
    state = torch.cuda.get_rng_state()
    third = compiled(x)
    torch.cuda.set_rng_state(state)
    assert torch.equal(third, compiled(x))


def test_running_statistics_are_written_in_place():
    torch.manual_seed(0)
    module, x = nn.BatchNorm1d(8).cuda(), rows(16, 8).cuda()
    compiled, mean = DaceModule(copy.deepcopy(module)), None
    mean = compiled.model.running_mean
    for _ in range(3):
        module(x), compiled(x)
    agree(list(compiled.model.buffers()), list(module.buffers()))
    assert compiled.model.running_mean is mean


def test_arguments_that_forward_changes():
    def change(x):
        x.mul_(2)
        return x + 1
    x = rows(5).cuda()
    want = x * 2
    agree([DaceModule(Calls(change))(x), x], [want + 1, want])


def test_item_and_indices():
    compiled = DaceModule(Calls(lambda x, k: x[k] + x.shape[0]))
    x, k = rows(6, 3).cuda(), torch.tensor([4, 0, 2]).cuda()
    agree(compiled(x, k), x[k] + 6)


def test_memory_stays_the_same_over_400_steps():
    """The most that is in use after each of some steps: what a call gives back may lie there until a later one."""
    torch.manual_seed(0)
    module, x = CASES["mlp"][0]().cuda(), rows(256, 8).cuda()
    compiled, used = DaceModule(module, backward=True), []
    for _ in range(80):
        train(compiled, [x], 5)
        torch.cuda.synchronize()
        used.append(torch.cuda.memory_allocated())
    assert max(used[40:]) <= max(used[:40])


def test_what_runs_works_in_the_memory_of_torch():
    compiled, x = DaceModule(Calls(lambda x: torch.softmax(x, -1) @ x)), rows(256, 256).cuda()
    compiled(x)
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]
    for _ in range(50):
        compiled(x)
    torch.cuda.synchronize()
    assert torch.cuda.mem_get_info()[0] >= free - (32 << 20)


def test_results_may_be_handed_to_another_stream():
    compiled, x, side = DaceModule(Calls(lambda x: x + 1)), torch.zeros(1 << 20, device="cuda"), torch.cuda.Stream()
    y = compiled(x)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        total = y.sum()
    y.record_stream(side)
    del y
    for _ in range(4):
        compiled(x * 5)
    torch.cuda.synchronize()
    assert total.item() == 1 << 20


def test_a_call_is_about_as_quick_as_eager():
    compiled, x = DaceModule(Calls(lambda x: x + 1)), rows(16).cuda()

    def least(function):
        times = []
        for _ in range(20):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(100):
                function(x)
            times.append((time.perf_counter() - begin) / 100)
        return min(times)
    compiled(x), compiled(x), compiled(x)
    eager, ours = least(lambda x: x + 1), least(compiled)
    print(f"x + 1: eager {eager * 1e6:.2f} us, compiled {ours * 1e6:.2f} us")
    assert ours < 4 * eager


def test_ranges_of_the_profiler_name_kernels():
    compiled, x = DaceModule(Calls(lambda x: torch.softmax(x, -1) + 1)), rows(64, 64).cuda()
    compiled(x)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]) as profile:
        compiled(x)
        torch.cuda.synchronize()
    assert any(e.name.startswith("dcml::") for e in profile.events())


def test_hooks_see_gradients_part_by_part():
    module = nn.Sequential(*[nn.Linear(600, 600) for _ in range(4)]).cuda()
    compiled, order = DaceModule(module, backward=True), []
    for name, p in module.named_parameters():
        p.register_post_accumulate_grad_hook(lambda p, name=name: order.append((name, p.grad.is_cuda)))
    compiled(rows(4, 600).cuda()).sum().backward()
    assert len(order) == 8 and all(on_gpu for _, on_gpu in order)
    assert order[0][0].startswith("3.") and order[-1][0].startswith("0.")


def test_distributed_training_reduces_on_the_gpu(tmp_path):
    torch.distributed.init_process_group("nccl", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        torch.manual_seed(0)
        module, x = CASES["mlp"][0]().cuda(), rows(5, 8).cuda()
        want = train(copy.deepcopy(module), [x])
        got = train(nn.parallel.DistributedDataParallel(DaceModule(module, backward=True), device_ids=[0]), [x])
        agree(got, want)
    finally:
        torch.distributed.destroy_process_group()
