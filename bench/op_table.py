"""Which operators bench/ops.py measures: a name, a function of tensors, their shapes; it must not know who runs them."""
import torch
import torch.nn.functional as F

FLAT, SQUARE, IMAGES, WIDE = (1 << 20,), (1024, 1024), (16, 64, 32, 32), (8, 128, 32, 32)


def _seeds(n, *shape):
    return torch.randint(0, n, shape, generator=torch.Generator().manual_seed(2))


def _state(kind, **options):
    torch.manual_seed(3)
    return kind(256, 256, batch_first=True, **options)


def _unary():
    for name in ("abs", "neg", "exp", "sin", "cos", "sinh", "cosh", "asinh", "tanh", "sigmoid", "erf", "relu", "atan", "square", "expm1",
                 "floor", "ceil", "round", "sign", "trunc", "frac", "exp2", "erfc", "sinc", "deg2rad"):
        yield name, getattr(torch, name), [FLAT]
    for name in ("softplus", "softsign", "hardswish", "mish", "leaky_relu", "elu", "celu", "selu", "hardsigmoid", "gelu", "silu",
                 "hardtanh", "logsigmoid", "softshrink", "hardshrink", "relu6", "tanhshrink"):
        yield name, getattr(F, name), [FLAT]
    yield "gelu tanh", lambda x: F.gelu(x, approximate="tanh"), [FLAT]
    for name in ("log", "log1p", "log2", "log10", "sqrt", "reciprocal", "rsqrt", "lgamma", "digamma"):
        yield name, lambda x, f=getattr(torch, name): f(x.abs() + 0.5), [FLAT]
    for name in ("asin", "acos", "atanh", "tan", "erfinv"):
        yield name, lambda x, f=getattr(torch, name): f(x * 0.1), [FLAT]
    yield "acosh", lambda x: (x.abs() + 1.5).acosh(), [FLAT]
    yield "logit", lambda x: x.sigmoid().logit(1e-6), [FLAT]
    yield "xlogy", lambda x: torch.xlogy(x, x.abs() + 0.5), [FLAT]
    for exponent in (2, 3, 0.5, -1.5):
        yield f"pow {exponent}", lambda x, e=exponent: (x.abs() + 0.5) ** e, [FLAT]
    yield "threshold", lambda x: F.threshold(x, 0.1, 20.0), [FLAT]
    yield "nan_to_num", torch.nan_to_num, [FLAT]
    yield "masked_fill", lambda x: x.masked_fill(x > 0.5, -1e9), [FLAT]
    yield "clamp below", lambda x: x.clamp(min=0.1), [FLAT]
    yield "isnan", lambda x: x.isnan(), [FLAT]
    for name in ("half", "bfloat16", "double", "long", "int", "bool"):
        yield "to " + name, lambda x, n=name: getattr(x, n)(), [FLAT]
    yield "clamp", lambda x: x.clamp(-0.5, 0.7), [FLAT]
    yield "glu", lambda x: F.glu(x), [SQUARE]
    yield "tril", torch.tril, [SQUARE]
    yield "triu", lambda x: x.triu(1), [SQUARE]
    yield "prelu", F.prelu, [IMAGES, (64,)]


def _binary():
    for name in ("add", "sub", "mul", "maximum", "minimum", "atan2"):
        yield name, getattr(torch, name), [SQUARE, SQUARE]
        yield name + " of a row", getattr(torch, name), [SQUARE, (1024,)]
        yield name + " of a column", getattr(torch, name), [SQUARE, (1024, 1)]
    yield "div", lambda x, y: x / (y.abs() + 0.5), [SQUARE, SQUARE]
    yield "pow", lambda x, y: (x.abs() + 0.5) ** y, [SQUARE, SQUARE]
    yield "where", lambda x, y: torch.where(x > 0, x, y), [SQUARE, SQUARE]
    yield "where to a number", lambda x: torch.where(x > 0, x, 0.0), [SQUARE]
    yield "remainder", lambda x, y: x.remainder(y.abs() + 0.5), [SQUARE, SQUARE]
    yield "fmod", lambda x, y: x.fmod(y.abs() + 0.5), [SQUARE, SQUARE]
    yield "floor_divide", lambda x, y: x.detach() // (y.detach().abs() + 0.5), [SQUARE, SQUARE]
    for name in ("eq", "gt", "logical_and", "hypot", "logaddexp", "copysign", "fmax"):
        yield name, getattr(torch, name), [SQUARE, SQUARE]
    yield "lerp", lambda x, y: x.lerp(y, 0.3), [SQUARE, SQUARE]
    yield "lerp of tensors", torch.lerp, [SQUARE] * 3
    yield "addcmul", torch.addcmul, [SQUARE] * 3
    yield "addcdiv", lambda x, y, z: x.addcdiv(y, z.abs() + 0.5), [SQUARE] * 3
    yield "add of bfloat16", lambda x, y: x.bfloat16() + y.bfloat16(), [SQUARE, SQUARE]
    yield "add of integers", lambda x: _WHOLE + _WHOLE.t(), [(1,)]
    yield "floor_divide of integers", lambda x: _WHOLE // 7, [(1,)]
    yield "remainder of integers", lambda x: _WHOLE % 7, [(1,)]
    yield "shifts of integers", lambda x: (_WHOLE << 3) ^ (_WHOLE >> 2), [(1,)]


def _shapes():
    yield "permute", lambda x: x.permute(2, 0, 1).contiguous(), [(128, 64, 128)]
    yield "transpose", lambda x: x.t().contiguous(), [SQUARE]
    yield "expand", lambda x: x.expand(1024, 1024).contiguous(), [(1024, 1)]
    yield "tile", lambda x: x.repeat(4, 4), [(256, 256)]
    yield "cat", lambda x, y: torch.cat([x, y], 1), [(1024, 512)] * 2
    yield "cat of rows", lambda x, y: torch.cat([x, y]), [(512, 1024)] * 2
    yield "cat of channels", lambda x, y: torch.cat([x, y], 1), [(16, 32, 32, 32)] * 2
    for axis in (0, 1, 2):
        yield f"stack {axis}", lambda x, y, a=axis: torch.stack([x, y], a), [(1024, 512)] * 2
    yield "chunk", lambda x: x.chunk(2, 1)[0] * x.chunk(2, 1)[1], [SQUARE]
    yield "unbind", lambda x: sum(x.unbind(1)), [(1024, 4, 256)]
    yield "split", lambda x: torch.cat(x.split([300, 724], 1)[::-1], 1), [SQUARE]
    yield "slice", lambda x: x[:, 1::2] * 1, [(1024, 2048)]
    yield "slice of a window", lambda x: x[:, :, 1:-1, 1:-1] * 1, [IMAGES]
    yield "narrow", lambda x: x.narrow(1, 100, 500).contiguous(), [SQUARE]
    yield "flip", lambda x: x.flip(1), [SQUARE]
    yield "flip of rows", lambda x: x.flip(0), [SQUARE]
    yield "rot90", lambda x: x.rot90(1, (2, 3)), [IMAGES]
    yield "roll", lambda x: x.roll(5, 1), [SQUARE]
    yield "roll of windows", lambda x: x.roll((-3, -3), (2, 3)), [IMAGES]
    yield "permute of heads", lambda x: x.view(8, 128, 16, 64).transpose(1, 2).contiguous(), [(8, 128, 1024)]
    yield "to channels last", lambda x: x.permute(0, 2, 3, 1).contiguous(), [IMAGES]
    yield "windows", lambda x: x.view(16, 64, 4, 8, 4, 8).permute(0, 2, 4, 1, 3, 5).contiguous(), [IMAGES]
    yield "strides of Tensor.unfold", lambda x: x.unfold(1, 16, 8) * 1, [(512, 1024)]
    yield "diagonal", lambda x: x.diagonal(0, 1, 2) * 1, [(256, 64, 64)]
    yield "diag_embed", torch.diag_embed, [(256, 64)]
    yield "repeat_interleave", lambda x: x.repeat_interleave(4, 1), [(512, 512)]
    yield "meshgrid", lambda x, y: torch.stack(torch.meshgrid(x, y, indexing="ij")), [(1024,), (512,)]
    yield "arange", lambda x: torch.arange(1 << 20) + x, [(1,)]
    for mode in ("constant", "reflect", "replicate", "circular"):
        yield f"pad {mode}", lambda x, m=mode: F.pad(x, (1, 2, 2, 1), mode=m), [IMAGES]
    yield "pad of sequences", lambda x: F.pad(x, (0, 0, 2, 3)), [(16, 64, 1024)]
    yield "pad by less", lambda x: F.pad(x, (-1, -1, -2, 3)), [IMAGES]
    yield "channel_shuffle", lambda x: F.channel_shuffle(x, 4), [IMAGES]
    yield "pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), [IMAGES]
    yield "pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), [IMAGES]
    yield "gather rows", lambda x: x[_ROWS], [(4096, 256)]
    yield "index_select", lambda x: x.index_select(1, _COLUMNS), [SQUARE]
    yield "embedding", lambda w: F.embedding(_ROWS, w), [(4096, 256)]
    for mode in ("sum", "mean", "max"):
        yield f"embedding_bag {mode}", lambda w, m=mode: F.embedding_bag(_BAGS, w, mode=m), [(4096, 256)]
    yield "gather", lambda x: x.gather(1, _PLACES), [SQUARE]
    yield "gather of columns", lambda x: x.gather(0, _PLACES), [SQUARE]
    yield "take_along_dim", lambda x: x.take_along_dim(x.detach().argsort(1), 1), [(1024, 256)]
    yield "take pairs", lambda x: x[_ROWS[:1024] % 1024, _COLUMNS], [SQUARE]
    yield "scatter", lambda x, y: x.scatter(1, _ORDERS, y), [SQUARE, SQUARE]
    yield "index_put", lambda x, y: x.index_put((_COLUMNS,), y, accumulate=True), [SQUARE, SQUARE]
    yield "index_copy", lambda x, y: x.index_copy(0, _ORDERS[0], y), [SQUARE, SQUARE]
    yield "index_fill", lambda x: x.index_fill(1, _COLUMNS[:100], 0.5), [SQUARE]
    yield "scatter_reduce", lambda x, y: x.scatter_reduce(1, _PLACES, y, "amax"), [SQUARE, SQUARE]
    yield "masked_scatter", lambda x, y: x.masked_scatter(x > 0, y), [SQUARE, SQUARE]
    yield "masked_select", lambda x: x[x > 0], [SQUARE]
    yield "nonzero", lambda x: (x > 1).nonzero(), [SQUARE]
    yield "scatter_add", lambda x, y: x.scatter_add(1, _PLACES, y), [SQUARE, SQUARE]
    yield "index_add", lambda x, y: x.index_add(0, _ROWS, y), [(4096, 256)] * 2
    yield "one_hot", lambda x: F.one_hot(_ROWS % 256, 256) * x, [(4096, 1)]


_ROWS, _PLACES, _CLASSES, _PIXELS = _seeds(4096, 4096), _seeds(1024, 1024, 1024), _seeds(1024, 1024), _seeds(64, 16, 32, 32)
_LABELS = 1 + _seeds(60, 32, 20)
_COLUMNS, _BAGS, _WHOLE, _SIDES = _seeds(1024, 1024), _seeds(4096, 1024, 16), _seeds(1 << 20, 1024, 1024), 2.0 * _seeds(2, 1024, 1024) - 1
_EDGES = torch.linspace(-3, 3, 64)
_ORDERS = torch.rand(1024, 1024, generator=torch.Generator().manual_seed(4)).argsort(1)  # permutations, which scatter writes once


def _sums():
    for name in ("sum", "mean", "amax", "amin", "prod", "logsumexp", "var", "std", "nansum"):
        for axis, where in ((1, "rows"), (0, "columns")):
            yield f"{name} of {where}", lambda x, f=getattr(torch, name), a=axis: f(x, a), [SQUARE]
    for name in ("sum", "mean", "amax", "std", "norm"):
        yield name + " of all", getattr(torch, name), [FLAT]
    for name in ("sum", "mean", "amax", "var"):
        yield name + " of the middle", lambda x, f=getattr(torch, name): f(x, 1), [(32, 64, 512)]
        yield name + " of images", lambda x, f=getattr(torch, name): f(x, (2, 3)), [IMAGES]
        yield name + " of channels", lambda x, f=getattr(torch, name): f(x, (0, 2, 3)), [IMAGES]
    for order in (1, 2, 3, float("inf")):
        yield f"norm {order}", lambda x, o=order: torch.linalg.vector_norm(x, o, dim=1), [SQUARE]
    yield "sum of products", lambda x, y: (x * y).sum(1), [SQUARE, SQUARE]
    yield "sum of bfloat16", lambda x: x.bfloat16().sum(1), [SQUARE]
    yield "sum of integers", lambda x: _WHOLE.sum(1), [(1,)]
    yield "count_nonzero", lambda x: torch.count_nonzero(x, 1), [SQUARE]
    yield "any", lambda x: (x > 4).any(1), [SQUARE]
    yield "all", lambda x: (x > -4).all(0), [SQUARE]
    for name in ("max", "min", "median"):
        for axis, where in ((1, "rows"), (0, "columns")):
            yield f"{name} with places of {where}", lambda x, f=getattr(torch, name), a=axis: f(x, a)[0], [SQUARE]
    yield "argmax", lambda x: x.argmax(1) + x[:, 0], [SQUARE]
    yield "argmax of rows", lambda x: x.argmax(1), [SQUARE]
    yield "argmin of columns", lambda x: x.argmin(0), [SQUARE]
    yield "argmax of all", lambda x: x.argmax(), [FLAT]
    yield "var_mean", lambda x: sum(torch.var_mean(x, 1)), [SQUARE]
    for axis in (0, 1):
        yield f"cumsum {axis}", lambda x, a=axis: x.cumsum(a), [SQUARE]
    yield "cumsum of the middle", lambda x: x.cumsum(1), [(32, 64, 512)]
    yield "cumsum of short rows", lambda x: x.cumsum(1), [(1 << 16, 16)]
    yield "cumsum of a vector", lambda x: x.cumsum(0), [FLAT]
    yield "cumsum of integers", lambda x: _WHOLE.cumsum(1), [(1,)]
    yield "cumprod", lambda x: (1 + 0.01 * x).cumprod(1), [SQUARE]
    yield "cumprod of columns", lambda x: (1 + 0.01 * x).cumprod(0), [SQUARE]
    for name in ("cummax", "cummin"):
        yield name, lambda x, f=getattr(torch, name): f(x, 1)[0], [SQUARE]
    yield "logcumsumexp", lambda x: x.logcumsumexp(1), [SQUARE]
    yield "diff", lambda x: x.diff(), [SQUARE]
    yield "trapezoid", torch.trapezoid, [SQUARE]
    yield "topk", lambda x: x.topk(16, 1)[0], [SQUARE]
    yield "topk of a vector", lambda x: x.topk(100)[0], [FLAT]
    yield "topk of many rows", lambda x: x.topk(2, 1)[0], [(1 << 14, 64)]
    yield "topk of columns", lambda x: x.topk(16, 0)[0], [SQUARE]
    yield "topk of half", lambda x: x.topk(512, 1)[0], [SQUARE]
    yield "sort", lambda x: x.sort(1)[0], [SQUARE]
    yield "sort of columns", lambda x: x.sort(0)[0], [SQUARE]
    yield "sort of a vector", lambda x: x.detach().sort()[0], [FLAT]  # equal elements share a gradient as the sort likes
    yield "sort of short rows", lambda x: x.sort(1)[0], [(1 << 16, 16)]
    yield "sort, falling", lambda x: x.sort(1, descending=True)[0], [SQUARE]
    yield "sort of integers", lambda x: _WHOLE.sort(1)[0], [(1,)]
    yield "argsort", lambda x: x.argsort(stable=True, dim=1), [SQUARE]
    yield "kthvalue", lambda x: x.kthvalue(100, 1)[0], [SQUARE]
    yield "quantile", lambda x: x.quantile(0.3, 1), [SQUARE]
    yield "unique", lambda x: _WHOLE.unique(), [(1,)]
    yield "bincount", lambda x: torch.bincount(_PLACES.flatten(), minlength=1024), [(1,)]
    yield "histc", lambda x: x.histc(64, -3, 3), [FLAT]
    yield "searchsorted", lambda s, x: torch.searchsorted(s.abs().cumsum(0), x), [(1024,), FLAT]
    yield "bucketize", lambda x: torch.bucketize(x, _EDGES), [FLAT]


def _norms():
    for name in ("softmax", "log_softmax"):
        yield name, lambda x, f=getattr(F, name): f(x, -1), [SQUARE]
        yield name + " of columns", lambda x, f=getattr(F, name): f(x, 0), [SQUARE]
        yield name + " of channels", lambda x, f=getattr(F, name): f(x, 1), [IMAGES]
        yield name + " of ten", lambda x, f=getattr(F, name): f(x, 1), [(1 << 17, 10)]
    yield "softmax of the middle", lambda x: F.softmax(x, 1), [(32, 64, 512)]
    yield "softmax, masked", lambda x: F.softmax(x.masked_fill(_WHOLE > 1 << 19, float("-inf")), -1), [SQUARE]
    yield "normalize of channels", lambda x: F.normalize(x, dim=1), [IMAGES]
    yield "normalize", lambda x: F.normalize(x, dim=1), [SQUARE]
    yield "layer_norm", lambda x, w, b: F.layer_norm(x, (1024,), w, b), [SQUARE, (1024,), (1024,)]
    yield "rms_norm", lambda x, w: F.rms_norm(x, (1024,), w), [SQUARE, (1024,)]
    yield "layer_norm of 64", lambda x, w, b: F.layer_norm(x, (64,), w, b), [(1 << 14, 64), (64,), (64,)]
    yield "layer_norm of images", lambda x: F.layer_norm(x, (64, 32, 32)), [IMAGES]
    yield "batch_norm of features", lambda x, w, b: F.batch_norm(x, None, None, w, b, True), [SQUARE, (1024,), (1024,)]
    yield "batch_norm, known", lambda x, w, b: F.batch_norm(x, w.detach(), b.detach().abs(), w, b), [IMAGES, (64,), (64,)]
    yield "weight norm", lambda x, v, g: F.linear(x, torch._weight_norm(v, g, 0)), [(64, 1024), SQUARE, (1024, 1)]
    yield "batch_norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, True), [IMAGES, (64,), (64,)]
    yield "instance_norm", lambda x, w, b: F.instance_norm(x, None, None, w, b), [IMAGES, (64,), (64,)]
    yield "group_norm", lambda x, w, b: F.group_norm(x, 8, w, b), [IMAGES, (64,), (64,)]
    yield "local_response_norm", lambda x: F.local_response_norm(x, 5), [IMAGES]
    yield "cross_entropy", lambda x: F.cross_entropy(x, _CLASSES), [SQUARE]
    yield "cross_entropy of pixels", lambda x: F.cross_entropy(x, _PIXELS), [IMAGES]
    yield "cross_entropy, smoothed", lambda x, w: F.cross_entropy(x, _CLASSES, w.detach().abs(), label_smoothing=0.1), [SQUARE, (1024,)]
    yield "cross_entropy of shares", lambda x, y: F.cross_entropy(x, y.softmax(1)), [SQUARE, SQUARE]
    yield "cross_entropy of ten", lambda x: F.cross_entropy(x, _WHOLE.view(-1)[:1 << 17] % 10), [(1 << 17, 10)]
    yield "nll_loss", lambda x: F.nll_loss(x, _CLASSES), [SQUARE]
    yield "nll_loss of pixels", lambda x: F.nll_loss(x, _PIXELS), [IMAGES]
    for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
        yield name, getattr(F, name), [SQUARE, SQUARE]
    yield "mse_loss of each", lambda x, y: F.mse_loss(x, y, reduction="none"), [SQUARE, SQUARE]
    yield "kl_div", lambda x, y: F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"), [SQUARE, SQUARE]
    yield "binary_cross_entropy", lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()), [SQUARE, SQUARE]
    yield "binary_cross_entropy of shares", lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()), [SQUARE, SQUARE]
    yield "poisson_nll_loss", F.poisson_nll_loss, [SQUARE, SQUARE]
    yield "gaussian_nll_loss", lambda x, y, v: F.gaussian_nll_loss(x, y, v.abs() + 0.1), [SQUARE] * 3
    yield "soft_margin_loss", lambda x: F.soft_margin_loss(x, _SIDES), [SQUARE]
    yield "hinge_embedding_loss", lambda x: F.hinge_embedding_loss(x, _SIDES), [SQUARE]
    yield "margin_ranking_loss", lambda x, y: F.margin_ranking_loss(x, y, _SIDES), [SQUARE, SQUARE]
    yield "multi_margin_loss", lambda x: F.multi_margin_loss(x, _CLASSES), [SQUARE]
    yield "triplet_margin_loss", F.triplet_margin_loss, [(4096, 256)] * 3
    yield "cosine_embedding_loss", lambda x, y: F.cosine_embedding_loss(x, y, _SIDES.view(-1)[:4096]), [(4096, 256)] * 2
    yield "cosine_similarity", F.cosine_similarity, [SQUARE, SQUARE]
    yield "cosine_similarity of channels", F.cosine_similarity, [IMAGES, IMAGES]
    yield "pairwise_distance", F.pairwise_distance, [SQUARE, SQUARE]
    yield "cdist", torch.cdist, [(1024, 64), (1024, 64)]
    yield "cdist 1", lambda x, y: torch.cdist(x, y, 1), [(256, 64), (256, 64)]
    yield "pdist", F.pdist, [(512, 64)]
    yield "ctc_loss", lambda x: F.ctc_loss(x.log_softmax(2), _LABELS, (128,) * 32, (20,) * 32), [(128, 32, 64)]


def _products():
    yield "matmul", torch.matmul, [(512, 512)] * 2
    yield "linear", F.linear, [SQUARE, (256, 1024), (256,)]
    yield "bmm", torch.bmm, [(64, 128, 128)] * 2
    yield "bmm, transposed", lambda x, y: torch.bmm(x, y.transpose(1, 2)), [(64, 128, 128)] * 2
    yield "baddbmm", torch.baddbmm, [(64, 128, 128)] * 3
    yield "addmm", torch.addmm, [(512,), (512, 512), (512, 512)]
    yield "matmul of heads", lambda x, y: x @ y.transpose(-1, -2), [(8, 16, 128, 64)] * 2
    yield "matmul of small ones", torch.matmul, [(4096, 16, 16)] * 2
    yield "matrix by vector", torch.mv, [SQUARE, (1024,)]
    yield "vector by matrix", torch.matmul, [(1024,), SQUARE]
    yield "outer", torch.outer, [(1024,), (1024,)]
    yield "dot", torch.dot, [FLAT, FLAT]
    yield "kron", torch.kron, [(32, 32), (32, 32)]
    yield "tensordot", lambda x, y: torch.tensordot(x, y, ([1, 2], [0, 1])), [(64, 16, 128), (16, 128, 128)]
    yield "bilinear", F.bilinear, [(256, 64), (256, 64), (32, 64, 64)]
    yield "cross", lambda x, y: torch.linalg.cross(x, y), [(1 << 18, 3)] * 2
    for form, shapes in (("bij,jkb->bik", [(32, 64, 64), (64, 64, 32)]), ("bhid,bhjd->bhij", [(8, 8, 128, 64)] * 2),
                         ("bnhd,hdm->bnm", [(8, 128, 8, 64), (8, 64, 128)]), ("ij,ij->i", [SQUARE] * 2), ("i,j->ij", [(1024,)] * 2)):
        yield f"einsum {form}", lambda x, y, f=form: torch.einsum(f, x, y), shapes
    yield "conv2d", lambda x, w, b: F.conv2d(x, w, b, padding=1), [WIDE, (64, 128, 3, 3), (64,)]
    yield "conv2d, stride 2, groups", lambda x, w: F.conv2d(x, w, None, 2, 1, 1, 4), [WIDE, (128, 32, 3, 3)]
    yield "conv2d, depthwise", lambda x, w: F.conv2d(x, w, None, 1, 1, 1, 128), [WIDE, (128, 1, 3, 3)]
    yield "conv1d", lambda x, w: F.conv1d(x, w, padding=2), [(16, 64, 1024), (64, 64, 5)]
    yield "conv3d", lambda x, w: F.conv3d(x, w, padding=1), [(2, 16, 32, 32, 32), (16, 16, 3, 3, 3)]
    yield "conv_transpose2d", lambda x, w: F.conv_transpose2d(x, w, None, 2, 1), [(8, 64, 32, 32), (64, 32, 4, 4)]
    yield "conv_transpose1d", lambda x, w: F.conv_transpose1d(x, w, None, 2, 1), [(16, 64, 512), (64, 32, 4)]
    yield "conv_transpose2d, groups", lambda x, w: F.conv_transpose2d(x, w, None, 2, 1, 0, 4), [(8, 64, 32, 32), (64, 8, 4, 4)]
    yield "fold", lambda x: F.fold(x, 64, 3, padding=1, stride=2), [(4, 288, 1024)]
    yield "unfold", lambda x: F.unfold(x, 3, padding=1), [(4, 32, 32, 32)]
    yield "conv2d of ones", lambda x, w: F.conv2d(x, w), [WIDE, (64, 128, 1, 1)]
    yield "conv2d, dilated", lambda x, w: F.conv2d(x, w, None, 1, 2, 2), [WIDE, (64, 128, 3, 3)]
    yield "conv2d of patches", lambda x, w: F.conv2d(x, w, None, 16), [(8, 3, 224, 224), (192, 3, 16, 16)]
    yield "attention", F.scaled_dot_product_attention, [(8, 8, 128, 64)] * 3
    for name in ("RNN", "GRU", "LSTM"):
        module = _state(getattr(torch.nn, name))
        yield name, lambda x, m=module: m(x)[0], [(16, 32, 256)]


def _images():
    for name, options in (("max_pool2d", {}), ("avg_pool2d", {}), ("lp_pool2d", {"norm_type": 2})):
        yield name, lambda x, f=getattr(F, name), o=options: f(x, kernel_size=3, stride=2, **o), [IMAGES]
    yield "max_pool2d, overlapping", lambda x: F.max_pool2d(x, 3, 1, 1), [IMAGES]
    yield "max_pool2d 9x9, overlapping", lambda x: F.max_pool2d(x, 9, 1, 4), [IMAGES]
    yield "avg_pool2d 9x9, overlapping", lambda x: F.avg_pool2d(x, 9, 1, 4), [IMAGES]
    for name in ("max_pool", "avg_pool"):
        yield name + "2d of two", lambda x, f=getattr(F, name + "2d"): f(x, 2), [IMAGES]
        yield name + "1d", lambda x, f=getattr(F, name + "1d"): f(x, 3, 2, 1), [(16, 64, 1024)]
        yield name + "3d", lambda x, f=getattr(F, name + "3d"): f(x, 2), [(4, 16, 16, 32, 32)]
    yield "max_unpool2d", lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), [IMAGES]
    yield "adaptive_avg_pool1d", lambda x: F.adaptive_avg_pool1d(x, 7), [(16, 64, 1024)]
    yield "adaptive_avg_pool2d to 7", lambda x: F.adaptive_avg_pool2d(x, 7), [(16, 64, 28, 28)]
    yield "adaptive_avg_pool3d", lambda x: F.adaptive_avg_pool3d(x, (1, 4, 4)), [(4, 16, 16, 32, 32)]
    yield "adaptive_max_pool2d to 5", lambda x: F.adaptive_max_pool2d(x, 5), [IMAGES]
    yield "adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, 1), [IMAGES]
    yield "adaptive_avg_pool2d to 5", lambda x: F.adaptive_avg_pool2d(x, 5), [IMAGES]
    yield "adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, 4), [IMAGES]
    for mode in ("nearest", "bilinear", "bicubic", "nearest-exact"):
        yield f"interpolate {mode}", lambda x, m=mode: F.interpolate(x, scale_factor=2, mode=m), [(8, 32, 32, 32)]
    for mode in ("nearest", "bilinear", "bicubic", "area"):
        yield f"interpolate {mode}, smaller", lambda x, m=mode: F.interpolate(x, size=(20, 20), mode=m), [(8, 64, 48, 48)]
    yield "interpolate half", lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"), [(8, 64, 48, 48)]
    yield "interpolate to corners", lambda x: F.interpolate(x, size=(56, 56), mode="bilinear", align_corners=True), [(8, 32, 28, 28)]
    yield "interpolate linear", lambda x: F.interpolate(x, scale_factor=2, mode="linear"), [(16, 64, 512)]
    yield "interpolate trilinear", lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), [(4, 8, 16, 16, 16)]
    for mode in ("bilinear", "bicubic"):
        yield (f"interpolate {mode}, antialiased", lambda x, m=mode: F.interpolate(x, size=(20, 20), mode=m, antialias=True),
               [(8, 64, 48, 48)])
    for mode in ("bilinear", "nearest", "bicubic"):
        yield (f"grid_sample {mode}", lambda x, g, m=mode: F.grid_sample(x, g.tanh(), mode=m, align_corners=False),
               [(8, 32, 64, 64), (8, 64, 64, 2)])
    yield ("grid_sample border", lambda x, g: F.grid_sample(x, g, padding_mode="border", align_corners=True),
           [(8, 32, 64, 64), (8, 64, 64, 2)])
    yield "affine_grid", lambda t: F.affine_grid(t, (8, 3, 256, 256), align_corners=False), [(8, 2, 3)]


_WINDOW = torch.hann_window(256)


def _last(found):
    """The last of several results, such as the logarithm of a determinant beside its sign."""
    return found[-1] if isinstance(found, tuple) else found


def _transforms():
    for n in (1024, 1000, 1009):
        yield f"fft of {n}", lambda x: torch.view_as_real(torch.fft.fft(x)), [(512, n)]
        yield f"rfft of {n}", lambda x: torch.view_as_real(torch.fft.rfft(x)), [(512, n)]
    yield "irfft", lambda x: torch.fft.irfft(torch.view_as_complex(x)), [(512, 513, 2)]
    yield "fft of a vector", lambda x: torch.view_as_real(torch.fft.fft(x)), [(1 << 16,)]
    yield "stft", lambda x: torch.view_as_real(torch.stft(x, 256, 64, window=_WINDOW, return_complex=True)), [(16, 16384)]
    yield "fft2", lambda x: torch.view_as_real(torch.fft.fft2(x)), [(16, 256, 256)]
    for name in ("det", "slogdet", "inv"):
        yield name, lambda x, f=getattr(torch.linalg, name): _last(f(x)), [(4096, 8, 8)]
    yield "solve", torch.linalg.solve, [(4096, 8, 8), (4096, 8, 1)]
    yield "cholesky", lambda x: torch.linalg.cholesky(x @ x.mT + 8 * torch.eye(8)), [(4096, 8, 8)]
    yield "matrix_power", lambda x: torch.linalg.matrix_power(x, 3), [(256, 64, 64)]


GROUPS = (_unary, _binary, _shapes, _sums, _norms, _products, _images, _transforms)
