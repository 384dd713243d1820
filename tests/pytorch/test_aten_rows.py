"""Every ATen row against torch: one function or module a case, captured and run through the core."""
import pytest
import torch
import torch.nn.functional as F
from captured import Call, check
from torch import nn

pytestmark = pytest.mark.usefixtures("interpreted")


def r(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)), dtype=dtype)


def positive(*shape):
    return r(*shape).abs() + 0.1


def unit(*shape):
    return torch.sigmoid(r(*shape))


def ints(high, *shape):
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(high))


x, y, z = r(3, 4), r(3, 4, seed=9), r(2, 3, 4)
i4, j4 = ints(20, 3, 4) - 10, ints(7, 3, 4) - 9
image = r(2, 3, 6, 8)

UNARY = ["abs", "ceil", "cos", "erf", "exp", "floor", "neg", "reciprocal", "relu", "round", "sigmoid", "sign", "sin",
         "sinh", "cosh", "tan", "tanh", "atan", "asinh", "square", "exp2", "expm1", "erfc", "trunc", "frac", "isnan",
         "isinf", "isfinite", "logical_not", "positive"]
UNARY_POSITIVE = ["log", "sqrt", "rsqrt", "log1p", "log2", "log10"]
UNARY_UNIT = ["acos", "asin", "atanh", "logit"]
ACTIVATIONS = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu tanh": lambda a: F.gelu(a, approximate="tanh"),
    "elu": F.elu,
    "elu 2": lambda a: F.elu(a, 2.0),
    "selu": F.selu,
    "celu": lambda a: F.celu(a, 0.7),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardtanh": lambda a: F.hardtanh(a, -0.3, 0.6),
    "relu6": lambda a: F.relu6(8 * a),
    "leaky_relu": F.leaky_relu,
    "softplus": F.softplus,
    "softplus beta": lambda a: F.softplus(a, beta=2),
    "softplus threshold": lambda a: F.softplus(9 * a, threshold=4),
    "mish": F.mish,
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "logsigmoid": F.logsigmoid,
    "threshold": lambda a: F.threshold(a, 0.1, 20),
    "glu": lambda a: F.glu(a, -1),
    "prelu": lambda a: F.prelu(a, torch.tensor([0.2])),
    "prelu channels": (F.prelu, unit(4)),
}
BINARY = {
    "add": lambda a, b: a + b,
    "add alpha": lambda a, b: torch.add(a, b, alpha=3),
    "sub": lambda a, b: a - b,
    "sub alpha": lambda a, b: torch.sub(a, b, alpha=2),
    "rsub": lambda a, b: torch.rsub(a, b),
    "mul": torch.mul,
    "div": torch.div,
    "div floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "div trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "floor_divide": torch.floor_divide,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
}
FLOAT_BINARY = {
    "pow": lambda a, b: a.abs() ** b,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "logaddexp": torch.logaddexp,
    "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "clamp tensors": lambda a, b: torch.clamp(a, b, b + 1),
    "addcmul": lambda a, b: torch.addcmul(a, a, b, value=0.5),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b),
    "where": lambda a, b: torch.where(a > 0, a, b),
    "masked_fill": lambda a, b: a.masked_fill(b > 0, -3.0),
    "scalar right": lambda a, b: (a + 2) * 3 - 1,
    "scalar left": lambda a, b: 2 - (1 / (a + 5)),
    "cosine_similarity": lambda a, b: F.cosine_similarity(a, b, dim=1),
    "cdist": lambda a, b: torch.cdist(a, b),
}
INTEGER = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "not": lambda a, b: ~a,
    "true div": lambda a, b: a / b,
    "mixed": lambda a, b: a * 2.5,
    "bool and": lambda a, b: (a > 0) & (b > 0),
    "bool add": lambda a, b: (a > 0) + (b > 0),
    "to": lambda a, b: a.to(torch.float64).to(torch.int32),
    "relu": lambda a, b: F.relu(a),
    "sum": lambda a, b: (a > 0).sum(),
    "cumsum": lambda a, b: a.cumsum(1),
    "one_hot": lambda a, b: F.one_hot(a.abs(), 12),
}
POWERS = {str(p): (lambda a, p=p: a ** p) for p in (2, 3, 1, 0.5, -1, -0.5, 1.5)}
SHAPES = {
    "view": lambda a: a.view(-1, 4),
    "view last": lambda a: a.view(a.shape[0], -1),
    "flatten": lambda a: a.flatten(1),
    "flatten inner": lambda a: a.flatten(0, 1),
    "unflatten": lambda a: a.unflatten(2, (2, 2)),
    "permute": lambda a: a.permute(2, 0, 1),
    "transpose": lambda a: a.transpose(1, -1),
    "mT": lambda a: a.mT,
    "movedim": lambda a: a.movedim(0, -1),
    "unsqueeze": lambda a: a.unsqueeze(-2),
    "squeeze": lambda a: a[:, :1].squeeze(1),
    "squeeze all": lambda a: a[:, :1].squeeze(),
    "expand": lambda a: a.unsqueeze(1).expand(-1, 5, -1, -1),
    "expand_as": lambda a: a[:, :1].expand_as(a),
    "repeat": lambda a: a.repeat(2, 1, 3),
    "repeat lead": lambda a: a.repeat(2, 1, 1, 1),
    "repeat_interleave": lambda a: a.repeat_interleave(2, dim=1),
    "slice": lambda a: a[:, 1:, ::2],
    "slice end": lambda a: a[:, :-1],
    "select": lambda a: a[:, -1],
    "narrow": lambda a: a.narrow(1, 1, 2),
    "cat": lambda a: torch.cat([a, a * 2], 1),
    "cat mixed": lambda a: torch.cat([a, torch.ones(1, 3, 4, dtype=torch.int64)]),
    "stack": lambda a: torch.stack([a, -a], 1),
    "split": lambda a: a.split(2, 1)[1],
    "split sizes": lambda a: a.split([1, 2], 1),
    "chunk": lambda a: a.chunk(3, 2),
    "unbind": lambda a: a.unbind(1)[2],
    "flip": lambda a: a.flip(1, 2),
    "roll": lambda a: a.roll(1, 1),
    "roll flat": lambda a: a.roll(2),
    "pad": lambda a: F.pad(a, (1, 2)),
    "pad value": lambda a: F.pad(a, (1, 0, 2, 1), value=3.0),
    "pad reflect": lambda a: F.pad(a, (2, 1), mode="reflect"),
    "pad replicate": lambda a: F.pad(a, (1, 3), mode="replicate"),
    "pad circular": lambda a: F.pad(a, (1, 2), mode="circular"),
    "pad circular after a crop": lambda a: F.pad(a, (-1, 1), mode="circular"),
    "safe softmax": lambda a: torch.ops.aten._safe_softmax(torch.where(a > 0, a, -torch.inf), -1),
    "safe softmax, all masked": lambda a: torch.ops.aten._safe_softmax(a * 0 - torch.inf, -1),
    "signbit": lambda a: torch.signbit(torch.where(a > 0, a, -0.0)),
    "copysign": lambda a: torch.copysign(a, -a),
    "round to decimals": lambda a: torch.round(a, decimals=1),
    "round to tens": lambda a: torch.round(100 * a, decimals=-1),
    "topk of one number": lambda a: a.sum().topk(1)[0],
    "cosine similarity of other ranks": lambda a: F.cosine_similarity(a, a[0], dim=-1),
    "pad negative": lambda a: F.pad(a, (-1, -1)),
    "tril": lambda a: a.tril(),
    "triu": lambda a: a.triu(1),
    "diagonal": lambda a: a.diagonal(0, 1, 2),
    "diagonal below": lambda a: a.diagonal(-1, 1, 2),
    "diag_embed": torch.diag_embed,
    "diag_embed above": lambda a: a.diag_embed(2, 0, 2),
    "diag_embed below": lambda a: a.diag_embed(-1, -1, 1),
    "unfold": lambda a: a.unfold(2, 2, 1),
    "unfold windows with gaps": lambda a: a.unfold(2, 2, 3),
    "unfold windows that overlap and leave a rest": lambda a: a.flatten().unfold(0, 5, 3),
    "broadcast_tensors": lambda a: torch.broadcast_tensors(a, a[:, :1])[1],
    "numpy_T": lambda a: a[0].T,
    "to_copy": lambda a: a.double(),
    "type_as": lambda a: a.type_as(torch.ones(1, dtype=torch.int32)),
    "index": lambda a: a[:, torch.tensor([2, 0, 0])],
    "index two": lambda a: a[torch.tensor([1, 0]), torch.tensor([2, 2])],
    "index inner": lambda a: a[:, torch.tensor([1, 0]), torch.tensor([2, -1])],
    "index apart": lambda a: a[torch.tensor([1, 0]), :, torch.tensor([2, 3])],
    "index broadcast": lambda a: a[:, torch.tensor([[0], [1]]), torch.tensor([1, 2, 3])],
    "index_select": lambda a: a.index_select(2, torch.tensor([3, 1])),
    "gather of a scalar": lambda a: a.sum().gather(0, torch.tensor([0, 0, 0])[:1]) + a[0, 0].gather(0, torch.tensor(2)),
    "gather": lambda a: a.gather(1, torch.tensor([[[0, 1, 2, 0]], [[2, 2, 0, 1]]])),
    "take_along_dim": lambda a: torch.take_along_dim(a, a.argsort(1), 1),
    "scatter": lambda a: a.scatter(1, torch.tensor([[[0, 1, 2, 0]], [[2, 2, 0, 1]]]), 7.0),
    "scatter src": lambda a: a.scatter(1, torch.tensor([[[0, 1, 2, 0]], [[2, 2, 0, 1]]]), a * 2),
    "scatter_add": lambda a: a.scatter_add(1, torch.zeros(2, 3, 4, dtype=torch.int64), a),
    "scatter_reduce": lambda a: a.scatter_reduce(2, torch.ones(2, 3, 4, dtype=torch.int64), a, "amax"),
    "index_add": lambda a: a.index_add(1, torch.tensor([0, 2]), torch.ones(2, 2, 4), alpha=2),
    "index_copy": lambda a: a.index_copy(1, torch.tensor([0, 2]), torch.ones(2, 2, 4)),
    "take": lambda a: a.take(torch.tensor([[0, -1], [5, 5]])),
    "take one": lambda a: a.take(torch.tensor(3)),
    "index_fill": lambda a: a.index_fill(1, torch.tensor([0, 2]), 5.0),
    "index_put": lambda a: a.index_put((torch.tensor([0, 1]), torch.tensor([2, 1])), torch.ones(2, 4)),
    "index_put add": lambda a: a.index_put((torch.tensor([0, 0]),), torch.ones(2, 3, 4), accumulate=True),
    "index_put mask": lambda a: a.index_put((a > 0,), torch.tensor(2.0)),
    "slice_scatter": lambda a: a.slice_scatter(torch.ones(2, 2, 4), 1, 0, 3, 2),
    "select_scatter": lambda a: a.select_scatter(torch.ones(2, 4), 1, 1),
    "assign": lambda a: _assigned(a),
    "arange": lambda a: a + torch.arange(4),
    "arange steps": lambda a: torch.arange(1., 3., 0.5),
    "arange extent": lambda a: torch.arange(a.shape[0]) * 2,
    "zeros": lambda a: a + torch.zeros(3, 4),
    "ones extent": lambda a: torch.ones(a.shape[0], 2),
    "full": lambda a: torch.full((2, 3), 4),
    "eye": lambda a: torch.eye(3, 4) + a,
    "like": lambda a: torch.zeros_like(a) + torch.ones_like(a) + torch.full_like(a, 2.5),
    "linspace": lambda a: torch.linspace(0, 1, 5),
    "new_zeros": lambda a: a.new_zeros(3) + a.new_ones(2, 3),
    "extent arithmetic": lambda a: a / (a.shape[0] * 2 + 1),
    "size-preserving view": lambda a: a.reshape(a.shape[0] * 3, 4),
    "meshgrid": lambda a: torch.meshgrid(a[0, 0], a[0, 1], indexing="ij"),
    "einsum": lambda a: torch.einsum("bij,bkj->bik", a, a),
    "baddbmm": lambda a: torch.baddbmm(a[:, :, :3], a, a.mT, beta=0.5, alpha=2),
    "tensordot": lambda a: torch.tensordot(a, a, ([1, 2], [1, 2])),
    "outer": lambda a: torch.outer(a[0, 0], a[0, 1]),
    "mv": lambda a: a[0] @ a[0, 0],
    "dot": lambda a: a[0, 0] @ a[0, 1],
    "bmm": lambda a: a @ a.mT,
    "bucketize": lambda a: torch.bucketize(a, torch.tensor([-1.0, 0.0, 1.0])),
    "detach": lambda a: a.detach() * a,
    "bilinear": lambda a: F.bilinear(a, a, torch.ones(2, 4, 4), torch.ones(2)),
}
REDUCTIONS = {
    "sum": lambda a: a.sum(),
    "sum dim": lambda a: a.sum(1),
    "sum dims": lambda a: a.sum((0, 2), keepdim=True),
    "sum double": lambda a: a.sum(1, dtype=torch.float64),
    "mean": lambda a: a.mean(),
    "mean dim": lambda a: a.mean((-1,)),
    "amax": lambda a: a.amax(1),
    "amin": lambda a: a.amin((0, 1)),
    "max": lambda a: a.max(),
    "min": lambda a: a.min(),
    "max dim": lambda a: tuple(a.max(1)),
    "min dim": lambda a: tuple(a.min(-1, keepdim=True)),
    "max values": lambda a: a.max(1).values,
    "argmax": lambda a: a.argmax(1),
    "argmin": lambda a: a.argmin(),
    "var": lambda a: a.var(1),
    "var population": lambda a: a.var((1, 2), correction=0),
    "std": lambda a: a.std(),
    "var batch": lambda a: a.var(0),
    "var_mean": lambda a: torch.var_mean(a, 1),
    "prod": lambda a: a.prod(1),
    "prod all": lambda a: a.prod(),
    "any": lambda a: (a > 1).any(1),
    "all": lambda a: (a > -1).all(),
    "norm": lambda a: a.norm(),
    "norm 1": lambda a: a.norm(1, dim=1),
    "norm inf": lambda a: a.norm(float("inf"), dim=1),
    "norm 3": lambda a: torch.linalg.vector_norm(a, 3, dim=(1, 2)),
    "cumsum": lambda a: a.cumsum(2),
    "logsumexp": lambda a: a.logsumexp(1),
    "softmax": lambda a: a.softmax(1),
    "log_softmax": lambda a: a.log_softmax(-1),
    "topk": lambda a: tuple(a.topk(2, 2)),
    "sort": lambda a: tuple(a.sort(1, descending=True)),
    "argsort": lambda a: a.argsort(2),
    "count_nonzero": lambda a: (a > 0).count_nonzero(1),
    "normalize": F.normalize,
    "median by sort": lambda a: a.sort(1).values[:, 1],
}
IMAGES = {
    "conv2d": (lambda a, w, b: F.conv2d(a, w, b, stride=2, padding=1), r(4, 3, 3, 3), r(4)),
    "conv2d groups": (lambda a, w: F.conv2d(a, w, groups=3, dilation=(1, 2)), r(6, 1, 3, 2)),
    "conv2d same": (lambda a, w: F.conv2d(a, w, padding="same"), r(4, 3, 2, 3)),
    "conv2d unbatched": (lambda a, w: F.conv2d(a[0], w), r(4, 3, 3, 3)),
    "conv1d": (lambda a, w, b: F.conv1d(a[:, 0], w, b, padding=1), r(4, 6, 3), r(4)),
    "conv3d": (lambda a, w: F.conv3d(a.unsqueeze(1), w), r(2, 1, 2, 3, 3)),
    "conv_transpose2d": (lambda a, w, b: F.conv_transpose2d(a, w, b, stride=2, padding=1, output_padding=1),
        r(3, 4, 3, 3), r(4)),
    "conv_transpose1d": (lambda a, w: F.conv_transpose1d(a[:, 0], w, stride=2), r(6, 2, 3)),
    "conv_transpose2d groups": (lambda a, w: F.conv_transpose2d(a, w, groups=3, dilation=2), r(3, 2, 2, 2)),
    "max_pool2d": lambda a: F.max_pool2d(a, 2),
    "max_pool2d ceil": lambda a: F.max_pool2d(a, 3, 2, 1, ceil_mode=True),
    "max_pool2d of large windows": lambda a: F.max_pool2d(a, 5, 1, 2),
    "avg_pool2d of large windows": lambda a: F.avg_pool2d(a, (5, 7), 1, (2, 3), count_include_pad=False),
    "max_pool2d of equal numbers": lambda a: F.max_pool2d(a - a.detach() + a.detach().round(), (5, 7), 1, (2, 3)),
    "max_pool2d indices": lambda a: F.max_pool2d(a, 2, return_indices=True),
    "max_pool1d": lambda a: F.max_pool1d(a[:, 0], 3, 1, 1),
    "avg_pool2d": lambda a: F.avg_pool2d(a, 3, 2, 1),
    "avg_pool2d exclusive": lambda a: F.avg_pool2d(a, 3, 2, 1, count_include_pad=False),
    "avg_pool2d divisor": lambda a: F.avg_pool2d(a, 2, divisor_override=3),
    "adaptive 1": lambda a: F.adaptive_avg_pool2d(a, 1),
    "adaptive divides": lambda a: F.adaptive_avg_pool2d(a, (3, 4)),
    "adaptive uneven": lambda a: F.adaptive_avg_pool2d(a, (4, 5)),
    "adaptive max": lambda a: F.adaptive_max_pool2d(a, (2, 4)),
    "adaptive max uneven": lambda a: F.adaptive_max_pool2d(a, (4, 3)),
    "adaptive to nothing": lambda a: F.adaptive_max_pool2d(a, (0, 3)).sum() + F.adaptive_avg_pool2d(a, (2, 0)).sum() + a.mean(),
    "lp_pool2d": lambda a: F.lp_pool2d(a.abs(), 2, 2),
    "nearest": lambda a: F.interpolate(a, scale_factor=2),
    "nearest size": lambda a: F.interpolate(a, size=(9, 5)),
    "bilinear": lambda a: F.interpolate(a, scale_factor=2, mode="bilinear"),
    "bilinear corners": lambda a: F.interpolate(a, size=(9, 11), mode="bilinear", align_corners=True),
    "bilinear size": lambda a: F.interpolate(a, size=(4, 10), mode="bilinear"),
    "bicubic": lambda a: F.interpolate(a, scale_factor=2, mode="bicubic"),
    "bilinear antialias": lambda a: F.interpolate(a, size=(3, 9), mode="bilinear", antialias=True),
    "antialias by factors": lambda a: F.interpolate(a, scale_factor=(1.3, 0.7), mode="bilinear", antialias=True),
    "antialias by one factor": lambda a: torch.ops.aten._upsample_bilinear2d_aa(a, (3, 10), False, None, 1.3),
    "antialias between corners": lambda a: torch.ops.aten._upsample_bilinear2d_aa(a, (3, 11), True, None, None),
    "bicubic antialias between corners": lambda a: torch.ops.aten._upsample_bicubic2d_aa(a, (3, 11), True, None, None),
    "antialias by factors of other extents": lambda a: torch.ops.aten._upsample_bilinear2d_aa(a, (3, 3), False, 1.7, 0.9),
    "antialias in float64": lambda a: F.interpolate(a.double(), scale_factor=(1.7, 0.6), mode="bicubic", antialias=True),
    "bicubic antialias": lambda a: F.interpolate(a, scale_factor=0.6, mode="bicubic", antialias=True),
    "pixel_shuffle": lambda a: F.pixel_shuffle(a.repeat(1, 4, 1, 1), 2),
    "pixel_unshuffle": lambda a: F.pixel_unshuffle(a, 2),
    "channel_shuffle": lambda a: F.channel_shuffle(a.repeat(1, 2, 1, 1), 3),
    "unfold": lambda a: F.unfold(a, 3, 1, 1, 2),
    "fold": lambda a: F.fold(F.unfold(a, 2, stride=2), (6, 8), 2, stride=2),
    "group_norm": lambda a: F.group_norm(a, 3),
    "instance_norm": lambda a: F.instance_norm(a),
    "layer_norm": (lambda a, w, b: F.layer_norm(a, (6, 8), w, b), r(6, 8), r(6, 8)),
    "layer_norm plain": lambda a: F.layer_norm(a, (8,)),
    "rms_norm": (lambda a, w: F.rms_norm(a, (8,), w), r(8)),
    "local_response_norm": lambda a: F.local_response_norm(a, 2),
    "grid_sample": (lambda a, g: F.grid_sample(a, torch.tanh(g), align_corners=False), r(2, 4, 4, 2)),
}
classes, share, bias = ints(4, 3), positive(4), r(5, 5)
LOSSES = {
    "cross_entropy": lambda a, b: F.cross_entropy(a, classes),
    "cross_entropy sum": lambda a, b: F.cross_entropy(a, classes, reduction="sum"),
    "cross_entropy weights": lambda a, b: F.cross_entropy(a, classes, weight=share),
    "cross_entropy ignore": lambda a, b: F.cross_entropy(a, classes, ignore_index=1),
    "cross_entropy smooth":
        lambda a, b: F.cross_entropy(a, classes, label_smoothing=0.1, weight=share, ignore_index=1),
    "cross_entropy soft": lambda a, b: F.cross_entropy(a, b.softmax(1)),
    "nll_loss": lambda a, b: F.nll_loss(a.log_softmax(1), classes),
    "mse": F.mse_loss,
    "mse none": lambda a, b: F.mse_loss(a, b, reduction="none"),
    "l1": F.l1_loss,
    "smooth_l1": lambda a, b: F.smooth_l1_loss(a, b, beta=0.5),
    "huber": lambda a, b: F.huber_loss(a, b, delta=0.7, reduction="sum"),
    "bce": lambda a, b: F.binary_cross_entropy(a.sigmoid(), b.sigmoid()),
    "bce logits": lambda a, b: F.binary_cross_entropy_with_logits(a, b.sigmoid()),
    "bce logits weights":
        lambda a, b: F.binary_cross_entropy_with_logits(a, b.sigmoid(), share, pos_weight=2 * share),
    "kl_div": lambda a, b: F.kl_div(a.log_softmax(1), b.softmax(1), reduction="batchmean"),
    "kl_div log": lambda a, b: F.kl_div(a.log_softmax(1), b.log_softmax(1), reduction="sum", log_target=True),
    "hinge": lambda a, b: F.hinge_embedding_loss(a, b.sign(), reduction="sum"),
    "margin": lambda a, b: F.margin_ranking_loss(a, b, b.sign(), 0.2),
    "soft margin": lambda a, b: F.soft_margin_loss(a, b.sign()),
    "triplet": lambda a, b: F.triplet_margin_loss(a, b, a + b),
    "poisson": lambda a, b: F.poisson_nll_loss(a, b.abs()),
    "cosine embedding": lambda a, b: F.cosine_embedding_loss(a, b, torch.tensor([1, -1, 1])),
    "multi margin": lambda a, b: F.multi_margin_loss(a, classes),
}
heads = [r(2, 2, 5, 4, seed=s) for s in (1, 2, 3)]
ATTENTION = {
    "plain": lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    "causal": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "mask": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=bias),
    "bool mask":
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(5, 5, dtype=torch.bool).tril()),
    "scale": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3),
    "grouped": lambda q, k, v: F.scaled_dot_product_attention(q.repeat(1, 2, 1, 1), k, v, enable_gqa=True),
}


def _assigned(a):
    a = a.clone()
    a[:, 1] = 3
    a[:, :, 2:] *= 2
    return a


def _cases():
    for name in UNARY:
        yield "unary " + name, getattr(torch, name), (x,)
    for name in UNARY_POSITIVE:
        yield "unary " + name, getattr(torch, name), (positive(3, 4),)
    for name in UNARY_UNIT:
        yield "unary " + name, getattr(torch, name), (unit(3, 4),)
    for group, table, args in (("activation", ACTIVATIONS, (x,)), ("float", BINARY, (x, y)), ("int", BINARY, (i4, j4)),
                               ("mixed", BINARY, (x, j4)), ("float", FLOAT_BINARY, (x, y)),
                               ("integer", INTEGER, (i4, j4)),
                               ("power", POWERS, (positive(3, 4),)), ("shape", SHAPES, (z,)),
                               ("reduction", REDUCTIONS, (z,)), ("image", IMAGES, (image,)), ("loss", LOSSES, (x, y)),
                               ("attention", ATTENTION, heads)):
        for name, function in table.items():
            function, *more = function if isinstance(function, tuple) else (function,)
            yield f"{group} {name}", function, (*args, *more)


CASES = list(_cases())


@pytest.mark.parametrize("function, args", [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_function_computes_what_torch_computes(function, args):
    check(Call(function), args)


MODULES = {
    "Linear": (nn.Linear(4, 5), (z,)),
    "Linear 2d": (nn.Linear(4, 5, bias=False), (x,)),
    "Embedding": (nn.Embedding(10, 3), (ints(10, 2, 4),)),
    "Embedding padding": (nn.Embedding(10, 3, padding_idx=2), (ints(10, 2, 4),)),
    "BatchNorm2d eval": (nn.BatchNorm2d(3).eval(), (image,)),
    "BatchNorm2d": (nn.BatchNorm2d(3), (image,)),
    "BatchNorm2d plain": (nn.BatchNorm2d(3, affine=False), (image,)),
    "BatchNorm1d": (nn.BatchNorm1d(4, momentum=0.3), (x,)),
    "BatchNorm cumulative": (nn.BatchNorm2d(3, momentum=None), (image,)),
    "BatchNorm without statistics": (nn.BatchNorm2d(3, track_running_stats=False), (image,)),
    "InstanceNorm": (nn.InstanceNorm2d(3, affine=True), (image,)),
    "InstanceNorm statistics": (nn.InstanceNorm2d(3, track_running_stats=True), (image,)),
    "InstanceNorm eval": (nn.InstanceNorm2d(3, track_running_stats=True).eval(), (image,)),
    "GroupNorm": (nn.GroupNorm(2, 4), (r(2, 4, 5),)),
    "Dropout eval": (nn.Dropout().eval(), (x,)),
    "LSTM": (nn.LSTM(4, 5), (z,)),
    "LSTM stacked": (nn.LSTM(4, 5, 2, bidirectional=True, batch_first=True), (z,)),
    "LSTM projected": (nn.LSTM(4, 5, proj_size=2), (z,)),
    "LSTM state": (nn.LSTM(4, 5), (z, (r(1, 3, 5), r(1, 3, 5)))),
    "LSTM of a batch in blocks": (nn.LSTM(4, 18, bidirectional=True), (r(3, 19, 4),)),
    "GRU": (nn.GRU(4, 5, 2), (z,)),
    "GRU without bias": (nn.GRU(4, 5, bias=False, bidirectional=True), (z,)),
    "RNN": (nn.RNN(4, 5), (z,)),
    "LSTMCell": (nn.LSTMCell(4, 5), (x,)),
    "GRUCell": (nn.GRUCell(4, 5), (x,)),
    "MultiheadAttention": (nn.MultiheadAttention(4, 2), (z, z, z)),
    "MultiheadAttention batched": (nn.MultiheadAttention(4, 2, batch_first=True, bias=False), (z, z, z)),
    "TransformerEncoder": (nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(), (z,)),
    "Transformer": (nn.TransformerDecoderLayer(4, 2, 8, 0.0), (z, z)),
    "Upsample": (nn.Upsample(scale_factor=3), (image,)),
}


@pytest.mark.parametrize("name", MODULES)
def test_module_computes_what_torch_computes(name):
    module, args = MODULES[name]
    check(module, args)


def test_dropout_keeps_the_share_and_the_scale():
    module = nn.Dropout(0.25)
    from captured import run_capture
    from dcml.pytorch.trace.capture import capture
    ones = torch.ones(64, 64)
    made = capture(module, (ones,))
    first, _ = run_capture(made, module, (ones,), seed=1)
    again, _ = run_capture(made, module, (ones,), seed=1)
    other, _ = run_capture(made, module, (ones,), seed=2)
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert set(first.unique().tolist()) == {0.0, float(torch.tensor(1 / 0.75))}
    assert abs((first > 0).float().mean().item() - 0.75) < 0.03


def test_two_dropouts_draw_different_masks():
    from captured import run_capture
    from dcml.pytorch.trace.capture import capture
    module, ones = Call(lambda a: (F.dropout(a), F.dropout(a))), torch.ones(8, 8)
    (one, two), _ = run_capture(capture(module, (ones,)), module, (ones,))
    assert not torch.equal(one, two)


@pytest.mark.parametrize("function, mean, deviation", [(torch.rand_like, 0.5, 12 ** -0.5), (torch.randn_like, 0.0, 1.0),
                                                       (lambda a: torch.bernoulli(a * 0.3), 0.3, 0.21 ** 0.5)])
def test_random_numbers_have_their_distribution(function, mean, deviation):
    from captured import run_capture
    from dcml.pytorch.trace.capture import capture
    module, ones = Call(function), torch.ones(100, 100)
    sample, _ = run_capture(capture(module, (ones,)), module, (ones,))
    assert abs(sample.mean().item() - mean) < 0.05 and abs(sample.std().item() - deviation) < 0.05
