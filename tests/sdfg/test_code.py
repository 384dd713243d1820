"""Code of tasklets: what it becomes, and what is said about code that is not understood."""
import re

import pytest

import dcml
from dcml.sdfg.code import translate


def statements(code, inputs="ax", outputs="bc"):
    return translate("tasklet 't'", code, inputs, [name for name in outputs if re.search(rf"\b{name}\b", code)]).statements


@pytest.mark.parametrize("code, wanted", [
    ("b = a + 1", "b = (a[] + 1)"),
    ("b = -a ** 2 / 3.5", "b = ((-pow(a[], 2)) * 1.0 / 3.5)"),
    ("b = sqrt(a) + math.log(a) + np.abs(a) + dace.math.exp(a)", "b = (((sqrt(a[]) + log(a[])) + abs(a[])) + exp(a[]))"),
    ("b = min(a, 1, x[i, 0])", "b = min(a[], 1, x[i, 0])"),
    ("b = a if a > 0 else N", "b = ((a[] > 0) ? a[] : N)"),
    ("b = 0 < a <= 1 and not x[0] or isnan(a)", "b = ((((0 < a[]) && (a[] <= 1)) && not(bool(x[0]))) || isnan(a[]))"),
    ("b = dace.float32(a) + int(a) + math.pi", "b = ((f32(a[]) + i64(a[])) + 3.141592653589793)"),
    ("b = a // 2 % 3 & 1 << 2", "b = band(((a[] // 2) % 3), shl(1, 2))"),
    ("b, c = a, a + 1", "b = a[]\nc = (a[] + 1)"),
    ("b = c = a", "b = a[]\nc = a[]"),
    ("b[i + 1] = a", "b[(i + 1)] = a[]"),
    ("b: dace.float32 = a; pass", "b = a[]"),
    ("b = 1e-7 + True", "b = (1e-07 + true)"),
])
def test_expressions(code, wanted):
    assert statements(code) == wanted


def test_a_name_that_is_set_again_is_another_value():
    assert statements("t = a * a\nt = t + 1\nb = t * t") == "t_1 = (a[] * a[])\nt_2 = (t_1 + 1)\nb = (t_2 * t_2)"
    assert statements("b = a\nb += 1\nb *= b") == "b_1 = a[]\nb_2 = (b_1 + 1)\nb = (b_2 * b_2)"


def test_branches_meet_in_a_choice():
    code = """
    if a > 0:
        t = a
        b = 1
    elif a < -1:
        t = 2
        b = 3
    else:
        t = 4
        b = t
    c = t
    """
    assert statements(code).splitlines()[-2:] == ["b = (holds_1 ? 1 : (holds_2 ? 3 : 4))", "c = t_1"]


def test_an_output_of_one_branch_is_guarded():
    assert statements("if a:\n  b = 1") == "holds_1 = bool(a[])\nb = 1 if holds_1"
    assert statements("if a > 1:\n  if a > 2:\n    b[0] = 1") == ("holds_1 = (a[] > 1)\nholds_2 = (a[] > 2)\n"
                                                              "b[0] = 1 if holds_1 && holds_2")


def test_constant_loops_are_written_out():
    assert statements("b = 0\nfor k in range(1, 3):\n  b = b + x[k]") == "b_1 = (0 + x[1])\nb = (b_1 + x[2])"


def test_repeated_values_do_not_grow_the_code():
    code = "t = a\n" + "t = t * t\n" * 60 + "b = t"
    assert len(statements(code)) < 3000


def test_what_the_code_takes_from_around_is_told():
    code = translate("t", "b = a * N + i", "a", "b")
    assert code.free == {"N", "i"}


@pytest.mark.parametrize("code, says", [
    ("b = a\nwhile a:\n  pass", r"tasklet 't', line 2: 'while a:': expected assignments"),
    ("b = q(a)", "line 1: .*there is no function 'q'; there are abs, "),
    ("c = a\nb = d.e", "line 2: 'b = d.e': 'd.e' is no constant"),
    ("b = b + 1", "output 'b' is read before it is assigned"),
    ("a = 2", "'a' is an input"),
    ("b = (", "line 1: 'b = \\(': "),
    ("if a:\n  t = 1\nb = t", "line 3: 'b = t': 't' has no value in a branch"),
    ("b = x[0:3]", "expected an index in each dimension"),
    ("b = 'x'", "'x' is no number"),
    ("b = sqrt(a, 2)", "sqrt: expected 1 arguments, got 2"),
    ("b = y[0]", "'y' is no input"),
    ("b[0] += 2", "combine into an array by the memlet's wcr"),
    ("for k in range(9999):\n  b = k", "expected a map"),
    ("for k in range(N):\n  b = k", "range of constants"),
    ("b = [1]", "not '\\[1\\]'"),
    ("b = a(3)", "there is no function 'a'"),
    ("b = f.g(3)", "'f.g' is no function"),
    ("b = max(a, key=1)", "arguments without names"),
    ("b = a is x", "expected < <="),
    ("import os\nb = 1", "line 1: 'import os'"),
    ("b = " + "(" * 5000 + "1" + ")" * 5000, "tasklet 't'"),
    ("b = " + "-" * 5000 + "1", "nested too deeply"),
])
def test_code_that_is_not_understood_is_shown(code, says):
    with pytest.raises(dcml.Error, match=says):
        translate("tasklet 't'", code, "ax", "b")


def test_an_output_that_is_never_assigned_is_named():
    with pytest.raises(dcml.ValueError_, match="output 'c' is never assigned"):
        translate("tasklet 't'", "b = a", "a", "bc")
    with pytest.raises(dcml.ValueError_, match="expected its code as a text, got int"):
        translate("tasklet 't'", 3, "a", "b")


def computed(code, **arrays):
    """What a tasklet computes for each element of arrays by its inputs' names; inputs not of f64 keep their types."""
    import numpy as np

    import dcml as dace
    sdfg, n = dace.SDFG("t"), len(next(iter(arrays.values())))
    for name, value in arrays.items():
        sdfg.add_array(name.upper(), value.shape, value.dtype)
    sdfg.add_array("OUT", (n,), dace.float64)
    sdfg.add_state().add_mapped_tasklet("t", {"i": f"0:{n}"}, {name: dace.Memlet(f"{name.upper()}[i]") for name in arrays}, code,
                                        {"out": dace.Memlet("OUT[i]")}, external_edges=True)
    out = np.zeros(n)
    sdfg(OUT=out, **{name.upper(): value for name, value in arrays.items()})
    return out


def test_random_code_computes_what_python_does():
    import math
    import random

    import numpy as np
    random.seed(7)

    def expression(depth, names):
        if depth == 0:
            return random.choice([*names, "2", "0.5", "3"])
        a, b, c = (expression(random.randrange(depth), names) for _ in range(3))
        return random.choice([f"({a} + {b})", f"({a} - {b})", f"{a} * ({b})", f"({a}) / (1 + abs({b}))", f"max({a}, {b})", f"min({a}, {b}, {c})",
                              f"sqrt(abs({a}))", f"math.sin({a})", f"({a} if {b} > {c} else {b})", f"-({a})", f"({a}) ** 2",
                              f"float({a} < {b} and not {c} >= 1)", f"floor({a}) % 3"])

    def program(depth, names, indent=""):
        lines = []
        for k in range(random.randrange(1, 4)):
            name = random.choice(["t", "u", "v"])
            if depth and random.random() < 0.4 and len(names) > 2:
                lines.append(f"{indent}if {expression(1, names)} > {expression(1, names)}:")
                lines += program(depth - 1, names, indent + "    ") or []
                if random.random() < 0.6:
                    lines.append(f"{indent}else:")
                    lines += program(depth - 1, names, indent + "    ")
            else:
                lines.append(f"{indent}{name} = {expression(2, names)}")
                names = names if indent else [*names, name]
        return lines

    scope = {**{f: getattr(math, f) for f in ("sqrt", "floor")}, "math": math, "abs": abs, "max": max, "min": min, "float": float}
    for _ in range(25):
        code = "\n".join(["t = a", "u = b", "v = a - b", *program(2, ["a", "b", "t", "u", "v"]), f"out = {expression(3, ['a', 'b', 't', 'u', 'v'])}"])
        a, b = np.random.default_rng(1).normal(size=(2, 20))
        wanted = []
        for x, y in zip(a, b):
            names = {"a": x, "b": y}
            exec(code, dict(scope), names)
            wanted.append(names["out"])
        np.testing.assert_allclose(computed(code, a=a, b=b), wanted, rtol=1e-9, atol=1e-12, err_msg=code)


def test_types_mix_as_in_python():
    import numpy as np
    whole, half = np.int32([7, -7]), np.float32([0.5, 2])
    for code in ("out = w / 2", "out = w // 2", "out = w % 4", "out = w ** 2", "out = w * h", "out = w if h > 1 else h", "out = -w + 1",
                 "out = 1 / w", "out = (w > 0) + 1", "out = 3 if w else 4", "out = abs(w) / 4 * h", "out = w & 3", "out = ~w"):
        wanted = []
        for w, h in zip(whole.tolist(), half.tolist()):
            names = {"w": w, "h": h}
            exec(code, {}, names)
            wanted.append(names["out"])
        np.testing.assert_allclose(computed(code, w=whole, h=half), wanted, rtol=1e-6, err_msg=code)
