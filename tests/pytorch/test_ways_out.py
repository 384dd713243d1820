"""A refusal says which line, why, and the two ways out; and what was refused once."""
import pytest
import torch
import torch.nn.functional as F
from captured import Call

import dcml
from dcml.pytorch import DaceModule
from dcml.pytorch.aten import TABLE

pytestmark = pytest.mark.usefixtures("interpreted")

x = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
REFUSED = {
    "no row": (torch.hash_tensor, r"hash_tensor.*it has no row.*: return self.function\(v\)\)$"),
    "some arguments": (lambda v: torch.nn.functional.embedding_bag(torch.tensor([[0, 1]]), v, scale_grad_by_freq=True),
                       r"_embedding_bag.*of float32\[4, 6\].*\.py:\d+: .some arguments.: \("),
    "foreign memory": (lambda v: (v + 1)[1:3].as_strided((3, 6), (6, 1)), r"as_strided.*memory that is not its argument's.*as_strided\(\(3, 6\)"),
    "own place": (lambda v: v.view(24).as_strided((3,), (2,), 1), "as_strided.*another call may have elsewhere"),
    "a mask along with others": (lambda v: v.index_put((torch.tensor([0, 1]), torch.tensor([True, False, True] * 2)), v[0, 0]), "index_put.*by a mask along"),
}


class Line(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, v):
        return self.function(v)


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_has_a_line_a_reason_and_two_ways_out(name):
    function, reason = REFUSED[name]
    with pytest.raises(dcml.UnsupportedOpError, match=reason) as refused:
        DaceModule(Line(function))(x)
    for part in ('torch.compile(model, backend="dcml") splits the graph', "move the line out of forward", f"({__file__}:"):
        assert part in str(refused.value)


def test_an_error_of_torch_in_lowering_names_the_line():
    def raises(b, n, v):
        raise RuntimeError("torch compares an extent that values tell")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(TABLE, "aten.hash_tensor.default", raises)
        with pytest.raises(dcml.Error, match="compares an extent") as refused:
            DaceModule(Line(torch.hash_tensor))(x)
    assert f"({__file__}:" in str(refused.value) and "return self.function(v))" in str(refused.value)


def test_the_graph_is_split_around_a_disabled_function():
    @torch.compiler.disable
    def fraction(v):
        return torch.frexp(v)[0]
    module = Call(lambda v: (fraction(v * 2) + v).sin())
    torch.testing.assert_close(torch.compile(module, backend="dcml")(x), module(x))


SEEN = {
    "windows": lambda v: (v + 1).as_strided((4, 3, 4), (6, 1, 1)),
    "many blocks": lambda v: (v + 1).repeat(64, 8).as_strided((20, 40, 48), (240, 48, 1), 7),
    "turned": lambda v: (2 * v).t().as_strided((6, 4), (4, 1)),
    "repeated": lambda v: (v * v).flatten().as_strided((3, 4), (0, 5)),
    "an argument": lambda v: v.as_strided((2, 5), (9, 2)),
    "nothing": lambda v: (v * v).as_strided((0, 3), (4, 1)),
    "copied": lambda v: torch.as_strided_copy(v.exp(), (3, 5), (1, 4)),
}


def agrees(function):
    given = [x.clone().requires_grad_() for _ in range(2)]
    results = [module(v) for module, v in zip((DaceModule(Call(function), backward=True), function), given)]
    weights = torch.randn(results[1].shape, generator=torch.Generator().manual_seed(1))
    for result in results:
        (result * weights).sum().backward()
    torch.testing.assert_close(*results)
    torch.testing.assert_close(given[0].grad, given[1].grad)


@pytest.mark.parametrize("name", SEEN)
def test_a_view_by_strides_reads_what_lies_there(name):
    agrees(SEEN[name])


def test_statistics_of_a_layer_norm_carry_no_gradient():
    agrees(lambda v: torch.cat([t.flatten() for t in torch.native_layer_norm(v, (6,), None, None, 0.5)]))
    agrees(lambda v: F.layer_norm(v, (6,)))


def grouped(v, weight, ends):
    return F.grouped_mm(v.bfloat16(), weight.bfloat16(), offs=ends).float()  # of which torch knows in bfloat16 only how it looks


def by_hand(v, weight, ends):
    return torch.cat([v[begin:end] @ w for begin, end, w in zip([0, *ends], ends, weight)])


@pytest.mark.skipif(not hasattr(F, "grouped_mm"), reason="of newer releases of torch")
def test_rows_of_experts_are_multiplied_with_the_matrix_of_their_group():
    weight, ends = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(2)), torch.tensor([1, 1, 4], dtype=torch.int32)
    module, results = DaceModule(Call(grouped), backward=True), []
    for function, groups in ((module, ends), (by_hand, ends.tolist())):
        given = [t.clone().requires_grad_() for t in (torch.cat([x, x[:, :2]], 1), weight)]
        y = function(*given, groups)
        results.append([y, *torch.autograd.grad(y.sin().sum(), given)])
    torch.testing.assert_close(*results, rtol=5e-2, atol=5e-2)
