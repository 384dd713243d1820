"""Arguments that a graph writes in place: whose memory is used, what may be given, and that every pass and backend keeps it right."""

import itertools

import numpy as np
import pytest
import torch

import dcml
from dcml import _core

AXPY = """graph axpy opset 21 {
  symbol N >= 0
  symbol K >= 0
  input X: f32[N]
  input a: f32[]
  input Z: f32[N]
  state main { map i in 0:K { Z[i] sum= X[i] * a[] if i < N } }
}"""


def function(text, **options):
    return _core.Function(_core.parse(text), **options)


@pytest.fixture(scope="module")
def axpy():
    return function(AXPY)


def ones(n=6):
    return np.ones(n, np.float32)


@pytest.mark.parametrize("backend", ["interp", "cpu"])
def test_accumulates_into_what_is_in_the_array_and_keeps_the_rest(backend):
    z = ones()
    assert function(AXPY, backend=backend)(np.arange(6, dtype=np.float32), 2.0, z, K=3) == ()
    assert z.tolist() == [1, 3, 5, 1, 1, 1]


def test_tensors_of_torch_are_filled_without_copies(axpy):
    z = torch.ones(6)
    at = z.data_ptr()
    axpy(X=torch.arange(6.0), a=torch.tensor(0.5), Z=z, K=6)
    assert z.tolist() == [1, 1.5, 2, 2.5, 3, 3.5] and z.data_ptr() == at


def test_a_part_of_an_array_is_written_where_it_lies(axpy):
    whole = np.zeros((3, 6), np.float32)
    axpy(X=ones(), a=1, Z=whole[1], K=6)
    assert whole.tolist() == [[0] * 6, [1] * 6, [0] * 6]


def test_numbers_and_symbols_come_by_name(axpy):
    assert axpy.arguments == ("X", "a", "Z") and axpy.symbols == ("N", "K")
    for number in 2, 2.0, np.float32(2), np.float64(2), np.int64(2), True + 1, np.array(2, np.float32):
        z = ones(2)
        axpy(Z=z, a=number, X=ones(2), K=np.int32(2))
        assert z.tolist() == [3, 3], number


def test_a_symbol_in_an_extent_is_solved_for():
    double = function("graph double opset 21 {\n symbol N >= 0\n input Z: f32[2 * N + 1]\n state main { map i in 0:N { Z[i] = 5.0f } }\n}")
    z = ones(7)
    double(z)
    assert z.tolist() == [5, 5, 5, 1, 1, 1, 1]
    with pytest.raises(dcml.ValueError_, match="'N' has no value"):
        double(ones(6))


READ_ONLY = ones()
READ_ONLY.flags.writeable = False
SHARED = ones(9)


@pytest.mark.parametrize(
    "given, error, says",
    [
        ({"Z": np.ones((6, 2), np.float32)[:, 0]}, dcml.ValueError_, "'Z'.*contiguous"),
        ({"Z": torch.ones(6, 2)[:, 0]}, dcml.ValueError_, "'Z'.*contiguous"),
        ({"Z": np.ones(6)}, dcml.DTypeError, "'Z' has type f64, expected f32"),
        ({"Z": np.ones(6, ">f4")}, dcml.ValueError_, "'Z'"),
        ({"Z": READ_ONLY}, dcml.ValueError_, "'Z'.*read-only"),
        ({"Z": torch.ones(6, requires_grad=True)}, dcml.ValueError_, "'Z'.*detach"),
        ({"Z": [1.0] * 6}, dcml.ValueError_, "'Z'.*list"),
        ({"Z": 1.0}, dcml.ValueError_, "'Z'"),
        ({"Z": ones(5)}, dcml.ShapeError, "'Z': dimension 0 is 5, expected 6"),
        ({"X": SHARED[:6], "Z": SHARED[3:]}, dcml.ValueError_, "'Z'.*overlaps that of 'X'"),
        ({"a": "2"}, dcml.ValueError_, "'a'"),
        ({"a": 1 + 2j}, dcml.DTypeError, "'a'"),
        ({"K": 1.5}, dcml.ValueError_, "'K' takes a whole number"),
        ({"K": -1}, dcml.ValueError_, "'K' is -1, expected at least 0"),
        ({"N": 7}, dcml.ShapeError, "'X': dimension 0 is 6, expected 7"),
        ({"Q": 7}, dcml.ValueError_, "no argument 'Q'"),
        ({"K": None}, dcml.ValueError_, "'K'"),
    ],
)
def test_what_does_not_fit_is_named(axpy, given, error, says):
    with pytest.raises(error, match=says):
        axpy(**{"X": ones(), "a": 2, "Z": ones(), "K": 6} | given)


def test_flat_arguments_are_taken_as_they_lie():
    double = function("graph double opset 21 {\n symbol N >= 0\n input X: f32[N]\n input Z: f32[N]\n state main { map i in 0:N { Z[i] sum= X[i] } }\n}", flat=True)
    x = torch.arange(24.0).reshape(1, 2, 3, 4).contiguous(memory_format=torch.channels_last)
    z = torch.zeros_like(x).requires_grad_()
    double(x, z)
    assert torch.equal(z, x)
    double(torch.ones(4), torch.ones(2, 2))
    for wrong, says in (x.contiguous(), "'Z' lies in memory in another order than 'X'"), (torch.ones(4, 12)[:, ::2], "'X': .*without gaps"), \
            (torch.ones(1).expand(24), "'X': .*without gaps"):
        with pytest.raises(dcml.ShapeError, match=says):
            double(wrong, z)
    with pytest.raises(dcml.ShapeError, match="'Z': dimension 0 is 24, expected 23"):
        double(torch.ones(23), torch.ones(24))
    assert torch.equal(z, x)


def test_of_many_arguments_those_that_overlap_are_found():
    n = 40
    arrays = " ".join(f"input X{k}: f32[2]\n input Z{k}: f32[2]\n" for k in range(n))
    many = function(f"graph many opset 21 {{\n {arrays} state main {{ {' '.join(f'map i in 0:2 {{ Z{k}[i] = X{k}[i] }}' for k in range(n))} }}\n}}")
    given = {f"{a}{k}": np.full(2, k, np.float32) for k in range(n) for a in "XZ"}
    many(**given | {"X7": given["X3"]})
    assert given["Z7"].tolist() == [3, 3]
    for a, b in ("Z31", "X2"), ("Z31", "Z2"), ("X31", "Z2"):
        with pytest.raises(dcml.ValueError_, match=f"'({a}|{b})' is written in place, but its memory overlaps that of '({a}|{b})'"):
            many(**given | {a: given[b]})


def test_missing_and_repeated_arguments_are_named(axpy):
    with pytest.raises(dcml.ValueError_, match="not given its argument 'Z'"):
        axpy(X=ones(), a=1, K=2)
    with pytest.raises(dcml.ValueError_, match="'X' twice"):
        axpy(ones(), X=ones(), a=1, K=2)
    with pytest.raises(dcml.ValueError_, match="'K' has no value"):
        axpy(ones(), 1, ones())


def test_arrays_that_are_only_read_may_be_one(axpy):
    add = function("graph add opset 21 {\n input A: f32[6]\n input B: f32[6]\n input Z: f32[6]\n state main { map i in 0:6 { Z[i] = A[i] + B[i] } }\n}")
    a, z = ones(), ones()
    add(a, a, z)
    assert z.tolist() == [2] * 6


def test_integers_of_all_widths_are_checked():
    for type_, good, bad in ("u8", 255, 256), ("i8", -128, -129), ("i64", -(2**63), 2**63), ("u64", 2**64 - 1, 2**64), ("i32", 7, 1.5):
        f = function(f"graph g opset 21 {{\n input a: {type_}[]\n input Z: {type_}[1]\n state main {{ Z[0] = a[] }}\n}}")
        z = np.zeros(1, {"u": "uint", "i": "int"}[type_[0]] + type_[1:])
        f(good, z)
        assert z[0] == good
        with pytest.raises(dcml.DTypeError, match=f"'a'.*{type_}"):
            f(bad, z)


# What is read stands before, between and after what is written: as maps, as operators, and where both are one array.
PIECES = {
    "map": "map i in 0:N { Z[i] sum= X[i] }",
    "operator": "Z = Mul@14(X, X)",
    "itself": "Z = Add@14(Z, X)",
    "turned": "map i in 0:N { Z[i] = T[N - 1 - i] }",
    "keeps": "T = Identity@16(Z)",
    "views": "R = Reshape@14(Z, S)\n T = Flatten@13(R) {axis = 0}",
    "half": "map i in 0:N:2 { Z[i] = Z[i] * 0.5f + X[i] }",
    "reads": "map i in 0:N { Y[i] sum= Z[i] }",
}


def steps(order):
    body = "\n".join(PIECES[k].replace("Flatten@13(R) {axis = 0}", "Reshape@14(R, S)") for k in order)
    return f"""graph order opset 21 {{
      symbol N >= 0
      const S: i64[1] = {{-1}}
      input X: f32[N]
      input Y: f32[N]
      input Z: f32[N]
      temp T: f32[N]
      temp R: f32[N]
      state main {{ map i in 0:N {{ T[i] = X[i] }}
        {body} }}
    }}"""


def expected(order, x, y, z):
    t = x.copy()
    for k in order:
        if k == "map":
            z = z + x
        elif k == "operator":
            z = x * x
        elif k == "itself":
            z = z + x
        elif k == "turned":
            z = t[::-1].copy()
        elif k in ("keeps", "views"):
            t = z.copy()
        elif k == "half":
            z = z.copy()
            z[::2] = z[::2] * 0.5 + x[::2]
        else:
            y = y + z
    return y, z


@pytest.mark.parametrize("order", [p for n in (2, 3) for p in itertools.permutations(PIECES, n)][::7], ids="-".join)
def test_order_decides(order):
    x, y, z = (np.random.default_rng(k).standard_normal(5).astype(np.float32) for k in range(3))
    wanted = expected([*order, "reads"], x, y, z)
    function(steps([*order, "reads"]), backend="interp")(x, y, z)
    np.testing.assert_allclose(y, wanted[0], rtol=1e-5)
    np.testing.assert_allclose(z, wanted[1], rtol=1e-5)


def test_a_library_writes_into_the_callers_array():
    product = function("""graph product opset 21 {
      input A: f32[64, 64]
      input Z: f32[64, 64]
      input W: f32[64, 64]
      state main {
        Z = MatMul@13(A, A)
        W = MatMul@13(W, Z)
      }
    }""")
    a, w = (np.random.default_rng(k).standard_normal((64, 64)).astype(np.float32) for k in range(2))
    z, before = np.zeros_like(a), w.copy()
    product(a, z, w)
    np.testing.assert_allclose(z, a @ a, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(w, before @ (a @ a), rtol=1e-3, atol=1e-2)


def test_an_output_that_is_written_in_place_is_not_returned_again():
    f = function("graph g opset 21 {\n input Z: f32[2]\n temp Y: f32[2]\n outputs Z, Y\n state main { map i in 0:2 { Z[i] = 3.0f }\n Y = Neg@13(Z) }\n}")
    z = ones(2)
    (y,) = f(z)
    assert z.tolist() == [3, 3] and y.tolist() == [-3, -3]


def test_a_view_of_an_argument_may_be_written():
    f = function("graph g opset 21 {\n input Z: f32[4]\n temp V: f32[2] view Z at 1\n state main { map i in 0:2 { V[i] = 3.0f } }\n}")
    z = ones(4)
    f(z)
    assert z.tolist() == [1, 3, 3, 1]


def test_arrays_are_added_as_arguments_temporaries_and_results():
    g = _core.Graph("g")
    for name, transient in ("A", False), ("T", True), ("__return", False):
        assert g.add_array(name, 1, ["N"], transient) == name
    assert [g.info(n)[2] for n in g.arrays] == ["input", "temp", "temp"] and g.inputs == ["A"] and g.outputs == ["__return"]


def test_without_results_such_a_graph_has_no_backward_graph_and_no_onnx_form():
    with pytest.raises(dcml.UnsupportedOpError, match="returns nothing to differentiate.*add_backward_pass"):
        function(AXPY, wrt=["X"])(ones(), 1, ones())
    with pytest.raises(dcml.UnsupportedOpError, match="'Z' in place"):
        _core.parse("graph g opset 21 {\n input X: f32[2]\n input Z: f32[2]\n state main { Z = Neg@13(X) }\n}").to_onnx()


OVERWRITES = """graph g opset 21 {
 input A: f64[3]
 temp t: f64[]
 temp s: f64[3]
 outputs s
 state main {
  t[] = 1.0
  sequential i in 0:3 {
   t[] = t[] * A[i] + t[] * t[]
   A[i] = sin(A[i] * t[])
   s[i] = t[] * A[i]
  }
  map i in 0:3 { A[i] = 7.0 }
 }
}"""


@pytest.mark.parametrize("keep", ["auto", "store", "recompute", "least"])
def test_results_are_differentiated_with_respect_to_what_was_there_before_it_was_overwritten(keep):
    f, a, ds = function(OVERWRITES, wrt=["A"], keep=keep), np.array([0.3, 0.5, 0.2]), np.array([1.0, 2.0, 3.0])

    def value(x):
        t, s = 1.0, 0.0
        for i in range(3):
            t = t * x[i] + t * t
            s += ds[i] * t * np.sin(x[i] * t)
        return s
    wanted = [(value(a + e) - value(a - e)) / 2e-6 for e in np.eye(3) * 1e-6]
    _, (gradient,) = f.vjp([a], [ds])
    np.testing.assert_allclose(gradient, wanted, rtol=1e-6)
    assert a.tolist() == [7, 7, 7]
