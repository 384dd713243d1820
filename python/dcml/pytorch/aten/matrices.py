"""Matrix decompositions and what is made of them: linear systems, determinants, pseudo-inverses.

The one idea: rows of ops.def find a decomposition of a matrix without a history, and one step that is linear in
x - x.detach(), which is zero, carries the gradient: a step of Newton's method, or torch's forward-mode derivative.
Must not know: graphs or operators.
"""
import torch

from .decomposed import of


def _rows(pivots, x):
    return pivots.unsqueeze(-1).expand(x.shape)


def _factors(x):
    """L with its rows in the order of pivots, U and the pivots, without a history, and how often a pivot is zero."""
    lower, upper, pivots = torch.ops.dcml.lu(x.detach())
    lower = lower.gather(-2, _rows(pivots, x))
    return lower, upper, pivots, (lower.diagonal(0, -2, -1) == 0).sum(-1, dtype=torch.int32)


def _substituted(lower, upper, x):
    """(L U)^-1 x."""
    return torch.linalg.solve_triangular(upper, torch.linalg.solve_triangular(lower, x, upper=False), upper=True)


def _inverted(x):
    """x^-1 without a history, and how often it divided by zero."""
    lower, upper, pivots, failures = _factors(x)
    turned = (pivots.unsqueeze(-1) == torch.arange(x.shape[-1])).to(x.dtype)
    return _substituted(lower, upper, turned).detach(), failures


@of("linalg_inv_ex.default")
def _inverse(x, *, check_errors=False):
    """A step of Newton's method, which carries the gradient."""
    y, failures = _inverted(x)
    return 2 * y - y @ x @ y, failures


def _solved(a, x):
    """A^-1 X by a step of refinement, which carries the gradient; and failures."""
    if a.shape[:-2] == x.shape[:-2]:
        lower, upper, pivots, failures = _factors(a)

        def solve(y):
            return _substituted(lower, upper, y.gather(-2, _rows(pivots, y)))
    else:  # one matrix for many sides
        inverse, failures = _inverted(a)

        def solve(y):
            return inverse @ y
    first = solve(x.detach()).detach()
    return first + solve(x - a @ first), failures


@of("_linalg_solve_ex.default")
def _solve(a, x, *, left=True, check_errors=False):
    vector = x.dim() == 1 or x.dim() == a.dim() - 1 and x.shape == a.shape[:-1]
    x = x.unsqueeze(-1) if vector else x
    y, failures = _solved(a, x) if left else _solved(a.mT, x.mT)
    y = y.squeeze(-1) if vector else y if left else y.mT
    return y, a, torch.zeros(a.shape[:-1], dtype=torch.int32), failures


def _signed(x):
    """(sign of the permutation, diagonal of L, what else torch returns)."""
    lower, _, pivots = torch.ops.dcml.lu(x)
    swaps = (pivots.unsqueeze(-1) > pivots.unsqueeze(-2)).triu(1).sum((-2, -1))
    diagonal = lower.gather(-2, _rows(pivots, x)).diagonal(0, -2, -1)
    return (1 - 2 * (swaps % 2)).to(x.dtype), diagonal, (x, pivots.to(torch.int32))


@of("_linalg_det.default")
def _det(x):
    sign, diagonal, rest = _signed(x)
    return sign * diagonal.prod(-1), *rest


@of("_linalg_slogdet.default")
def _slogdet(x):
    sign, diagonal, rest = _signed(x)
    return sign * diagonal.sign().prod(-1), diagonal.abs().log().sum(-1), *rest


def _pivoted(x):
    """L below its diagonal of ones with its rows in their order, U, its diagonal, the order and the swaps that lead to it.  What is
    not square is filled up with zeros, which no pivot is chosen of while another is left."""
    rows, columns = x.shape[-2:]
    k, gap = min(rows, columns), abs(rows - columns)
    square = x if rows == columns else torch.nn.functional.pad(x, (0, gap) if rows > columns else (0, 0, 0, gap))
    lower, upper, pivots = torch.ops.dcml.lu(square)
    swaps = torch.ops.dcml.swaps(pivots)[..., :k]
    order = pivots if rows == columns else torch.ops.dcml.swapped(swaps, torch.arange(rows))
    lower = lower[..., :rows, :k].gather(-2, order.unsqueeze(-1).expand(*x.shape[:-1], k))
    diagonal, upper = lower.diagonal(0, -2, -1), upper[..., :k, :columns]
    scale = torch.where(diagonal == 0, 1, diagonal)  # all below a pivot of zero is zero as well
    lower = (lower / scale.unsqueeze(-2)).tril(-1)
    return lower, upper.triu(1) * scale.unsqueeze(-1) + _eye(k, columns, x) * diagonal.unsqueeze(-1), diagonal, order, swaps


def _eye(rows, columns, like):
    return torch.eye(rows, columns, dtype=like.dtype)


@of("linalg_lu.default")
def _lu(x, *, pivot=True):
    if not pivot:
        return NotImplemented
    lower, upper, _, order, _ = _pivoted(x)
    permutation = (order.unsqueeze(-2) == torch.arange(x.shape[-2]).unsqueeze(-1)).to(x.dtype)
    return permutation, lower + _eye(*lower.shape[-2:], x), upper


@of("linalg_lu_factor_ex.default")
def _lu_factor(x, *, pivot=True, check_errors=False):
    if not pivot:
        return NotImplemented
    lower, upper, diagonal, _, swaps = _pivoted(x)
    rows, columns = x.shape[-2:]
    k, pad = min(rows, columns), torch.nn.functional.pad
    first = (diagonal == 0).logical_not().cumprod(-1).sum(-1)  # the first zero pivot counts from one
    failures = torch.where(first == k, 0, first + 1).to(torch.int32)
    lower = lower if k == columns else pad(lower, (0, columns - k))
    upper = upper if k == rows else pad(upper, (0, 0, 0, rows - k))
    return lower + upper, swaps.to(torch.int32), failures


def _order(swaps, rows):
    """The permutation matrix P of P L U."""
    order = torch.ops.dcml.swapped(swaps, torch.arange(rows))
    return torch.arange(rows).unsqueeze(-1) == order.unsqueeze(-2)


@of("lu_unpack.default")
def _lu_unpack(factors, swaps, unpack_data=True, unpack_pivots=True):
    rows, columns = factors.shape[-2:]
    k = min(rows, columns)
    none = factors.new_zeros(0)
    order = _order(swaps, rows).to(factors.dtype) if unpack_pivots else none
    if not unpack_data:
        return order, none, none
    return order, factors[..., :k].tril(-1) + _eye(rows, k, factors), factors[..., :k, :].triu()


@of("linalg_lu_solve.default")
def _lu_solve(factors, swaps, x, *, left=True, adjoint=False):
    if not left:
        return _lu_solve(factors, swaps, x.mT, adjoint=not adjoint).mT
    order = _order(swaps, factors.shape[-1]).to(x.dtype)
    solve = torch.linalg.solve_triangular
    if adjoint:
        first = solve(factors.mT, x, upper=False)
        return order @ solve(factors.mT, first, upper=True, unitriangular=True)
    return solve(factors, solve(factors, order.mT @ x, upper=False, unitriangular=True), upper=True)


@of("linalg_solve_triangular.default")
def _solve_triangular(a, x, *, upper, left=True, unitriangular=False):
    if not left:
        return torch.linalg.solve_triangular(a.mT, x.mT, upper=not upper, unitriangular=unitriangular).mT
    batch = torch.broadcast_shapes(a.shape[:-2], x.shape[:-2])
    if batch == a.shape[:-2] == x.shape[:-2]:
        return NotImplemented
    return torch.linalg.solve_triangular(a.expand(*batch, *a.shape[-2:]), x.expand(*batch, *x.shape[-2:]), upper=upper,
                                         unitriangular=unitriangular)


@of("triangular_solve.default")
def _old_triangular_solve(x, a, upper=True, transpose=False, unitriangular=False):
    matrix = a.mT if transpose else a
    return torch.linalg.solve_triangular(matrix, x, upper=upper != transpose, unitriangular=unitriangular), a.clone()


def _by_factor(factor, upper):
    """(A, A^-1 without a history) of a Cholesky factor, of which one triangle counts; torch's gradient fills both."""
    lower = factor.mT if upper else factor
    lower = lower + (lower.tril() - lower).detach()
    one = torch.eye(factor.shape[-1], dtype=factor.dtype).expand(factor.shape)
    first = torch.linalg.solve_triangular(lower.detach(), one, upper=False)
    return lower @ lower.mT, (first.mT @ first).detach()


@of("cholesky_solve.default")
def _cholesky_solve(x, factor, upper=False):
    a, inverse = _by_factor(factor, upper)
    first = (inverse @ x.detach()).detach()
    return first + inverse @ (x - a @ first)


@of("cholesky_inverse.default")
def _cholesky_inverse(factor, upper=False):
    a, inverse = _by_factor(factor, upper)
    return 2 * inverse - inverse @ a @ inverse


@of("linalg_matrix_exp.default")
def _matrix_exp(x):
    """Taylor's series of x / 2^s, whose norm is below a half, then s squarings, at most 16; of halves in float32."""
    if x.dtype in (torch.float16, torch.bfloat16):
        return _matrix_exp(x.float()).to(x.dtype)
    norm = x.abs().sum(-1).amax(-1)
    s = torch.log2(norm.clamp(0.25)).ceil().clamp(0, 15) + 1
    small = x / torch.exp2(s)[..., None, None]
    one = torch.eye(x.shape[-1], dtype=x.dtype)
    y = one
    for k in range(14, 0, -1):
        y = one + small @ y / k
    for k in range(16):
        y = torch.where((s > k)[..., None, None], y @ y, y)
    return y


# -- orthogonal decompositions ---------------------------------------------------------------------
def _change(x):
    """Zero, whose gradient is x's."""
    return x - x.detach()


def _adjoint_solved(r, x):
    """X R^-1 of an upper triangle without a history; a zero of its diagonal counts as one."""
    one = torch.eye(r.shape[-1], dtype=r.dtype)
    whole = torch.where((r == 0) & (one == 1), one, r)
    return x @ torch.linalg.solve_triangular(whole, one.expand(r.shape), upper=True).detach()


def _unit(x, rows, columns):
    """Of a matrix without elements: any orthogonal matrix does, torch takes the identity."""
    return torch.eye(rows, columns, dtype=x.dtype).expand(*x.shape[:-2], rows, columns)


@of("linalg_qr.default")
def _qr(x, mode="reduced"):
    """linalg_qr_jvp of FunctionsManual.cpp."""
    if 0 in x.shape:
        rows, columns = x.shape[-2:]
        inner = rows if mode == "complete" else min(rows, columns)
        q = x.new_zeros(0) if mode == "r" else _unit(x, rows, inner)
        return q, x.new_zeros(*x.shape[:-2], inner, columns)
    q, r = (t.detach() for t in torch.ops.dcml.qr(x.detach(), mode == "complete")[:2])
    rows, columns = x.shape[-2:]
    if mode == "r" or mode == "complete" and rows > columns:  # torch has no gradient
        return (x.new_zeros(0) if mode == "r" else q), r
    k = min(rows, columns)
    change = _change(x)
    relative = _adjoint_solved(r[..., :k], change[..., :k])
    inner = q.mT @ relative
    slope = (inner + inner.mT).triu() - torch.diag_embed(inner.diagonal(0, -2, -1))
    turned = relative - q @ slope
    others = q.mT @ change[..., k:] + turned.mT @ x.detach()[..., k:]
    return q + turned, r + torch.cat([slope @ r[..., :k], others], -1)


def geqrf(x):
    """torch.geqrf, which torch.export cannot tell the results of; without a gradient."""
    _, r, vectors, factors = torch.ops.dcml.qr(x.detach(), True)
    below = vectors.tril(-1)
    below = torch.cat([below, x.new_zeros(*x.shape[:-1], x.shape[-1] - below.shape[-1])], -1)
    return torch.return_types.geqrf((r.detach() + below, factors.diagonal(0, -2, -1)))


@of("linalg_householder_product.default")
def _householder_product(vectors, tau):
    """The first columns of the product of reflections, from the last one on."""
    q = torch.eye(*vectors.shape[-2:], dtype=vectors.dtype).expand(vectors.shape)
    for k in reversed(range(tau.shape[-1])):
        q = q - _reflected(vectors, tau, k, q)
    return q


def _reflected(vectors, tau, k, x):
    """tau v v' x of reflection k."""
    rows = torch.arange(vectors.shape[-2]).unsqueeze(-1)
    v = torch.where(rows > k, vectors[..., k:k + 1], (rows == k).to(x.dtype))
    return tau[..., k, None, None] * v @ (v.mT @ x)


@of("ormqr.default")
def _ormqr(vectors, tau, x, left=True, transpose=False):
    if not left:
        return _ormqr(vectors, tau, x.mT, True, not transpose).mT
    order = range(tau.shape[-1])
    for k in order if transpose else reversed(order):
        x = x - _reflected(vectors, tau, k, x)
    return x


def _singular(x):
    """(U, S, V) without a history of a matrix that has no more columns than rows."""
    scaled, v = torch.ops.dcml.jacobi(x)
    s, order = scaled.norm(dim=-2).sort(-1, descending=True)
    columns = order.unsqueeze(-2)
    scaled = scaled.gather(-1, columns.expand(scaled.shape))
    some = s > s[..., :1] * (torch.finfo(x.dtype).eps * 0.1)
    unit = torch.where(some.unsqueeze(-2), scaled / torch.where(some, s, 1).unsqueeze(-2), 0)
    return unit, some, s, v.gather(-1, columns.expand(v.shape))


def _completed(unit, some, full):
    """An orthogonal matrix that begins with the columns that are not zero."""
    q, r = torch.ops.dcml.qr(unit, full)[:2]
    sign = torch.where(some & (r.diagonal(0, -2, -1) < 0), -1, 1).to(unit.dtype)
    sign = torch.cat([sign, unit.new_ones(*sign.shape[:-1], q.shape[-1] - sign.shape[-1])], -1)
    return q * sign.unsqueeze(-2)


def _gaps(s):
    """1 / (s_j - s_i), zero where that is not finite."""
    gap = s.unsqueeze(-2) - s.unsqueeze(-1)
    return torch.where(gap == 0, 0, 1 / torch.where(gap == 0, 1, gap))


@of("_linalg_svd.default")
def _svd(x, full_matrices=False, compute_uv=True, *, driver=None):
    """svd_jvp of FunctionsManual.cpp."""
    if 0 in x.shape:
        rows, columns = x.shape[-2:]
        s = x.new_zeros(*x.shape[:-2], min(rows, columns))
        if not compute_uv:
            return x.new_zeros(0), s, x.new_zeros(0)
        k = None if full_matrices else min(rows, columns)
        return _unit(x, rows, rows if k is None else k), s, _unit(x, columns if k is None else k, columns)
    if x.shape[-2] < x.shape[-1]:
        u, s, v = _svd(x.mT, full_matrices, compute_uv)
        return (v.mT, s, u.mT) if compute_uv else (u, s, v)
    rows, columns = x.shape[-2:]
    unit, some, s, v = _singular(x.detach())
    if not compute_uv:
        u = _completed(unit, some, False).detach()
        s = s.detach() + (u.mT @ _change(x) @ v.detach()).diagonal(0, -2, -1)
        return x.new_zeros(0), s, x.new_zeros(0)
    whole = _completed(unit, some, full_matrices).detach()
    u, s, v = whole[..., :columns], s.detach(), v.detach()
    inner = u.mT @ _change(x) @ v
    slope = inner.diagonal(0, -2, -1)
    row, column, gaps = s.unsqueeze(-1), s.unsqueeze(-2), _gaps(s * s)
    left = u @ (gaps * (inner * column + row * inner.mT))
    right = v @ (gaps * (row * inner + inner.mT * column))
    if rows > columns:
        outer = _change(x) @ v
        left = left + (outer - u @ (u.mT @ outer)) / torch.where(column == 0, 1, column)
    left = torch.cat([u + left, whole[..., columns:]], -1)
    return left, s + slope, (v + right).mT


@of("_linalg_eigh.default")
def _eigh(x, uplo="L", compute_v=True):
    """linalg_eig_jvp of FunctionsManual.cpp; the matrix plus a multiple of one that makes it positive."""
    if 0 in x.shape:
        return x.new_zeros(x.shape[:-1]), x.new_zeros(x.shape if compute_v else 0)
    held = x.detach()
    lower = held.tril() if uplo == "L" else held.triu().mT
    held = lower + lower.tril(-1).mT
    shift = held.abs().sum(-1).amax(-1)[..., None, None]
    scaled, v = torch.ops.dcml.jacobi(held + shift * torch.eye(x.shape[-1], dtype=x.dtype))
    order = scaled.norm(dim=-2).argsort(-1).unsqueeze(-2)
    v = v.gather(-1, order.expand(v.shape)).detach()
    s = (v * (held @ v)).sum(-2).detach()
    inner = v.mT @ _change(x) @ v
    slope = s + inner.diagonal(0, -2, -1)
    return slope, v + v @ (_gaps(s) * inner) if compute_v else x.new_zeros(0)


@of("linalg_pinv.atol_rtol_tensor")
def _pinv(x, *, atol=None, rtol=None, hermitian=False):
    """pinv_jvp of FunctionsManual.cpp, by Golub and Pereyra (1973)."""
    if 0 in x.shape:
        return x.mT
    held = x.detach()
    if hermitian:
        held = held.tril() + held.tril(-1).mT
    u, s, vh = (t.detach() for t in torch.linalg.svd(held, full_matrices=False))
    atol = torch.zeros((), dtype=x.dtype) if atol is None else atol
    if rtol is None:
        rtol = torch.where(atol > 0, 0, torch.finfo(x.dtype).eps * max(x.shape[-2:])).to(x.dtype)
    some = s > torch.maximum(atol.unsqueeze(-1), rtol.unsqueeze(-1) * s[..., :1])
    inverse = (vh.mT @ (torch.where(some, 1 / torch.where(some, s, 1), 0).unsqueeze(-1) * u.mT)).detach()
    change = _change(x)
    left, right = inverse @ held, held @ inverse
    turned = change.mT @ inverse.mT @ inverse
    result = inverse - inverse @ change @ inverse + turned - left @ turned
    turned = inverse @ inverse.mT @ change.mT
    return result + turned - turned @ right


def lstsq(a, x, rcond=None, *, driver=None):
    """torch.linalg.lstsq, which torch.export cannot tell the results of: (solution, residuals, rank, singular values),
    of which LAPACK's drivers leave some empty."""
    vector = x.dim() == 1 or x.dim() == a.dim() - 1 and x.shape == a.shape[:-1]
    many = x.unsqueeze(-1) if vector else x
    solution = torch.linalg.pinv(a, rtol=rcond) @ many
    rows, columns = a.shape[-2:]
    none = a.new_zeros(0)
    residuals, s, rank = none, none, torch.zeros(0, dtype=torch.int64)
    if driver != "gels":
        s = torch.linalg.svdvals(a.detach())  # without a gradient, as in eager
        small = torch.finfo(a.dtype).eps * max(rows, columns) if rcond is None else rcond
        rank = (s > small * s[..., :1]).sum(-1)
        s = none if driver in (None, "gelsy") else s
    if rows > columns and driver not in (None, "gelsy"):
        residuals = (a @ solution - many).square().sum(-2)
    return torch.return_types.linalg_lstsq((solution.squeeze(-1) if vector else solution, residuals, rank, s))
