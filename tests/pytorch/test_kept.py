"""Captures on disk: what another module of the same kind finds, and what is traced again or never kept."""
import functools
import json
import math
import os
import subprocess
import sys
import threading

import pytest
import torch
import torch.nn.functional as F
from _pytest import logging
from torch import nn

from dcml import _core
from dcml.pytorch import DaceModule
from dcml.pytorch.kept import portable, store
from dcml.pytorch.trace import capture

FACTOR = 2.0


class Holder:
    value = 1

    def __call__(self, x, **_):
        return x


HOLDER = Holder()


def helper(x):
    return x * FACTOR


class Net(nn.Module):
    bias = 0.5

    def __init__(self, width=4, power=2):
        super().__init__()
        self.fc, self.norm, self.power, self.extra = nn.Linear(width, width), nn.BatchNorm1d(width), power, None

    def forward(self, x):
        return F.relu(self.norm(self.fc(helper(x)))) ** self.power + self.bias + math.pi


@pytest.fixture
def traces(monkeypatch, tmp_path):
    """How often a module was traced, as the length of a list; captures lie in a folder of the test's own."""
    made, original = [], capture.capture

    def counted(*args, **kwargs):
        made.append(args)
        return original(*args, **kwargs)
    monkeypatch.setattr(capture, "capture", counted)
    monkeypatch.setattr(_core, "toolchain", lambda: (None, str(tmp_path), True))
    monkeypatch.setenv("DCML_KEEP_CAPTURES", "1")
    beside = portable._files_of_finders() | {logging.__file__}  # pytest's handlers, which run where torch logs
    monkeypatch.setattr(portable, "_files_of_finders", lambda: beside)
    return made


def outcome(module, x):
    y = module(x)
    (y * y).sum().backward()
    return [y.detach(), *[p.grad for p in module.parameters()], *[b.clone() for b in module.buffers()]]


def net(**options):
    torch.manual_seed(0)
    return Net(**options)


@pytest.fixture(scope="module", autouse=True)
def _tracer():
    """What the first trace of a process imports goes through pytest's own functions, which would be noted too."""
    DaceModule(net())(torch.randn(3, 4))


def test_a_module_of_the_same_kind_is_not_traced_and_computes_the_same_bits(traces):
    x = torch.randn(3, 4)
    first, second = (outcome(DaceModule(net(), backward=True), x) for _ in range(2))
    assert len(traces) == 1
    assert all(map(torch.equal, first, second))
    torch.testing.assert_close(second, outcome(net(), x), rtol=1e-4, atol=1e-4)


def test_other_extents_of_a_batch_are_served_by_what_was_found(traces):
    DaceModule(net())(torch.randn(3, 4))
    found, plain = DaceModule(net()), net()
    for n in (3, 5, 7):
        x = torch.randn(n, 4)
        torch.testing.assert_close(found(x), plain(x))
    assert len(traces) == 1


@pytest.mark.parametrize("change", ("attribute", "global", "function", "class", "width", "type", "mode", "flag", "tie", "child", "closure"))
def test_what_forward_reads_decides(traces, monkeypatch, change):
    x = torch.randn(3, 4)
    DaceModule(net())(x)
    other = net(power=3) if change == "attribute" else net(width=5) if change == "width" else net()
    if change == "global":
        monkeypatch.setitem(globals(), "FACTOR", 3.0)
    elif change == "function":
        monkeypatch.setitem(globals(), "helper", lambda x: x - 1)
    elif change == "class":
        monkeypatch.setattr(Net, "bias", 0.25)
    elif change == "mode":
        other.eval()
    elif change == "flag":
        other.norm.eps = 1e-2
    elif change == "tie":
        other.norm.weight = other.fc.bias
    elif change == "child":
        other.norm = nn.Identity()
    elif change == "type":
        other, x = other.double(), x.double()
    elif change == "closure":
        monkeypatch.setattr(Net, "forward", (lambda shift: lambda self, x: self.fc(x) + shift)(2))
    x = torch.randn(3, 5) if change == "width" else x
    compiled = DaceModule(other)
    got = compiled(x)
    assert len(traces) == 2
    torch.testing.assert_close(got, other(x))


def test_a_change_after_capture_was_found_is_seen(traces):
    x = torch.randn(3, 4)
    DaceModule(net())(x)
    found = DaceModule(net())
    found(x)
    found.power = 3
    torch.testing.assert_close(found(x), found.model(x))
    assert len(traces) == 2


def of_text(text, **names):
    """A function made as configurations make them: from a text, among names that belong to no module."""
    exec(text, names)
    return names["f"]


def test_functions_made_of_texts_are_told_apart(traces):
    x = torch.randn(3, 4)
    for operator in "+*":
        other = net()
        other.extra = of_text(f"def f(x): return x {operator} factor", factor=2.0)
        other.forward = lambda x, of=other: of.extra(x)
        torch.testing.assert_close(DaceModule(other)(x), other(x))


def test_what_functions_made_of_texts_read_is_seen():
    f, x, module = of_text("def f(x): return x * factor", factor=2.0), torch.ones(3), nn.Module()
    module.forward = lambda x: f(x)
    compiled = DaceModule(module)
    for factor in (2.0, 3.0):
        f.__globals__["factor"] = factor
        torch.testing.assert_close(compiled(x), x * factor)


def environment(self, x):
    return x * float(os.environ.get("DCML_TEST_FACTOR", "1"))


def threads(self, x):
    return x * torch.get_num_threads()


def own_object(self, x):
    return x * HOLDER.value


def of_another_module(self, x):
    return x * sys.getrecursionlimit()


def imported(self, x):
    import math as m
    return x * m.e


def a_file(self, x):
    with open(os.devnull):
        return x * 1


@pytest.mark.parametrize("forward", (environment, threads, own_object, of_another_module, imported, a_file), ids=lambda f: f.__name__)
def test_a_doubt_keeps_nothing(traces, monkeypatch, tmp_path, forward):
    monkeypatch.setattr(Net, "forward", forward)
    x = torch.randn(3, 4)
    for k in range(2):
        torch.testing.assert_close(DaceModule(net())(x), net()(x))
        assert len(traces) == k + 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("doubt", ("hook", "patched", "object", "mode"))
def test_surroundings_that_cannot_be_said_are_not_looked_up(traces, monkeypatch, doubt):
    x = torch.randn(3, 4)
    DaceModule(net())(x)
    other = net()
    if doubt == "hook":
        other.fc.register_forward_hook(lambda m, args, y: y + 1)
    elif doubt == "patched":
        monkeypatch.setattr(F, "batch_norm", lambda x, *args: x + 1)
    elif doubt == "object":
        other.power = torch.nn.Parameter(torch.tensor(2.0))
    want = outcome(other, x)[0]
    with torch.device("cpu") if doubt == "mode" else torch.enable_grad():
        torch.testing.assert_close(DaceModule(other)(x).detach(), want)
    assert len(traces) == 2


@pytest.mark.parametrize("owner, name, other", (
    (torch, "relu", torch.sigmoid), (F, "gelu", F.silu), (nn.Linear, "forward", nn.Identity.forward),
    (F, "batch_norm", functools.partial(F.batch_norm, eps=0.5)), (F, "relu", Holder())), ids=lambda value: getattr(value, "__name__", value))
def test_a_function_of_torch_in_the_place_of_another_is_seen(traces, monkeypatch, owner, name, other):
    DaceModule(net())(torch.randn(3, 4))
    monkeypatch.setattr(owner, name, other)
    if isinstance(other, (Holder, functools.partial)):
        with pytest.raises(portable.Doubt):
            portable.Portable(net(), (), ())
    else:
        x = torch.randn(3, 4)
        torch.testing.assert_close(DaceModule(net())(x), net()(x))
        assert len(traces) == 2


def test_a_helper_of_a_module_of_torch_that_is_not_torchs_is_a_doubt(monkeypatch):
    layer = nn.TransformerEncoderLayer(8, 2, 8)
    seen = [portable.Portable(layer, (), ()).text for _ in range(2)]
    assert seen[0] == seen[1]
    monkeypatch.setattr(nn.modules.transformer, "_get_seq_len", lambda *args: None)
    with pytest.raises(portable.Doubt, match="place of a function of torch"):
        portable.Portable(layer, (), ())


def test_tensors_that_share_memory_or_have_attributes_are_no_others(traces):
    def looked_at(model):
        return portable.Portable(model, (), ()).text
    plain, shared, flagged = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
    memory = torch.zeros(20)
    shared.weight, shared.bias = (nn.Parameter(part) for part in (memory[:16].view(4, 4), memory[12:16]))
    assert looked_at(plain) == looked_at(nn.Linear(4, 4)) != looked_at(shared)
    flagged.weight.flag = True
    with pytest.raises(portable.Doubt, match="weight"):
        looked_at(flagged)


def test_an_argument_that_is_a_parameter_is_not_looked_up(traces, monkeypatch, tmp_path):
    monkeypatch.setattr(Net, "forward", lambda self, x, w: x @ w * 2 if w is self.fc.weight else x @ w)
    x, module = torch.randn(3, 4), net()
    DaceModule(module)(x, nn.Parameter(torch.randn(4, 4)))
    DaceModule(module)(x, module.fc.weight)
    assert len(traces) == 2 and len(list(tmp_path.iterdir())) == 1


def all_attributes(self, x):
    return x * len(self.__dict__)


def own_operator(self, x):
    return torch.ops.dcml_test_kept.twice(x)


@pytest.mark.parametrize("forward", (all_attributes, own_operator), ids=lambda f: f.__name__)
def test_what_names_do_not_tell_is_a_doubt(monkeypatch, forward):
    monkeypatch.setattr(Net, "forward", forward)
    with pytest.raises(portable.Doubt):
        portable.Portable(net(), (), [portable.identity(forward.__code__)])


def test_a_damaged_file_is_not_read(traces, tmp_path):
    x = torch.randn(3, 4)
    want = DaceModule(net())(x)
    path, = tmp_path.iterdir()
    text = path.read_bytes()
    path.write_bytes(text.replace(b"Relu", b"Tanh"))
    assert path.read_bytes() != text
    assert torch.equal(DaceModule(net())(x), want)
    assert len(traces) == 2
    path.write_bytes(text[:len(text) // 2])
    assert torch.equal(DaceModule(net())(x), want)
    assert len(traces) == 3


_OTHER_DATA = ({"outputs": [99]}, {"outputs": [["Passed", -1]]}, {"params": []}, {"params": [["nobody", False]]}, {"inputs": [7]},
               {"graph": "graph x {"}, {"out_spec": ["tuple", [], ["*", "*"]]}, {"checks": [[5, "text"]]},
               {"checks": [[0, "text", "no error of ours"]]}, {"mutated": [[9, "norm.weight"]]},
               {"devices": ["nowhere"]}, {"shapes": [[1]]}, {"ranges": 3}, {"ran": None})


@pytest.mark.parametrize("text", ("", "{", "[]", "null", '{"reads": 1}', "\xff", "[" * 100000, *_OTHER_DATA),
                         ids=lambda text: "-".join(text) if isinstance(text, dict) else text[:12] or "empty")
def test_a_whole_file_that_says_nonsense_is_a_miss(traces, tmp_path, text):
    x = torch.randn(3, 4)
    want = DaceModule(net())(x)
    path, = tmp_path.iterdir()
    if isinstance(text, dict):
        text = json.dumps({**json.loads(path.read_bytes().splitlines()[0]), **text})
    scratch = tmp_path / "scratch"
    scratch.write_bytes(text.encode("latin-1") + b"\n")
    _core.seal(str(scratch), str(path))
    assert torch.equal(DaceModule(net())(x), want)
    assert len(traces) == 2


def test_the_least_used_of_too_many_gives_way(traces, tmp_path, monkeypatch):
    x = torch.randn(3, 4)
    monkeypatch.setattr(store, "_VARIANTS", 2)
    for power in (1, 2, 3):
        DaceModule(net(power=power))(x)
    assert len(traces) == 3 and len(list(tmp_path.iterdir())) == 2
    for power in (3, 2, 1):
        torch.testing.assert_close(DaceModule(net(power=power))(x), net(power=power)(x))
    assert len(traces) == 4


def test_many_that_keep_at_once_leave_whole_files(traces, tmp_path):
    x = torch.randn(3, 4)
    modules = [DaceModule(net()) for _ in range(4)]
    threads = [threading.Thread(target=module, args=(x,)) for module in modules]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {path.name[:7] for path in tmp_path.iterdir()} == {"capture"}
    assert all(_core.is_sealed(str(path)) for path in tmp_path.iterdir())
    before = len(traces)
    assert torch.equal(DaceModule(net())(x), modules[0](x))
    assert len(traces) == before


def test_numbers_of_forward_are_kept_to_the_last_bit(traces, monkeypatch):
    numbers = torch.tensor([1 / 3, math.pi, -0.0, 1e-310, math.inf], dtype=torch.float64)
    monkeypatch.setattr(Net, "forward", lambda self, x: x + torch.tensor([1 / 3, math.pi, -0.0, 1e-310, math.inf], dtype=x.dtype))
    for _ in range(2):
        got = DaceModule(net())(torch.full((2, 5), -0.0, dtype=torch.float64))
        assert torch.equal(got.view(torch.int64), numbers.expand(2, 5).contiguous().view(torch.int64))
    assert len(traces) == 1


def test_another_process_finds_it_and_loads_no_tracer(tmp_path):
    script = ("import sys, torch; from torch import nn; from dcml.pytorch import DaceModule; torch.manual_seed(0); "
              "m = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)); y = DaceModule(m, backward=True)(torch.ones(5, 3)); "
              "y.sum().backward(); print(y.detach().double().sum().item().hex(), m[0].weight.grad.double().sum().item().hex(), "
              "'dcml.pytorch.trace.capture' in sys.modules)")
    environment = {**os.environ, "DCML_CACHE": str(tmp_path), "DCML_KEEP_CAPTURES": "1"}
    tmp_path.chmod(0o700)
    first, second = [subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True).stdout.split()
                     for _ in range(2)]
    assert first[:2] == second[:2]
    assert (first[2], second[2]) == ("True", "False")
