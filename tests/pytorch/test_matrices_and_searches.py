"""Decompositions of many matrices side by side and of one alone, searches in ordered lines, distinct numbers: as in eager."""
import pytest
import torch

from dcml.pytorch import DaceModule

INF, NAN = float("inf"), float("nan")


class Of(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def same(function, *inputs, tolerance=0.0):
    with torch.no_grad():
        torch.testing.assert_close(DaceModule(Of(function))(*inputs), function(*inputs), rtol=tolerance, atol=tolerance, equal_nan=True)


def matrices(*shape):
    """Well away from singular, and not in an order in which pivots are on the diagonal."""
    generator = torch.Generator().manual_seed(7)
    n = shape[-1]
    x = torch.randn(shape, dtype=torch.float64, generator=generator) + 3 * n**0.5 * torch.eye(n, dtype=torch.float64).flip(0)
    return x


@pytest.mark.parametrize("shape", [(8, 8), (3, 3, 3), (2, 16, 5, 5), (0, 4, 4)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_decompositions_are_those_of_eager_whatever_the_number_of_matrices(shape, dtype):
    *batch, _, n = shape
    x = matrices(*batch, n, n).to(dtype)
    y = torch.linspace(-1, 1, x.shape[:-2].numel() * n * 2, dtype=dtype).reshape(*batch, n, 2)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-10
    same(lambda x, y: (torch.linalg.inv(x), torch.linalg.solve(x, y), torch.linalg.slogdet(x)[0]), x, y, tolerance=tolerance)
    same(lambda x: torch.linalg.cholesky(x @ x.mT), x, tolerance=tolerance * 10)
    same(lambda x, y: torch.linalg.solve_triangular(x.triu() + torch.eye(n, dtype=dtype), y, upper=True), x.abs(), y, tolerance=tolerance)


def test_a_large_matrix_is_worked_on_alone_and_its_columns_in_pieces():
    x = matrices(2, 70, 70)
    y = torch.linspace(-1, 1, 2 * 70 * 130, dtype=torch.float64).reshape(2, 70, 130)
    same(lambda x, y: (torch.linalg.solve(x, y), torch.linalg.cholesky(x @ x.mT)), x, y, tolerance=1e-9)
    lower = x.tril() / 10 + torch.eye(70, dtype=torch.float64)
    for unit in (False, True):
        same(lambda a, y: torch.linalg.solve_triangular(a, y, upper=False, unitriangular=unit), lower / 20, y, tolerance=1e-9)


def test_a_matrix_has_the_same_bits_wherever_it_stands():
    x = matrices(1, 6, 6).float().expand(37, 6, 6).contiguous()
    with torch.no_grad():
        y = DaceModule(Of(lambda x: torch.linalg.cholesky(x @ x.mT)))(x)
    assert torch.equal(y, y[:1].expand(y.shape))


def test_singular_matrices_and_nan_stay_among_themselves():
    x = matrices(20, 4, 4)
    x[3], x[5, 1, 1] = 1.0, NAN
    same(torch.linalg.det, x, tolerance=1e-9)


@pytest.mark.parametrize("rows, columns", [(4, 4), (6, 4), (4, 6)])
@pytest.mark.parametrize("many", [1, 20])
def test_factors_of_matrices_with_pivots_of_zero_are_lapacks(many, rows, columns):
    x = matrices(many, 6, 6)[:, :rows, :columns].clone()
    x[:, :, 0] = x[:, :, 2] = 0
    for matrix in (x, torch.zeros_like(x), torch.ones_like(x)):
        same(lambda x: torch.linalg.lu(x)[1], matrix, tolerance=1e-9)
        same(lambda x: torch.linalg.lu_factor_ex(x).LU.triu(), matrix, tolerance=1e-9)


@pytest.mark.parametrize("rows, columns", [(5, 5), (7, 4), (4, 7)])
@pytest.mark.parametrize("many", [1, 40])
def test_the_first_of_equal_pivots_is_taken_in_the_order_of_the_swaps(many, rows, columns):
    x = torch.randint(-1, 2, (many, rows, columns), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    same(torch.linalg.lu, x, tolerance=1e-12)
    same(lambda x: torch.linalg.lu_factor_ex(x)[:2], x, tolerance=1e-12)


def test_a_gradient_goes_through_decompositions_of_many_matrices():
    x, z = matrices(20, 5, 5).requires_grad_(), matrices(20, 5, 5).requires_grad_()

    def function(x):
        return torch.linalg.det(x) + torch.linalg.inv(x).sum((1, 2)) + torch.linalg.cholesky(x @ x.mT).sum((1, 2))
    DaceModule(Of(function), backward=True)(x).sum().backward()
    function(z).sum().backward()
    torch.testing.assert_close(x.grad, z.grad, rtol=1e-8, atol=1e-8)


def gradients_are_eagers(function, *inputs, tolerance=1e-8):
    given, theirs = ([x.clone().requires_grad_() for x in inputs] for _ in range(2))
    weight = torch.linspace(-1, 2, function(*inputs).numel(), dtype=torch.float64)
    for f, leaves in ((DaceModule(Of(function), backward=True), given), (function, theirs)):
        (f(*leaves).flatten() * weight).sum().backward()
    for ours, other in zip(given, theirs):
        torch.testing.assert_close(ours.grad, other.grad, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("upper", [False, True], ids=["lower", "upper"])
@pytest.mark.parametrize("unit", [False, True], ids=["divided", "unit"])
@pytest.mark.parametrize("shape", [(4, 3), (20, 4, 3), (20, 5, 1), (70, 66)], ids=str)
def test_both_gradients_of_triangular_systems_are_those_of_eager(shape, unit, upper):
    *batch, n, columns = shape
    a = matrices(*batch, n, n) / n + 4 * torch.eye(n, dtype=torch.float64)
    x = torch.linspace(-1, 1, a.shape[:-2].numel() * n * columns, dtype=torch.float64).cos().reshape(shape)
    gradients_are_eagers(lambda a, x: torch.linalg.solve_triangular(a, x, upper=upper, unitriangular=unit), a, x)


def test_gradients_go_through_systems_whose_operands_are_views_and_that_are_read_again():
    a, x = matrices(20, 4, 4) / 4 + 4 * torch.eye(4, dtype=torch.float64), matrices(20, 4, 4)

    def function(a, x):
        lower = a.mT.tril()
        y = torch.linalg.solve_triangular(lower, x[:, :, 1:], upper=False)
        z = torch.linalg.solve_triangular(lower.mT, y.flip(0), upper=True)
        return y * 2 + z + x[:, :, 1:] + torch.cholesky_solve(y, lower)
    gradients_are_eagers(function, a, x)


@pytest.mark.parametrize("n", [12, 16])
def test_the_gradient_of_a_determinant_takes_the_pivots_of_its_value(n):
    """Among numbers of equal size the pivot is a matter of rounding, which differs where it is computed again."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(0, 2, (400, n, n), generator=generator).double() * 2 - 1
    x = x[torch.linalg.det(x).abs() > 0.5][:64]
    gradients_are_eagers(lambda x: torch.linalg.slogdet(x)[1], x)


def test_a_singular_matrix_has_the_gradient_of_its_cofactors():
    x = torch.tensor([[[1.0, 2, 3], [2, 5, 1], [4, 10, 2]], [[2.0, 0, 1], [0, 3, 0], [1, 0, 4]]], dtype=torch.float64).repeat(10, 1, 1)
    leaf = x.clone().requires_grad_()
    DaceModule(Of(torch.linalg.det), backward=True)(leaf).sum().backward()
    cofactors = torch.tensor([[[0.0, 0, 0], [26, -10, -2], [-13, 5, 1]], [[12.0, 0, -3], [0, 7, 0], [-3, 0, 6]]], dtype=torch.float64)
    torch.testing.assert_close(leaf.grad, cofactors.repeat(10, 1, 1))


@pytest.mark.parametrize("n", [0, 17, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64], ids=str)
def test_places_in_an_ordered_line_are_those_of_eager(n, dtype):
    generator = torch.Generator().manual_seed(n)
    edges = (10 * torch.randn(n, generator=generator)).round().sort()[0].to(dtype)
    values = (10 * torch.randn(5, 107, generator=generator)).round()
    if dtype.is_floating_point:
        values[0, :3] = torch.tensor([INF, -INF, NAN])
    same(lambda e, v: (torch.searchsorted(e, v, right=True), torch.bucketize(v, e, out_int32=True)), edges, values.to(dtype))


def test_each_line_of_edges_is_searched_for_its_own_values():
    generator = torch.Generator().manual_seed(1)
    edges, values = torch.randn(3, 4, 50, generator=generator).sort(-1)[0], torch.randn(3, 4, 700, generator=generator)
    same(torch.searchsorted, edges, values)


@pytest.mark.parametrize("x", [torch.tensor([3, 1, 3, -2, 1, 7]), torch.tensor([3.0, NAN, 1.0, NAN, 3.0, INF, -INF]), torch.zeros(0),
                               torch.tensor([[True, False], [True, True]]), torch.tensor([[2, 1], [1, 9]], dtype=torch.uint8)], ids=range(5))
def test_distinct_numbers_are_those_of_eager(x):
    same(torch.unique, x)


@pytest.mark.parametrize("axis,dtype", [(-1, torch.int64), (0, torch.float64), (1, torch.complex128)], ids=str)
def test_cross_products_along_any_axis(axis, dtype):
    generator = torch.Generator().manual_seed(2)
    x, y = ((10 * torch.randn(3, 3, 3, dtype=torch.float64, generator=generator)).to(dtype) for _ in range(2))
    same(lambda x, y: torch.linalg.cross(x, y, dim=axis), x, y, tolerance=1e-10)
    same(lambda x, y: torch.linalg.cross(x[:1] if axis != 0 else x, y, dim=axis), x, y, tolerance=1e-10)


def test_the_gradient_of_a_cross_product_is_eagers():
    given = [matrices(7, 3, 3).requires_grad_(), matrices(7, 3, 3).mT.contiguous().requires_grad_()]
    theirs = [x.detach().clone().requires_grad_() for x in given]
    weight = torch.linspace(-1, 1, 63, dtype=torch.float64).reshape(7, 3, 3)
    for axis in (1, 2):
        (DaceModule(Of(lambda x, y: torch.linalg.cross(x, y, dim=axis)), backward=True)(*given) * weight).sum().backward()
        (torch.linalg.cross(*theirs, dim=axis) * weight).sum().backward()
    for ours, other in zip(given, theirs):
        torch.testing.assert_close(ours.grad, other.grad)


def test_distances_of_pairs_are_exact_far_from_zero_and_flat_where_rows_are_equal():
    x = 1000 + 0.01 * matrices(9, 9)
    x[4] = x[2]
    given, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    same(torch.nn.functional.pdist, x, tolerance=1e-9)
    weight = torch.linspace(-1, 1, 36, dtype=torch.float64)
    (DaceModule(Of(torch.nn.functional.pdist), backward=True)(given) * weight).sum().backward()
    (torch.nn.functional.pdist(theirs) * weight).sum().backward()
    torch.testing.assert_close(given.grad, theirs.grad, rtol=1e-6, atol=1e-6)


ONE = {"det": torch.linalg.det, "slogdet": lambda x: torch.linalg.slogdet(x)[1], "lower": lambda x: torch.linalg.lu(x)[1],
       "upper": lambda x: torch.linalg.lu(x)[2], "both": torch.linalg.lu_factor, "inv": torch.linalg.inv, "qr": torch.linalg.qr,
       "cholesky": lambda x: torch.linalg.cholesky(x @ x.mT), "eigh": lambda x: torch.linalg.eigh(x @ x.mT)[0], "svd": torch.linalg.svdvals,
       "pinv": torch.linalg.pinv, "exp": torch.matrix_exp, "triangular": lambda x: torch.linalg.solve_triangular(x, x + 1, upper=True)}


@pytest.mark.parametrize("shape", [(1, 1), (3, 1, 1)], ids=str)
@pytest.mark.parametrize("name", ONE)
def test_matrices_of_one_number_have_values_and_gradients(name, shape):
    x, found = (matrices(*shape).abs() + 0.5).requires_grad_(), []
    for function in (ONE[name], DaceModule(Of(ONE[name]), backward=True)):
        results = function(x)
        results = [y for y in (results if isinstance(results, tuple) else [results]) if y.is_floating_point()]
        found.append([*results, *torch.autograd.grad(sum(y.square().sum() for y in results), x)])
    torch.testing.assert_close(*found)
