"""Functions of NumPy that are others put together, against NumPy."""
import numpy as np
import pytest

import dcml


def program_of(tmp_path, expression, parameters):
    """A program that returns an expression, from a file."""
    path = tmp_path / "source.py"
    path.write_text(f"import numpy as np\n\ndef f({parameters}):\n    return {expression}\n")
    scope = {}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    return dcml.program(scope["f"])


LINES = {
    "hstack": ("np.hstack((a, b))", (3, 4), (3, 2)),
    "hstack of vectors": ("np.hstack([a, b])", (4,), (2,)),
    "vstack": ("np.vstack([a, b])", (4,), (4,)),
    "dstack": ("np.dstack((a, b))", (3, 4), (3, 4)),
    "column_stack": ("np.column_stack((a, b))", (4,), (4, 2)),
    "split": ("np.split(a, 2, axis=1)[1] + np.split(a, [2])[0][:, :2]", (2, 4)),
    "splits": ("np.vsplit(a, 2)[1] + np.split(np.hsplit(a, [4])[1], 2)[0]", (4, 5)),
    "array_split": ("np.concatenate(np.array_split(a, 3)[::-1])", (8,)),
    "einsum with advice": ("np.einsum('ij,jk->ik', a, b, optimize='greedy')", (2, 3), (3, 2)),
    "transpose by name": ("np.transpose(a, axes=(2, 0, 1))", (2, 3, 4)),
    "tile": ("np.tile(a, (2, 3))", (4,)),
    "repeat": ("np.repeat(a, 3, axis=1)", (2, 4)),
    "repeat all": ("np.repeat(a, 2)", (2, 4)),
    "roll": ("np.roll(a, 2, axis=1)", (4, 3)),
    "roll all": ("np.roll(a, -2)", (4, 3)),
    "roll two": ("np.roll(a, (1, -1), axis=(0, 1))", (4, 3)),
    "flips": ("np.flipud(a) + np.fliplr(a)", (4, 4)),
    "diff": ("np.diff(a) + np.diff(a, n=1, axis=1)", (3, 5)),
    "diff twice": ("np.diff(a, n=2, axis=0)", (5, 3)),
    "pad": ("np.pad(a, ((1, 0), (0, 2)), constant_values=3)", (2, 2)),
    "triu and tril": ("np.triu(a, 1) + np.tril(a)", (4, 5)),
    "diag of a vector": ("np.diag(a, 1)", (4,)),
    "diag of a matrix": ("np.diag(a, -1)", (4, 3)),
    "trace": ("np.trace(a)", (4, 4)),
    "kron": ("np.kron(a, b)", (2, 2), (2, 3)),
    "tensordot": ("np.tensordot(a, b, axes=([1, 2], [0, 1]))", (2, 3, 4), (3, 4, 5)),
    "tensordot of one": ("np.tensordot(a, b, 1)", (2, 3, 4), (4, 3, 5)),
    "inner": ("np.inner(a, b)", (3, 4), (2, 4)),
    "vdot": ("np.vdot(a, b)", (4, 2), (4, 2)),
    "count_nonzero": ("np.count_nonzero(a > 0, axis=0)", (3, 2)),
    "ptp": ("np.ptp(a, axis=1)", (3, 2)),
    "average": ("np.average(a, weights=b) + np.average(a)", (5,), (5,)),
    "norm": ("np.linalg.norm(a)", (4, 3)),
    "norm of rows": ("np.linalg.norm(a, axis=1, keepdims=True)", (4, 3)),
    "norm of orders": ("np.linalg.norm(a, 1) + np.linalg.norm(a, np.inf) + np.linalg.norm(a, ord=2)", (4,)),
}


@pytest.mark.parametrize("name", LINES)
def test_it_gives_what_numpys_gives(name, agree, tmp_path):
    body, *shapes = LINES[name]
    f = program_of(tmp_path, body, ", ".join("ab"[:len(shapes)]))
    agree(f, *(np.abs(np.random.default_rng(k).standard_normal(s)) + 0.1 for k, s in enumerate(shapes)))


def test_what_an_operator_computes_may_stand_in_a_map():
    @dcml.program
    def f(A, B):
        for i in dcml.map[0:3]:
            B[i] = np.argmax(A[i]) + np.cumsum(A[i])[-1]
    A, B = np.random.default_rng(1).random((3, 4)), np.zeros(3)
    f(A, B)
    np.testing.assert_allclose(B, A.argmax(1) + A.sum(1))


@pytest.mark.parametrize("body, text", [
    ("np.split(a, 3)", "4 elements in 3 equal parts"), ("np.dsplit(a, 2)", "axis 2 of an array with 2 dimensions"), ("np.pad(a, 1, mode='edge')", "the mode 'edge'"),
    ("np.linalg.norm(a, 'nuc')", "the order 'nuc'"), ("np.tensordot(a, a, ([0], [0, 1]))", "1 axes of the first operand, 2")],
    ids=["split", "dsplit", "pad", "norm", "tensordot"])
def test_what_is_not_understood_is_said(body, text, tmp_path):
    with pytest.raises(dcml.Error, match=text):
        program_of(tmp_path, body, "a")(np.ones((4, 4)))
