"""The methods for layers of networks: products that accumulate, convolution, pooling, recurrent steps, lookup tables.

The one idea: each is an assignment of an op-tree to the output.  Must not know: how trees run.
"""
from ... import _core
from .autodiff import gradient
from .layers import ConvLayer, DeconvLayer, PoolLayer
from .tensor import Tensor
from .tree import OpTreeNode, assigned, binary, dot, unary


def _tensors(method, **given):
    for name, x in given.items():
        if not isinstance(x, Tensor):
            raise TypeError(f"{method}(): {name} is a Tensor, not {type(x).__name__}")


def _layer(method, layer, kind):
    if not isinstance(layer, kind):
        raise TypeError(f"{method}(): layer is a {kind.__name__}, not {type(layer).__name__}")


def _sized(method, name, x, shape):
    """A tensor of as many elements in these extents."""
    _tensors(method, **{name: x})
    size = 1
    for n in shape:
        size *= n
    if x.size != size:
        raise _core.ShapeError(f"{method}(): {name} has shape {x.shape}, expected {shape} or as many elements in other extents")
    return x.reshape(shape)


def _scaled(tree, alpha):
    return tree if alpha == 1 else tree * alpha


def _plus(tree, beta, x):
    return tree if beta == 0 else tree + (x if beta == 1 else x * beta)


def _rectified(tree, slope=0.0):
    positive = binary("maximum", tree, 0.0)
    return positive + binary("minimum", tree, 0.0) * slope if slope else positive


class Network:
    """Methods of a backend for layers."""

    # -- fully connected ---------------------------------------------------------------------------
    def compound_dot(self, A, B, C, alpha=1.0, beta=0.0, relu=False, bsum=None):
        """C = alpha * A * B + beta * C; relu: of the product, before beta * C is added.  Returns C.

        A, B: Tensors (m, k), (k, n), transposed views too; C: Tensor (m, n).  bsum: Tensor (m, 1) for the sums of C's rows.
        Raises ShapeError for extents that do not fit.
        """
        _tensors("compound_dot", A=A, B=B, C=C)
        tree = _scaled(dot(A, B), alpha)
        C[:] = _plus(_rectified(tree) if relu else tree, beta, C)
        if bsum is not None:
            bsum[:] = self.sum(C, axis=1)
        return C

    def xnor_compound_dot(self, A, B, C, beta=0.0, bsum=None):
        """C = A * B + beta * C, where A and B hold -1 and 1; the same as compound_dot()."""
        return self.compound_dot(A, B, C, beta=beta, bsum=bsum)

    def batched_dot(self, A, B, C, alpha=1.0, beta=0.0, relu=False):
        """C = alpha * A * B + beta * C by the first of three dimensions.  Returns C.

        A (K, C) and B (X, C, N) give C (X, K, N); A (X, K, N) and B (X, N, C) give C (X, K, C), or C (K, C), the sum over X.
        Raises ShapeError for extents that do not fit.
        """
        _tensors("batched_dot", A=A, B=B, C=C)
        p, q, r = A.shape, B.shape, C.shape
        full = p[:-2] or q[:-2]
        fits = full and len(full) == 1 and len(p) <= 3 and len(q) <= 3 and p[-1] == q[-2] and (len(p) == 2 or len(q) == 2 or p[0] == q[0])
        summed = bool(fits) and len(r) == 2
        if not fits or r != (() if summed else full) + (p[-2], q[-1]) or summed and (len(p) == 2 or len(q) == 2):
            raise _core.ShapeError(f"batched_dot(): A of shape {p} and B of shape {q} do not give C of shape {r}")
        tree = _scaled(OpTreeNode({"op": "batched", "shape": r, "summed": summed}, A, B), alpha)
        C[:] = _plus(_rectified(tree) if relu else tree, beta, C)
        return C

    def add_fc_bias(self, inputs, bias):
        """Adds a bias (n, 1) to inputs (n, N), in place."""
        _tensors("add_fc_bias", inputs=inputs, bias=bias)
        return assigned(binary("add", inputs, bias), inputs)

    def update_fc_bias(self, err, out):
        """out (n, 1) = the sums of the rows of err (n, N)."""
        return self.sum(err, axis=1, out=out)

    # -- convolution -------------------------------------------------------------------------------
    def conv_layer(self, dtype, N, C, K, D=1, H=1, W=1, T=1, R=1, S=1, pad_d=0, pad_h=0, pad_w=0, str_d=1, str_h=1, str_w=1,
                   relu=False, bsum=False, dil_d=1, dil_h=1, dil_w=1):
        """Sizes of a convolution of N images with C feature maps of D x H x W by K filters of T x R x S, for fprop_conv() and others.

        relu: fprop_conv() and bprop_conv() rectify what they write.  bsum: kept as an attribute.  Raises ValueError_ and
        ShapeError for sizes that cannot be.
        """
        return ConvLayer(self, dtype, N, C, K, (D, H, W), (T, R, S), (pad_d, pad_h, pad_w), (str_d, str_h, str_w), (dil_d, dil_h, dil_w),
                         relu, bsum)

    def deconv_layer(self, dtype, N, C, K, P, Q, R=1, S=1, pad_d=0, pad_h=0, pad_w=0, str_d=1, str_h=1, str_w=1, M=1, T=1,
                     dil_d=1, dil_h=1, dil_w=1):
        """Sizes of a deconvolution of N images with K feature maps of M x P x Q to C feature maps, by filters of T x R x S.

        bprop_conv() computes it, fprop_conv() its gradient.  Raises ValueError_ and ShapeError for sizes that cannot be.
        """
        return DeconvLayer(self, dtype, N, C, K, (M, P, Q), (T, R, S), (pad_d, pad_h, pad_w), (str_d, str_h, str_w), (dil_d, dil_h, dil_w))

    def _compound(self, method, tree, out, X, bias, bsum, beta, relu, brelu, slope):
        """Writes what a convolution gave, with what is asked for around it."""
        X = out if X is None else _sized(method, "X", X, out.shape)
        tree = _plus(tree, beta, X)
        if bias is not None:
            tree = tree + _sized(method, "bias", bias, (out.shape[0], 1, 1, 1, 1))
        if relu:
            tree = _rectified(tree, slope)
        elif brelu:
            tree = tree * (_plus(X > 0, slope, X < 0))
        out[:] = tree
        if bsum is not None:
            bsum[:] = self.sum(out.reshape(out.shape[0], -1), axis=1)

    def fprop_conv(self, layer, I, F, O, alpha=1.0, relu=False, repeat=1, *, beta=0.0, X=None, bias=None, bsum=None, brelu=False, slope=0.0,
                   layer_op=None):
        """O = alpha * (I convolved with F), rectified if relu or the layer says so.

        layer: of conv_layer() or deconv_layer().  I, F, O: Tensors of its dimI, dimF, dimO, or as many elements in other extents.
        beta, X: plus beta * X, by default of O; bias: (K, 1), added; slope: of what is negative; brelu: times (X > 0) + slope *
        (X < 0); bsum: Tensor (K, 1) for the sums of feature maps.  repeat: how often.  Raises ShapeError for other sizes.
        """
        _layer("fprop_conv", layer, ConvLayer)
        for _ in range(repeat):
            tree = layer.tree("conv", _sized("fprop_conv", "I", I, layer.dimI), _sized("fprop_conv", "F", F, layer.dimF), layer.dimO)
            self._compound("fprop_conv", _scaled(tree, alpha), _sized("fprop_conv", "O", O, layer.dimO), X, bias, bsum, beta,
                           relu or layer.relu, brelu, slope)

    def bprop_conv(self, layer, F, E, grad_I, alpha=1.0, repeat=1, *, relu=False, beta=0.0, X=None, bias=None, bsum=None, brelu=False,
                   slope=0.0, layer_op=None):
        """grad_I = alpha * (the gradient in a convolution's input for errors E), or what a deconvolution gives; as fprop_conv()."""
        _layer("bprop_conv", layer, ConvLayer)
        for _ in range(repeat):
            tree = layer.tree("conv_data", _sized("bprop_conv", "F", F, layer.dimF), _sized("bprop_conv", "E", E, layer.dimO), layer.dimI)
            self._compound("bprop_conv", _scaled(tree, alpha), _sized("bprop_conv", "grad_I", grad_I, layer.dimI), X, bias, bsum, beta,
                           relu or layer.relu, brelu, slope)

    def update_conv(self, layer, I, E, grad_F, alpha=1.0, repeat=1, *, relu=False, beta=0.0, grad_bias=None, layer_op=None):
        """grad_F = alpha * (the gradient in a convolution's filters for errors E) + beta * grad_F, rectified if relu.

        grad_bias: Tensor (K, 1) for the sums of the errors of each feature map.
        """
        _layer("update_conv", layer, ConvLayer)
        for _ in range(repeat):
            error, out = _sized("update_conv", "E", E, layer.dimO), _sized("update_conv", "grad_F", grad_F, layer.dimF)
            tree = _scaled(layer.tree("conv_filter", _sized("update_conv", "I", I, layer.dimI), error, layer.dimF), alpha)
            out[:] = _plus(_rectified(tree) if relu else tree, beta, out)
            if grad_bias is not None:
                grad_bias[:] = self.sum(error.reshape(layer.K, -1), axis=1)

    # -- pooling -----------------------------------------------------------------------------------
    def pool_layer(self, dtype, op, N, C, D=1, H=1, W=1, J=1, T=1, R=1, S=1, pad_j=0, pad_d=0, pad_h=0, pad_w=0, str_j=None, str_d=None,
                   str_h=None, str_w=None, *, pad_c=None, str_c=None):
        """Sizes of pooling by op 'max', 'avg' or 'l2' over windows of J feature maps and T x R x S, for fprop_pool() and bprop_pool().

        Strides are by default the windows' extents.  pad_c, str_c: other names of pad_j, str_j.  Raises ValueError_ and
        ShapeError for sizes that cannot be.
        """
        padding = pad_j if pad_c is None else pad_c, pad_d, pad_h, pad_w
        strides = str_j if str_c is None else str_c, str_d, str_h, str_w
        return PoolLayer(self, dtype, op, N, C, (D, H, W), (J, T, R, S), padding, strides)

    def fprop_pool(self, layer, I, O, argmax=None, beta=0.0):
        """O = what pooling makes of I, plus beta * O; of windows at the border what is inside counts.

        I, O: Tensors of the layer's dimI, dimO, or as many elements in other extents.  argmax: Tensor like O, filled, for 'max', with
        the place of the maximum among a window's elements.  Raises ShapeError for other sizes.
        """
        _layer("fprop_pool", layer, PoolLayer)
        image, out = _sized("fprop_pool", "I", I, layer.dimI), _sized("fprop_pool", "O", O, layer.dimO)
        if argmax is not None and layer.op == "max":
            _sized("fprop_pool", "argmax", argmax, layer.dimO)[:] = layer.tree("place", image)
        out[:] = _plus(layer.tree("pool", image), beta, out)

    def bprop_pool(self, layer, *args, **kwargs):
        """The gradient in pooling's input, in one of two forms:

        bprop_pool(layer, I, E, grad_I, alpha=1.0, beta=0.0) takes the input I; bprop_pool(layer, E, delta, argmax=None, alpha=1.0,
        beta=0.0), Neon's later form, what fprop_pool() left in argmax ('max'; 'avg' needs nothing, 'l2' has no such form).
        Both write alpha * gradient + beta * what is there.  Four tensors are the second form where their sizes say so, and, where input
        and output are equally large, where the last one's type is of whole numbers.
        """
        _layer("bprop_pool", layer, PoolLayer)
        given = _pool_arguments(layer, args, kwargs)
        error = _sized("bprop_pool", "E", given["E"], layer.dimO)
        out = _sized("bprop_pool", "grad_I", given["grad_I"], layer.dimI)
        if given["I"] is not None:
            image = _sized("bprop_pool", "I", given["I"], layer.dimI)
            tree = gradient(layer.tree("pool", image), error, image)
        elif layer.op == "max":
            tree = layer.tree("from_place", error, _sized("bprop_pool", "argmax", given["argmax"], layer.dimO))
        elif layer.op == "avg":
            tree = gradient(layer.tree("pool", out), error, out)
        else:
            raise _core.UnsupportedOpError("bprop_pool(): 'l2' needs the input: bprop_pool(layer, I, E, grad_I)")
        out[:] = _plus(_scaled(tree, given["alpha"]), given["beta"], out)

    # -- recurrent layers and lookup tables --------------------------------------------------------
    def compound_rnn_unroll_fprop(self, W_recur, h_prev_s, h_ff_s, h_s, bias, nout, num_steps, num_used_steps, activation, reverse=False):
        """h = activation(W_recur * h_prev + h_ff + bias) step by step, backwards if reverse.

        h_prev_s, h_ff_s, h_s: for each step a Tensor (nout, N), views of one tensor of all steps; h_ff may be h.
        num_used_steps: of the num_steps, or None for all.  activation: callable on op-trees.
        """
        steps = _steps(num_steps, num_used_steps, reverse, h_s, h_prev_s, h_ff_s)
        for h, h_prev, h_ff in steps:
            h[:] = activation(dot(W_recur, h_prev) + h_ff + bias)

    def compound_rnn_unroll_bprop(self, W_recur, delta_prev_s, delta_s, h_s, nout, num_steps, num_used_steps, activation, reverse=True):
        """delta = activation.bprop(h) * delta, then delta_prev = W_recur * delta + delta_prev, step by step, backwards if reverse.

        W_recur: as it multiplies errors, that is transposed.  The others as in compound_rnn_unroll_fprop().
        """
        for h, delta, delta_prev in _steps(num_steps, num_used_steps, reverse, h_s, delta_s, delta_prev_s):
            delta[:] = activation.bprop(h) * delta
            self.compound_dot(W_recur, delta, delta_prev, beta=1.0)

    def compound_bprop_lut(self, nin, inputs, error, error_t, dW, pad_idx, alpha=1.0, beta=0):
        """dW = alpha * (errors summed by word) + beta * dW: the gradient of a lookup table dW (words, n).

        nin: how many words.  inputs: Tensor with nin numbers of words.  error: Tensor (n, nin); error_t: None, or a Tensor (nin, n),
        which gets it transposed.  pad_idx: a word without gradient, or None.
        """
        _tensors("compound_bprop_lut", inputs=inputs, error=error, dW=dW)
        words = _sized("compound_bprop_lut", "inputs", inputs, (1, nin))
        if error.shape != (dW.shape[-1], nin) or len(dW.shape) != 2:
            raise _core.ShapeError(f"compound_bprop_lut(): error has shape {error.shape}, expected {(dW.shape[-1], nin)} for {nin} words")
        if error_t is not None:
            error_t[:] = error.T
        kept = error if pad_idx is None else error * binary("ne", words, pad_idx)
        table = self.take(dW, words, 0)
        dW[:] = _plus(_scaled(gradient(table, unary("transpose", kept), dW), alpha), beta, dW)


def _steps(num_steps, num_used_steps, reverse, *lists):
    if num_used_steps is not None and num_used_steps < num_steps:
        lists = [list(x)[:num_used_steps] for x in lists]
    steps = list(zip(*lists))
    return reversed(steps) if reverse else steps


_FORMS = ("I", "E", "grad_I", "alpha", "beta"), ("E", "delta", "argmax", "alpha", "beta")


def _pool_arguments(layer, args, kwargs):
    """Which of the forms of bprop_pool() it is: {I or None, E, grad_I, argmax or None, alpha, beta}."""
    later = bool({"argmax", "delta", "O"} & kwargs.keys())
    if not later and not {"grad_I", "E"} & kwargs.keys():
        third = args[2] if len(args) > 2 else None
        if not isinstance(third, Tensor):
            later = True
        elif layer.sizeI != layer.sizeO:
            later = third.size == layer.sizeO and args[0].size == layer.sizeO
        else:
            later = third.dtype.kind in "iu"
    names = _FORMS[later]
    if len(args) > len(names):
        raise TypeError(f"bprop_pool() takes at most {len(names) + 1} arguments")
    given = dict(zip(names, args))
    for name, value in kwargs.items():
        name = {"O": "delta", "I": "E"}.get(name, name) if later else name
        if name not in names:
            raise TypeError(f"bprop_pool() has no argument {name!r} here; it has {', '.join(names)}")
        if name in given:
            raise TypeError(f"bprop_pool() was given {name!r} twice")
        given[name] = value
    found = {"I": None, "argmax": None, "alpha": 1.0, "beta": 0.0} | given
    if later:
        found["grad_I"] = found.get("delta")
    missing = [name for name in names[:2 if later and layer.op != "max" else 3] if found.get(name) is None]
    if missing:
        raise TypeError(f"bprop_pool() was not given {missing[0]!r}")
    return found
