"""add_backward_pass on programs as the SDFG interface makes them: maps, sums in place, loops, registers, several writers.

Each is a text and the same in torch, whose autograd says what the gradients are.
"""
import numpy as np
import pytest
import torch

import dcml
from dcml import _core
from dcml.autodiff import AutoDiffException, add_backward_pass
from dcml.sdfg import SDFG

D = "f64"


def graph(declarations, body, after=""):
    return _core.parse(f"graph program opset 21 {{\n{declarations}\nstate main {{\n{body}\n}}\n{after}\n}}")


def given(g, name, rng):
    _, shape, _ = g.info(name)
    return rng.standard_normal([{"N": 5, "M": 4, "K": 3}.get(e, e) for e in shape])


def check(g, reference, outputs, inputs, backend="interp", **symbols):
    """Runs the program with its backward pass, and compares with torch: reference takes {name: tensor}, and replaces
    what the program writes."""
    rng = np.random.default_rng(7)
    names, program = g.inputs, SDFG(g)
    arrays = {name: given(g, name, rng) for name in names}
    add_backward_pass(program, program.node(0), outputs, inputs)
    grads = {f"gradient_{n}": rng.standard_normal(arrays[n].shape) for n in dict.fromkeys([*outputs, *inputs])}
    leaves = {n: torch.tensor(a, requires_grad=n in inputs) for n, a in arrays.items()}
    values = dict(leaves)
    reference(values)
    wanted = torch.autograd.grad([values[n] for n in outputs], [leaves[n] for n in inputs],
                                 [torch.tensor(grads[f"gradient_{n}"]) for n in outputs], allow_unused=True)
    seeds = {n: grads[f"gradient_{n}"].copy() for n in outputs}
    _core.Function(program.graph, backend=backend)(**arrays, **grads, **symbols)
    for n in names:
        np.testing.assert_allclose(arrays[n], values[n].detach().numpy(), rtol=1e-9, atol=1e-12, err_msg=n)
    for n, w in zip(inputs, wanted):
        w = np.zeros_like(arrays[n]) if w is None else w.numpy()
        np.testing.assert_allclose(grads[f"gradient_{n}"], w, rtol=1e-8, atol=1e-11, err_msg=f"gradient_{n}")
    for n in outputs:
        if n not in inputs:
            np.testing.assert_array_equal(grads[f"gradient_{n}"], seeds[n])


GEMM = """symbol N >= 0
symbol M >= 0
symbol K >= 0
input X: f64[N, M]
input Y: f64[M, K]
temp Z: f64[N, K]
input S: f64[1]"""


@pytest.mark.parametrize("backend", ["interp", "cpu"])
def test_the_manuals_product_and_sum(backend):
    g = graph(GEMM, """Z = MatMul@13(X, Y)
    scatter i in 0:N, j in 0:K { S[0] sum= Z[i, j] }""")

    def reference(v):
        v["S"] = v["S"] + (v["X"] @ v["Y"]).sum()
    check(g, reference, ["S"], ["X", "Y"], backend)


XZ = "symbol N >= 0\ninput X: f64[N]\ninput Z: f64[N]\n"


def step(v, name, value):
    v[name] = value


PROGRAMS = {
    "sum onto what is there": (XZ, "map i in 0:N { Z[i] sum= X[i] * X[i] }", lambda v: step(v, "Z", v["Z"] + v["X"] ** 2)),
    "itself": (XZ, "map i in 0:N { Z[i] = Z[i] * Z[i] + X[i] }", lambda v: step(v, "Z", v["Z"] ** 2 + v["X"])),
    "itself twice": (XZ, "map i in 0:N { Z[i] = Z[i] * X[i] }\nmap i in 0:N { Z[i] = sin(Z[i]) }",
                     lambda v: step(v, "Z", torch.sin(v["Z"] * v["X"]))),
    "in one map": (XZ, "map i in 0:N { Z[i] = Z[i] * X[i]\nZ[i] = sin(Z[i])\nX[i] = Z[i] * X[i] }",
                   lambda v: (step(v, "Z", torch.sin(v["Z"] * v["X"])), step(v, "X", v["Z"] * v["X"]))),
    "a part": (XZ, "map i in 1:N:2 { Z[i] = X[i] * Z[i - 1] }",
               lambda v: step(v, "Z", torch.stack([v["X"][i] * v["Z"][i - 1] if i % 2 else v["Z"][i] for i in range(5)]))),
    "overwritten": (XZ, "map i in 0:N { X[i] sum= Z[i] * Z[i] }\nmap i in 0:N { Z[i] = X[N - 1 - i] }",
                    lambda v: (step(v, "X", v["X"] + v["Z"] ** 2), step(v, "Z", v["X"].flip(0)))),
    "where": (XZ, "map i in 0:N { Z[i] = X[i] * Z[i] if X[i] > Z[i] }",
              lambda v: step(v, "Z", torch.where(v["X"] > v["Z"], v["X"] * v["Z"], v["Z"]))),
    "register": (XZ + "temp t: f64[] register\ntemp u: f64[] register\n",
                 "map i in 0:N { t[] = X[i] * Z[i]\nu[] = sin(t[])\nZ[i] = u[] * t[] }",
                 lambda v: step(v, "Z", torch.sin(v["X"] * v["Z"]) * v["X"] * v["Z"])),
    "operators": (XZ, "Z = Mul@14(Z, Z)\nZ = Tanh@13(Z)\nX = Mul@14(X, Z)\nZ = Exp@13(X)",
                  lambda v: (step(v, "X", v["X"] * torch.tanh(v["Z"] ** 2)), step(v, "Z", torch.exp(v["X"])))),
    "maximum": (XZ + "input M: f64[1]\n", "reduce i in 0:N { M[0] max= X[i] * Z[i] }\nM = Mul@14(M, M)\nmap i in 0:N { Z[i] = X[i] * M[0] }",
                lambda v: (step(v, "M", (v["X"] * v["Z"]).max().reshape(1) ** 2), step(v, "Z", v["X"] * v["M"]))),
    "sum into what is read": (XZ + "input S: f64[1]\n", "map i in 0:N { Z[i] = Z[i] * S[0] }\nreduce i in 0:N { S[0] sum= Z[i] * X[i] }",
                              lambda v: (step(v, "Z", v["Z"] * v["S"]), step(v, "S", (v["Z"] * v["X"]).sum().reshape(1)))),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("backend", ["interp", "cpu"])
def test_updates_in_place(name, backend):
    declarations, body, reference = PROGRAMS[name]
    g = graph(declarations, body)
    check(g, reference, g.inputs, g.inputs, backend)


def power(v):
    for _ in range(3):
        v["Z"] = v["Z"] * v["Z"] * v["X"]


def rnn(v):
    for k in range(5):
        v["H"] = torch.tanh(v["W"] @ v["H"] + v["X"][k])


def running(v):
    z = list(v["Z"])
    for i in range(1, 5):
        z[i] = z[i - 1] * v["X"][i]
    v["Z"] = torch.stack(z)


def turned(v):
    z = list(v["Z"])
    for i in range(4, 0, -1):
        z[i - 1] = z[i] * z[i - 1] + v["X"][i]
    v["Z"] = torch.stack(z)


def every_second(v):
    z = list(v["Z"])
    for i in range(1, 5, 2):
        z[i] = z[i - 1] * z[i] * v["X"][i]
    v["Z"] = torch.stack(z)


def stencil(v):
    for _ in range(3):
        v["T"] = torch.stack([v["Z"][i] * v["Z"][(i + 1) % 5] for i in range(5)])
        v["Z"] = torch.sin(v["T"] * v["X"])


def accumulated(v):
    for k in range(5):
        v["S"] = v["S"] + v["X"][k] * v["S"] * v["Z"][k]


WHX = "symbol N >= 0\nsymbol M >= 0\ninput X: f64[N, M]\ninput W: f64[M, M]\ninput H: f64[M]\ntemp T: f64[M]\n"
LOOPS = {
    "power": (XZ, "sequential t in 0:3 { map i in 0:N { Z[i] = Z[i] * Z[i] * X[i] } }", power),
    "recurrent net": (WHX, """sequential t in 0:N {
        map i in 0:M { reduce k in 0:M { T[i] sum= W[i, k] * H[k] } }
        map i in 0:M { H[i] = tanh(T[i] + X[t, i]) } }""", rnn),
    "running product": (XZ, "sequential t in 1:N { Z[t] = Z[t - 1] * X[t] }", running),
    "backwards": (XZ, "sequential t in 1:N { Z[N - 1 - t] = Z[N - t] * Z[N - 1 - t] + X[N - t] }", turned),
    "every second": (XZ, "sequential t in 1:N:2 { Z[t] = Z[t - 1] * Z[t] * X[t] }", every_second),
    "stencil": (XZ + "input T: f64[N]\n", """sequential t in 0:3 {
        map i in 0:N { T[i] = Z[i] * (i + 1 < N ? Z[i + 1] : Z[0]) }
        map i in 0:N { Z[i] = sin(T[i] * X[i]) } }""", stencil),
    "register": (XZ + "input S: f64[1]\ntemp t: f64[] register\n", """sequential k in 0:N { t[] = X[k] * S[0]
        S[0] sum= t[] * Z[k] }""", accumulated),
}


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("backend", ["interp", "cpu"])
def test_loops_that_change_what_they_read(name, backend):
    declarations, body, reference = LOOPS[name]
    g = graph(declarations, body)
    check(g, reference, g.inputs, g.inputs, backend)


@pytest.mark.parametrize("body, says", [
    ("scatter i in 0:N { X[i] = X[N - 1 - i] * Z[i] }", "'X' is changed in place"),
    ("sequential t in 0:3 { reduce i in 0:N { Z[0] max= X[i] } map i in 0:N { X[i] = X[i] * Z[0] } }", "a maximum or minimum in a loop"),
    ("map i in 0:N { Z[i] max= X[i] }", "max"),
])
def test_what_cannot_be_differentiated_is_refused_and_leaves_the_program(body, says):
    g = graph(XZ, body)
    before = g.text()
    with pytest.raises(AutoDiffException, match=says) as caught:
        add_backward_pass(SDFG(g), SDFG(g).node(0), ["Z"], ["X"])
    assert isinstance(caught.value, dcml.Error) and g.text() == before


def test_later_states_may_overwrite_too():
    g = graph(XZ, "map i in 0:N { Z[i] = X[i] * X[i] }", "state later { map i in 0:N { X[i] = 0.0 } }")

    def reference(v):
        v["Z"] = v["X"] ** 2
        v["X"] = v["X"] * 0
    check(g, reference, ["Z"], ["X"])


def test_gradient_arrays_that_are_there_are_used():
    g = graph(XZ + "input gradient_Z: f64[N]\ninput gradient_X: f64[N]", "map i in 0:N { Z[i] = X[i] * X[i] }")
    add_backward_pass(SDFG(g), SDFG(g).node(0), ["Z"], ["X"])
    assert g.inputs == ["X", "Z", "gradient_Z", "gradient_X"]
    x, z, dx = np.arange(3.0), np.zeros(3), np.ones(3)
    _core.Function(g)(x, z, np.full(3, 2.0), dx)
    np.testing.assert_array_equal(dx, 4 * x)
    g = graph(XZ + "temp gradient_X: f64[N]", "map i in 0:N { Z[i] = X[i] * X[i] }")
    with pytest.raises(dcml.ValueError_, match="'gradient_X' already"):
        add_backward_pass(SDFG(g), SDFG(g).node(0), ["Z"], ["X"])


def test_names_may_be_access_nodes():
    class Access:
        def __init__(self, data):
            self.data = data
    g = graph(XZ, "map i in 0:N { Z[i] = X[i] * X[i] }")
    add_backward_pass(sdfg=SDFG(g), state=SDFG(g).node(0), outputs=[Access("Z")], inputs=[Access("X"), Access("X")])
    assert g.inputs == ["X", "Z", "gradient_Z", "gradient_X"]
    with pytest.raises(dcml.ValueError_, match="'X' is named twice"):
        add_backward_pass(SDFG(g), SDFG(g).node(0), ["Z"], ["X", "X"])
