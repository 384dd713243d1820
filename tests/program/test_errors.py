"""What is not understood is told with its line, and what to write instead."""
import numpy as np
import pytest

import dcml
import dcml as dace


def program_of(tmp_path, body, head="X, Y"):
    """A program with one statement of its own, from a file."""
    path = tmp_path / "source.py"
    path.write_text(f"import numpy as np\nimport math\nimport dcml as dace\n\n@dace.program\ndef f({head}):\n    {body}\n")
    scope = {}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    return scope["f"]


@pytest.mark.parametrize("body, says", [
    ("while X[0] > 0: pass", "number of steps depends on data.*write for k in range"),
    ("Y[:] = np.fft.fft(X)", "numpy.fft.fft of arrays is not understood"),
    ("Y[:] = undefined + X", "the name 'undefined' is not defined"),
    ("for x in X[0]: pass", "a loop over|cannot"),
    ("if X > 0: Y[:] = 1", "as a condition; write np.where"),
    ("Y[:] = X and Y", "write np.logical_and"),
    ("Y[X > 0] = X", "write A\\[:\\] = np.where"),
    ("return X[X > 0]", "an array of bool as an index; write np.where"),
    ("Y[:] = 'a'", "'a' where an array or a number is expected"),
    ("Y[:] = X.sort()", "the method 'sort' of arrays is not understood"),
    ("Y[:] = np.sum(X, where=X)", "this use of numpy.sum.*where"),
    ("Y[:] = X.sum(axis=5)", "axis 5 of an array with 1 dimensions"),
    ("Y[:] = X.reshape(7, 7)", "extents|elements"),
    ("try: pass\n    except ValueError: pass", "Try statements"),
    ("with open('x'): pass", "blocks are with dcml.tasklet"),
    ("X[0]", "an expression without effect"),
    ("X.shape = 3", "an assignment to X.shape"),
    ("a, b = X, Y, X", "2 names for"),
    ("Y[:] = f2(X)", "the name 'f2'"),
    ("Y[:] = 10 ** 400 * X", "OverflowError|float|is no"),
    ("Y[:] = np.add(X)", "numpy.add takes 2 arguments, 1 are given"),
    ("Y[:] = np.matmul(X, 2)", "a matrix product of"),
    ("Y[:] = X[1, 2]", "2 indices for X with 1 dimensions"),
    ("Y[:] = X @ np.ones((5, 2))", "extents .* do not fit"),
    ("Y[:] = X; Y += 1j", "complex64 would lose"),
    ("with dace.tasklet:\n        a << X[0]\n        b >> Y[0]\n        c = a", "does not assign 'b'"),
    ("with dace.tasklet:\n        a << X[0]\n        b >> Y(1, lambda p, q: p - q)[0]\n        b = a", "a combination; write lambda"),
    ("@staticmethod\n    def g(i): Y[i] = 1", "the decorator staticmethod; functions in programs have"),
    ("for i in dace.map[0:3:-1]: pass", "a step that is not a positive number"),
    ("for i in dace.map[3]: pass", "write begin:end"),
    ("for i in dace.map[0:2]:\n        X = X + 1", "'X' is assigned in each iteration"),
    ("for k in range(3):\n        X = X[1:]", "changes its shape"),
    ("if X[0] > 0: return X\n    return Y", "a return inside a loop, or under a condition"),
    ("Y[:] = [v for v in X[:2] if v > 0][0]", "must be known when the program is compiled"),
    ("for k in range(2):\n        t = X[k]\n    Y[:] = np.zeros(3)[k]\n    Y[0] = missing", "'missing'"),
    ("Y += np.ones(4, dtype=np.complex64)", "complex"),
])
def test_with_file_line_and_caret(tmp_path, body, says):
    program, x = program_of(tmp_path, body), np.ones(4, np.float32)
    with pytest.raises(dcml.Error, match=f"(?s)program f: .*({says}).*source.py:[0-9]+") as told:
        program(x, x.copy())
    assert "^" in str(told.value) and type(told.value) is not dcml.Error


def test_functions_without_end_are_refused(tmp_path):
    path = tmp_path / "deep.py"
    path.write_text("import dcml\ndef g(x):\n    return g(x) + 1\n\n@dcml.program\ndef f(X):\n    return g(X)\n")
    scope = {}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    with pytest.raises(dcml.UnsupportedOpError, match="functions that call each other without end.*deep.py:3"):
        scope["f"](np.ones(3))


def test_a_program_without_source_is_refused():
    scope = {}
    exec("def f(X):\n    return X\n", scope)
    with pytest.raises(dcml.UnsupportedOpError, match="its source is not to be found"):
        dace.program(scope["f"])(np.ones(3))


def test_an_error_in_a_function_that_is_called_names_its_line(f32):
    def helper(x):
        return x.sort()

    @dace.program
    def f(X):
        return helper(X)

    with pytest.raises(dcml.UnsupportedOpError, match=r"function helper: the method 'sort'.*test_errors.py"):
        f(f32(3))


def test_names_of_dcml_that_belong_into_programs_say_so():
    with pytest.raises(dcml.ValueError_, match="belongs into a function with @dcml.program"):
        with dace.tasklet:
            pass
    with pytest.raises(TypeError, match="unexpected keyword argument 'fast'"):
        dace.program(fast=True)
