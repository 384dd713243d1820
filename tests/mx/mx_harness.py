"""How a case of dcml.mx is checked: values against NumPy, gradients against central differences in float64."""
import numpy as onp

from dcml.mx import autograd, np, npx


class Case:
    """An operator on inputs: ``want`` computes what comes out, with NumPy, of NumPy's arrays and the attributes.

    inputs: arrays in float64 or of integers, passed by position; a dictionary: passed by keyword, in that order.
    gradients: True: of every input of floats, by central differences of ``want``; a tuple: only of those at these
    positions; False: none.  exact: {position: gradient} where the operator defines another one, for head gradients of ones.
    train: run as in training."""

    def __init__(self, op, inputs, attributes=None, want=None, gradients=True, exact=None, train=True, tolerance=1e-6, name=""):
        self.op, self.attributes, self.want, self.gradients, self.exact = op, attributes or {}, want, gradients, exact or {}
        self.names = list(inputs) if isinstance(inputs, dict) else None
        self.inputs = [None if v is None else onp.asarray(v) for v in (inputs.values() if isinstance(inputs, dict) else inputs)]
        self.train, self.tolerance, self.name = train, tolerance, name

    def __str__(self):
        text = ",".join(f"{k}={v}" for k, v in self.attributes.items())
        return f"{self.op}({self.name or text})"

    def call(self, arrays):
        function = getattr(npx, self.op)
        results = function(**dict(zip(self.names, arrays)), **self.attributes) if self.names else function(*arrays, **self.attributes)
        return list(results) if isinstance(results, (list, tuple)) else [results]

    def expected(self, values):
        found = self.want(*values, **self.attributes)
        return list(found) if isinstance(found, (list, tuple)) else [found]


def arrays_of(case, dtype=None):
    """The inputs as arrays; floats in another type if one is given."""
    return [None if v is None else np.array(v.astype(dtype) if dtype and v.dtype.kind == "f" else v) for v in case.inputs]


def check_value(case):
    with autograd.train_mode() if case.train else autograd.predict_mode():
        made = case.call(arrays_of(case))
    wanted = case.expected(case.inputs)
    assert len(made) == len(wanted)
    for m, w in zip(made, wanted):
        w = onp.asarray(w)
        assert m.shape == w.shape, f"shape {m.shape}, expected {w.shape}"
        onp.testing.assert_allclose(m.asnumpy().astype(onp.float64), w.astype(onp.float64), rtol=case.tolerance, atol=case.tolerance)


def check_gradients(case):
    """The tape's gradients for random gradients of the results."""
    places = [k for k, v in enumerate(case.inputs) if v is not None and v.dtype.kind == "f"]
    if case.gradients is not True:
        places = [k for k in places if k in (case.gradients or ())]
    arrays = arrays_of(case)
    for k in places:
        arrays[k].attach_grad()
    with autograd.record(train_mode=case.train):
        made = case.call(arrays)
    rng = onp.random.default_rng(3)
    floats = [k for k, m in enumerate(made) if m.dtype.kind == "f"]
    heads = [onp.ones(made[k].shape) if case.exact else rng.standard_normal(made[k].shape) for k in floats]
    autograd.backward([made[k] for k in floats], [np.array(h) for h in heads])

    def total(values):
        wanted = case.expected(values)
        return sum(float((onp.asarray(wanted[k]) * h).sum()) for k, h in zip(floats, heads))
    for k in places:
        wanted = onp.asarray(case.exact[k], dtype=float) if k in case.exact else differences(total, case.inputs, k)
        onp.testing.assert_allclose(arrays[k].grad.asnumpy(), wanted, rtol=2e-5, atol=2e-5, err_msg=f"gradient of input {k}")


def differences(total, inputs, k, step=1e-5):
    """Central differences of a number by each element of one input."""
    values = [None if v is None else v.copy() for v in inputs]
    found = onp.zeros(values[k].shape)
    for place in onp.ndindex(values[k].shape):
        old = values[k][place]
        values[k][place] = old + step
        up = total(values)
        values[k][place] = old - step
        found[place] = (up - total(values)) / (2 * step)
        values[k][place] = old
    return found
