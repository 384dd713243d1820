"""Equations whose operands are multiplied as matrices, in any order of their axes, or two by two."""
import pytest
import torch
from small import Calls

from dcml.pytorch import DaceModule

EQUATIONS = {
    "ij,jk->ik": [(9, 8), (8, 10)],
    "ki,jk->ij": [(8, 9), (10, 8)],
    "ik,jk->ji": [(9, 8), (10, 8)],
    "ibh,hnd->ibnd": [(9, 3, 16), (16, 2, 8)],
    "ibnd,jbnd->bnij": [(9, 3, 2, 8), (10, 3, 2, 8)],
    "bnij,jbnd->ibnd": [(3, 2, 9, 10), (10, 3, 2, 8)],
    "ibnd,hnd->ibh": [(9, 3, 2, 8), (16, 2, 8)],
    "bhqd,bkhd->bhqk": [(2, 3, 9, 8), (2, 10, 3, 8)],
    "nd,edh->enh": [(9, 8), (3, 8, 10)],
    "abcd,cdba->": [(3, 4, 5, 2), (5, 2, 4, 3)],
    "...k,jk->...j": [(2, 9, 8), (10, 8)],
    "k...i,...kj->j...i": [(8, 3, 9), (3, 8, 10)],
    "zik,kj->zij": [(0, 9, 8), (8, 10)],
    "enh,ehd,ne->nd": [(3, 9, 8), (3, 8, 10), (9, 3)],
    "ni,oij,nj->no": [(9, 8), (10, 8, 8), (9, 8)],
    "ik,kj,jl,l->i": [(9, 8), (8, 10), (10, 11), (11,)],
    "iik,kj,j->i": [(9, 9, 8), (8, 10), (10,)],
    "a,b,c->cba": [(3,), (4,), (5,)],
    "i,j,k->": [(3,), (4,), (5,)],
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_an_equation_gives_its_value_and_gradients(equation):
    operands = [torch.randn(shape, requires_grad=True) for shape in EQUATIONS[equation]]
    module = Calls(lambda *x: torch.einsum(equation, *x))
    want, got = module(*operands), DaceModule(module, backward=True)(*operands)
    torch.testing.assert_close(got, want)
    cotangent = torch.randn_like(want)
    for mine, theirs in zip(*(torch.autograd.grad(y, operands, cotangent) for y in (got, want))):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_each_batch_has_its_own_size():
    module = Calls(lambda q, k: torch.einsum("ibnd,jbnd->bnij", q, k))
    compiled = DaceModule(module)
    for batch in (3, 1, 5):
        q, k = torch.randn(9, batch, 2, 8), torch.randn(10, batch, 2, 8)
        torch.testing.assert_close(compiled(q, k), module(q, k))


def test_one_of_whole_numbers_is_exact():
    a, b = torch.randint(-(1 << 40), 1 << 40, (9, 8)), torch.randint(-9, 9, (8, 10))
    module = Calls(lambda x, y: torch.einsum("ij,jk->ik", x, y))
    assert torch.equal(DaceModule(module)(a, b), module(a, b))
