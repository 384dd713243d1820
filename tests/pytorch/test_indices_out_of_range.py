"""An index outside its range is an error that names the node, also where it is the same in all iterations of a loop."""
import dcml
import pytest
import torch
import torch.nn.functional as F
from dcml.pytorch import DaceModule
from torch import nn


class Rows(nn.Module):
    def forward(self, weight, index):
        return F.embedding(index, weight) * 2


class Added(nn.Module):
    def forward(self, weight, index):
        return torch.zeros(8, weight.shape[1]).index_add(0, index, weight)


@pytest.mark.parametrize("kind", [Rows, Added])
def test_one_index_of_many_is_found(kind):
    module = DaceModule(kind())
    weight, good = torch.randn(8, 40), torch.arange(8).flip(0)
    torch.testing.assert_close(module(weight, good), kind()(weight, good))
    bad = good.clone()
    bad[5] = 8
    with pytest.raises(dcml.Error, match="out of range"):
        module(weight, bad)
    torch.testing.assert_close(module(weight, good), kind()(weight, good))


def test_no_element_is_looked_at_in_rows_without_columns():
    module = DaceModule(Rows())
    assert module(torch.randn(8, 0), torch.tensor([9])).shape == (1, 0)
