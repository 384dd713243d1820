"""Cases of npx: boxes, moved convolutions, attention windows, labels without places."""
import numpy as onp
from mx_harness import Case

_rng = onp.random.default_rng(2)


def normal(*shape):
    return _rng.standard_normal(shape)


# -- boxes ------------------------------------------------------------------------------------------------
def corners(box, form):
    if form == "corner":
        return box
    return onp.array([box[0] - box[2] / 2, box[1] - box[3] / 2, box[0] + box[2] / 2, box[1] + box[3] / 2])


def centres(box):
    return onp.array([(box[0] + box[2]) / 2, (box[1] + box[3]) / 2, box[2] - box[0], box[3] - box[1]])


def overlap(a, b):
    """Intersection over union of two boxes by corners."""
    sides = onp.clip(onp.minimum(a[2:], b[2:]) - onp.maximum(a[:2], b[:2]), 0, None)
    areas = [onp.prod(onp.clip(c[2:] - c[:2], 0, None)) for c in (a, b)]
    return sides.prod() / (sum(areas) - sides.prod())


def box_nms(data, overlap_thresh=0.5, valid_thresh=0, topk=-1, coord_start=2, score_index=1, id_index=-1, background_id=-1,
            force_suppress=False, in_format="corner", out_format="corner"):
    if topk == 0:
        return data
    result = onp.full_like(data, -1)
    place = slice(coord_start, coord_start + 4)
    for boxes, shown in zip(data.reshape(-1, *data.shape[-2:]), result.reshape(-1, *data.shape[-2:])):
        left = [n for n, b in enumerate(boxes) if b[score_index] > valid_thresh and (id_index < 0 or b[id_index] != background_id)]
        left = sorted(left, key=lambda n: -boxes[n, score_index])[:topk if topk > 0 else None]
        kept = []
        while left:
            best = left.pop(0)
            kept.append(best)
            left = [n for n in left if (id_index >= 0 and not force_suppress and boxes[n, id_index] != boxes[best, id_index])
                    or not overlap(corners(boxes[n, place], in_format), corners(boxes[best, place], in_format)) > overlap_thresh]
        for k, n in enumerate(kept):
            shown[k] = boxes[n]
            if in_format != out_format:
                shown[k, place] = corners(boxes[n, place], in_format) if out_format == "corner" else centres(boxes[n, place])
    return result


def bipartite_matching(data, threshold, is_ascend=False, topk=-1):
    rows, columns = onp.full(data.shape[:-1], -1.0), onp.full(data.shape[:-2] + data.shape[-1:], -1.0)
    for scores, row, column in zip(data.reshape(-1, *data.shape[-2:]), rows.reshape(-1, data.shape[-2]), columns.reshape(-1, data.shape[-1])):
        found = 0
        for flat in onp.argsort(scores if is_ascend else -scores, axis=None, kind="stable"):
            n, m = divmod(int(flat), scores.shape[1])
            good = scores[n, m] < threshold if is_ascend else scores[n, m] > threshold
            if row[n] < 0 and column[m] < 0 and good and (topk <= 0 or found < topk):
                row[n], column[m], found = m, n, found + 1
    return rows, columns


def some_boxes(*shape):
    """Rows of class, score, corners and a number more; scores differ."""
    boxes = _rng.uniform(0, 1, (*shape, 7))
    boxes[..., 0] = _rng.integers(0, 3, shape)
    boxes[..., 4:6] = boxes[..., 2:4] + _rng.uniform(0.3, 1, (*shape, 2))
    return boxes


_BOXES = some_boxes(2, 6)
_PAGE = onp.array([[0, 0.5, 0.1, 0.1, 0.2, 0.2], [1, 0.4, 0.1, 0.1, 0.2, 0.2], [0, 0.3, 0.1, 0.1, 0.14, 0.14], [2, 0.6, 0.5, 0.5, 0.7, 0.8]])
_CENTRES = onp.concatenate([_BOXES[..., :2], _BOXES[..., 2:4], _BOXES[..., 4:6] - 0.2], -1)


def sent(data, **attributes):
    """The gradient of ones: ones at the boxes that are shown."""
    shown = box_nms(data, **attributes)
    found = onp.zeros_like(data)
    for boxes, rows, gradient in zip(data, shown, found):
        for row in rows:
            gradient[(boxes[:, 1] == row[1]) & (row[1] != -1)] = 1
    return found


_CLASSES = {"overlap_thresh": 0.2, "valid_thresh": 0.3, "topk": 3, "id_index": 0, "background_id": 1}
_TIED = onp.array([[[0.5, 0.6, 0.6], [0.1, 0.6, 0.2], [0.3, 0.4, 0.4]], [[-1, -2, -3], [-3, -2, -1], [9, 9, 9.0]]])
BOXES = [
    Case("box_nms", [_PAGE], {"overlap_thresh": 0.1, "coord_start": 2, "score_index": 1, "id_index": 0, "force_suppress": True}, box_nms),
    Case("box_nms", [_PAGE], {"overlap_thresh": 0.1, "id_index": 0}, box_nms, exact={0: sent(_PAGE[None], overlap_thresh=0.1, id_index=0)[0]}),
    Case("box_nms", [_BOXES], {}, box_nms, name="defaults"),
    Case("box_nms", [_BOXES], _CLASSES, box_nms, exact={0: sent(_BOXES, **_CLASSES)}),
    Case("box_nms", [some_boxes(1, 2, 5)], {"overlap_thresh": 0.3}, box_nms, name="four dimensions"),
    Case("box_nms", [some_boxes(4)], {"topk": 0}, box_nms),
    Case("box_nms", [some_boxes(4)], {"valid_thresh": 2.0}, box_nms, name="none is left"),
    Case("box_nms", [_BOXES - 2], {"valid_thresh": -9.0, "overlap_thresh": 0.3}, box_nms, name="negative places and scores"),
    Case("box_nms", [_BOXES[..., 1:6]], {"score_index": 0, "coord_start": 1, "overlap_thresh": 0.3}, box_nms, name="five columns"),
    Case("box_nms", [_CENTRES], {"in_format": "center", "out_format": "center", "overlap_thresh": 0.2}, box_nms),
    Case("box_nms", [_CENTRES - 0.2], {"in_format": "center", "overlap_thresh": 0.2, "valid_thresh": -1.0}, box_nms,
         exact={0: sent(_CENTRES - 0.2, in_format="center", overlap_thresh=0.2, valid_thresh=-1.0)}),
    Case("box_nms", [_BOXES], {"out_format": "center"}, box_nms, exact={0: sent(_BOXES, out_format="center")}),
    Case("bipartite_matching", [onp.array([[0.5, 0.6], [0.1, 0.2], [0.3, 0.4]])], {"threshold": 1e-12}, bipartite_matching, exact={0: 0 * normal(3, 2)}),
    Case("bipartite_matching", [_TIED], {"threshold": 0.35, "is_ascend": False}, bipartite_matching, exact={0: 0 * _TIED}),
    Case("bipartite_matching", [_TIED], {"threshold": 0.35, "is_ascend": True}, bipartite_matching, exact={0: 0 * _TIED}),
    Case("bipartite_matching", [_TIED], {"threshold": -5.0, "topk": 2}, bipartite_matching, exact={0: 0 * _TIED}),
]


# -- places -----------------------------------------------------------------------------------------------
def at_place(image, y, x, around):
    """An image between its elements: zeros around it, or nothing outside and the last row and column going on."""
    height, width = image.shape
    if not around and not (0 <= y < height and 0 <= x < width):
        return 0.0
    total, top, left = 0.0, int(onp.floor(y)), int(onp.floor(x))
    for j, b in ((top, top + 1 - y), (top + 1, y - top)):
        for i, a in ((left, left + 1 - x), (left + 1, x - left)):
            if around:
                total += a * b * (image[j, i] if 0 <= j < height and 0 <= i < width else 0)
            else:
                total += a * b * image[min(j, height - 1), min(i, width - 1)]
    return total


def moved(data, offset, mask, weight, bias, kernel, num_filter, stride=(1, 1), dilate=(1, 1), pad=(0, 0), num_group=1, num_deformable_group=1, **_):
    (high, wide), (rows, columns) = kernel, offset.shape[2:]
    group, share = data.shape[1] // num_group, data.shape[1] // num_deformable_group
    result = onp.zeros((len(data), num_filter, rows, columns))
    for n, c, j, i, q, p in onp.ndindex(len(data), data.shape[1], high, wide, rows, columns):
        k = c // share * high * wide + j * wide + i
        y = q * stride[0] - pad[0] + j * dilate[0] + offset[n, 2 * k, q, p]
        x = p * stride[1] - pad[1] + i * dilate[1] + offset[n, 2 * k + 1, q, p]
        value = at_place(data[n, c], y, x, mask is not None) * (1 if mask is None else mask[n, k, q, p])
        filters = slice(c // group * (num_filter // num_group), (c // group + 1) * (num_filter // num_group))
        result[n, filters, q, p] += value * weight[filters, c % group, j, i]
    return result if bias is None else result + bias[:, None, None]


def deformable(data, offset, weight, bias=None, **attributes):
    return moved(data, offset, None, weight, bias, **attributes)


def modulated(data, offset, mask, weight, bias=None, **attributes):
    return moved(data, offset, mask, weight, bias, **attributes)


def roi_pooling(data, rois, pooled_size, spatial_scale):
    result = onp.zeros((len(rois), data.shape[1], *pooled_size))
    for r, (image, *box) in enumerate(rois):
        x, y, right, bottom = (int(onp.sign(v) * onp.floor(abs(v) + 0.5)) for v in onp.array(box) * spatial_scale)
        size = max(bottom - y + 1, 1), max(right - x + 1, 1)
        if not 0 <= image < len(data):
            continue
        for p, q in onp.ndindex(*pooled_size):
            rows, columns = (slice(max(0, first + int(onp.floor(k * s / n))), max(0, first + int(onp.ceil((k + 1) * s / n))))
                             for first, k, s, n in ((y, p, size[0], pooled_size[0]), (x, q, size[1], pooled_size[1])))
            part = data[int(image), :, rows, columns]
            result[r, :, p, q] = part.max((1, 2)) if part.size else 0
    return result


_IMAGE = onp.arange(48.0).reshape(1, 1, 8, 6)
_ROIS = onp.array([[0, 0.2, 0.3, 4.1, 4.4], [1, 2.1, 3.3, 9.1, 9.2], [1, -5.2, 1.3, 2.1, 4], [-1, 0, 0, 3, 3], [2, 0, 0, 3, 3], [0, 4, 4, 2, 2.3]])
PLACES = [
    Case("deformable_convolution", [normal(2, 2, 4, 5), normal(2, 8, 3, 4), normal(3, 2, 2, 2), normal(3)],
         {"kernel": (2, 2), "num_filter": 3}, deformable),
    Case("deformable_convolution", [normal(1, 4, 5, 4), 2 * normal(1, 16, 3, 3), normal(4, 2, 2, 2)],
         {"kernel": (2, 2), "stride": (2, 2), "dilate": (2, 1), "pad": (1, 1), "num_filter": 4, "num_group": 2, "num_deformable_group": 2,
          "no_bias": True}, deformable),
    Case("deformable_convolution", [normal(1, 1, 3, 3), onp.array([[2.5, 2.5]]).reshape(1, 2, 1, 1), normal(1, 1, 1, 1)],
         {"kernel": (1, 1), "num_filter": 1, "no_bias": True, "stride": (3, 3)}, deformable, name="behind the last row and column"),
    Case("modulated_deformable_convolution", [normal(2, 2, 4, 5), normal(2, 8, 3, 4), normal(2, 4, 3, 4), normal(3, 2, 2, 2), normal(3)],
         {"kernel": (2, 2), "num_filter": 3}, modulated),
    Case("modulated_deformable_convolution", [normal(1, 4, 5, 4), 2 * normal(1, 16, 3, 3), normal(1, 8, 3, 3), normal(4, 2, 2, 2)],
         {"kernel": (2, 2), "stride": (2, 2), "dilate": (2, 1), "pad": (1, 1), "num_filter": 4, "num_group": 2, "num_deformable_group": 2,
          "no_bias": True, "im2col_step": 1}, modulated),
    Case("roi_pooling", [_IMAGE, onp.array([[0, 0, 0, 4, 4]])], {"pooled_size": (2, 2), "spatial_scale": 1.0}, roi_pooling),
    Case("roi_pooling", [_IMAGE, onp.array([[0, 0, 0, 4, 4]])], {"pooled_size": (2, 2), "spatial_scale": 0.7}, roi_pooling),
    Case("roi_pooling", [normal(2, 3, 6, 7), _ROIS], {"pooled_size": (3, 2), "spatial_scale": 0.9}, roi_pooling, gradients=(0, )),
    Case("roi_pooling", [normal(2, 3, 6, 7), _ROIS], {"pooled_size": (3, 2), "spatial_scale": 0.9}, roi_pooling, gradients=(1, ),
         exact={1: 0 * _ROIS}, name="no gradient of boxes"),
]


# -- attention --------------------------------------------------------------------------------------------
def split(joined, heads):
    """Queries, keys and values [batch, heads, length, width] of what is interleaved."""
    length, batch, _ = joined.shape
    return joined.reshape(length, batch, heads, 3, -1).transpose(3, 1, 2, 0, 4)


def selfatt_qk(joined, heads):
    q, k, _ = split(joined, heads)
    scores = q @ k.swapaxes(-1, -2) / onp.sqrt(q.shape[-1])
    return scores.reshape(-1, *scores.shape[2:])


def selfatt_valatt(joined, attention, heads):
    v = split(joined, heads)[2]
    made = attention.reshape(*v.shape[:2], *attention.shape[1:]) @ v
    return made.transpose(2, 0, 1, 3).reshape(len(joined), joined.shape[1], -1)


def window(length, heads, dilation, w, symmetric):
    """[place, head, k] -> a place that is seen, also outside."""
    step = onp.arange(-w, (w if symmetric else 0) + 1)
    return onp.arange(length)[:, None, None] + onp.asarray(dilation, int)[None, :, None] * step


def sldwin_score(query, key, dilation, w, symmetric):
    batch, length, heads, _ = query.shape
    seen = window(length, heads, dilation, w, symmetric)
    result = onp.zeros((batch, *seen.shape))
    for n, h, k in onp.ndindex(*seen.shape):
        if 0 <= seen[n, h, k] < length:
            result[:, n, h, k] = (query[:, n, h] * key[:, seen[n, h, k], h]).sum(-1)
    return result


def sldwin_context(score, value, dilation, w, symmetric):
    batch, length, heads, _ = value.shape
    seen = window(length, heads, dilation, w, symmetric)
    result = onp.zeros_like(value)
    for n, h, k in onp.ndindex(*seen.shape):
        if 0 <= seen[n, h, k] < length:
            result[:, n, h] += score[:, n, h, k, None] * value[:, seen[n, h, k], h]
    return result


def sldwin_mask(score, dilation, valid_length, w, symmetric):
    seen = window(score.shape[1], score.shape[2], dilation, w, symmetric)
    lengths = onp.asarray(valid_length, int)[:, None, None, None]
    return ((onp.arange(score.shape[1])[None, :, None, None] < lengths) & (seen >= 0) & (seen < lengths)).astype(score.dtype)


_DILATION = onp.array([1, 2], "int32")
ATTENTION = [
    Case("interleaved_matmul_selfatt_qk", [normal(3, 2, 12)], {"heads": 2}, selfatt_qk),
    Case("interleaved_matmul_selfatt_valatt", [normal(3, 2, 12), normal(4, 3, 3)], {"heads": 2}, selfatt_valatt),
]
for _symmetric in (True, False):
    _how = {"w": 2, "symmetric": _symmetric}
    ATTENTION += [
        Case("sldwin_atten_score", [normal(2, 6, 2, 3), normal(2, 6, 2, 3), _DILATION], _how, sldwin_score),
        Case("sldwin_atten_context", [normal(2, 6, 2, 5 if _symmetric else 3), normal(2, 6, 2, 3), _DILATION], _how, sldwin_context),
        Case("sldwin_atten_mask_like", [normal(2, 6, 2, 5 if _symmetric else 3), _DILATION, onp.array([4, 6], "int32")], _how, sldwin_mask,
             exact={0: onp.zeros((2, 6, 2, 5 if _symmetric else 3))}),
    ]


# -- labels without places --------------------------------------------------------------------------------
def said(path, blank):
    """What a path through time says: repetitions once, without blanks."""
    return [c for k, c in enumerate(path) if c != blank and (k == 0 or c != path[k - 1])]


def ctc_loss(data, label, data_lengths=None, label_lengths=None, use_data_lengths=False, use_label_lengths=False, blank_label="first"):
    """By all paths."""
    time, batch, letters = data.shape
    blank, padding = (0, 0) if blank_label == "first" else (letters - 1, -1)
    result = onp.zeros(batch)
    for b in range(batch):
        steps = int(data_lengths[b]) if use_data_lengths else time
        wanted = [int(v) for v in label[b]]
        wanted = wanted[:int(label_lengths[b])] if use_label_lengths else wanted[:wanted.index(padding)] if padding in wanted else wanted
        chances = onp.exp(data[:steps, b])
        chances /= chances.sum(-1, keepdims=True)
        total = sum(onp.prod(chances[range(steps), path]) for path in onp.ndindex(*[letters] * steps) if said(path, blank) == wanted)
        result[b] = onp.inf if total == 0 else -onp.log(total)
    return result


_SOUNDS = normal(4, 3, 4)
_FIRST, _LAST = onp.array([[1, 2, 0], [3, 3, 0], [2, 0, 0]]), onp.array([[1, 0, -1], [2, 2, -1], [0, -1, -1]])
_STEPS, _COUNTS = onp.array([4, 3, 2], "int32"), onp.array([2, 1, 0], "int32")
LABELS = [
    Case("ctc_loss", [_SOUNDS, _FIRST], {}, ctc_loss),
    Case("ctc_loss", [_SOUNDS, _FIRST.astype(float)], {}, ctc_loss, gradients=(0, ), name="labels that are floats"),
    Case("ctc_loss", [_SOUNDS, _LAST], {"blank_label": "last"}, ctc_loss),
    Case("ctc_loss", [_SOUNDS, _FIRST, _STEPS, _COUNTS], {"use_data_lengths": True, "use_label_lengths": True}, ctc_loss),
    Case("ctc_loss", [_SOUNDS, _LAST, _STEPS, _COUNTS], {"use_data_lengths": True, "use_label_lengths": True, "blank_label": "last"}, ctc_loss),
    Case("ctc_loss", {"data": _SOUNDS, "label": _FIRST, "data_lengths": _STEPS}, {"use_data_lengths": True}, ctc_loss),
    Case("ctc_loss", {"data": _SOUNDS, "label": _LAST, "label_lengths": _COUNTS}, {"use_label_lengths": True, "blank_label": "last"},
         lambda data, label, label_lengths, **how: ctc_loss(data, label, None, label_lengths, **how)),
    Case("ctc_loss", [100 * _SOUNDS, _FIRST], {}, ctc_loss, gradients=False, name="large activations"),
    Case("ctc_loss", [_SOUNDS, _FIRST, onp.array([1, 2, 0])], {"use_data_lengths": True}, ctc_loss, gradients=(0, ), exact={0: 0 * _SOUNDS},
         name="more labels than time"),
]

CASES = BOXES + PLACES + ATTENTION + LABELS
