"""Cases of npx: layers, shapes, sequences."""
import numpy as onp
from mx_harness import Case

_rng = onp.random.default_rng(1)


def normal(*shape):
    return _rng.standard_normal(shape)


_STE = onp.array([[-2.5, -1.4, -0.0], [0.5, 1.5, 2.4]])

CASES = [
    Case("round_ste", [_STE], want=lambda x: onp.sign(x) * onp.floor(onp.abs(x) + 0.5), exact={0: onp.ones((2, 3))}),
    Case("sign_ste", [_STE], want=onp.sign, exact={0: onp.ones((2, 3))}),
    Case("stop_gradient", [_STE], want=lambda x: x, exact={0: onp.zeros((2, 3))}),
    Case("batch_flatten", [normal(2, 3, 4)], want=lambda x: x.reshape(2, -1)),
]
