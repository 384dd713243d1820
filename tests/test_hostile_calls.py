"""Any call of the core's graphs and flat views, with whatever arguments, returns or raises one of Python's exceptions.

Each run is a process of its own, so that a crash or a hang fails one test and names the call: `python
tests/test_hostile_calls.py SEED CALLS` prints each call before it is made."""
import contextlib
import faulthandler
import random
import subprocess
import sys

import numpy as np
import pytest

import dcml
import dcml._core

MODEL = """graph g opset 13 {
  symbol N >= 1
  input X: f32[N]
  input A: f32[4, 5]
  param W: f32[4, 5]
  temp Y: f32[N]
  temp Z: f32[N]
  temp B: f32[4, 5]
  temp C: f32[4, 5]
  temp S: f32[]
  outputs Z, C
  state main {
    map i in 0:N #Mul {
      Y[i] = X[i] * 2.0f if X[i] > 0.0f #Mul
    }
    map i in 0:N #Add {
      Z[i] = Y[i] + 1.0f #Add
    }
    map i in 0:4, j in 0:5 {
      B[i, j] = A[i, j] + W[i, j]
    }
    C = Relu@13(B)
  }
  state second {
    map i in 0:4, j in 0:5 {
      A[i, j] = B[i, j]
    }
    reduce k in 0:5 {
      S[] sum= B[0, k]
    }
  }
}
"""
EMPTY = """graph g opset 13 {
  symbol N >= 0
  input X: f32[N]
  input A: f32[4, 5]
  input E: i64[N]
  temp Y: f32[N]
  temp B: f32[4, 5]
  temp S: f32[]
  outputs Y, B, S
  state main {
  }
}
"""
NESTED = """graph n opset 13 {
  symbol N >= 0
  input X: f32[N]
  temp Y: f32[N]
  outputs Y
  state main {
    map i in 0:N {
      Y[i] = X[i] * 2.0f
    }
  }
}
"""
DEEP = 100_000
TEXTS = [
    "", " ", "0", "i", "N", "X", "Y", "0:N", "0:4, 0:5", "i, j", "0:5, i", "i + 1, j", "0:N:2", "0:N:-1", "0:N:0", "5:0", "-3:2", "-1",
    "::", ":", ",", ",,,", "0:1:2:3",
    str(2**62), f"0:{2**63}", f"0:{10**40}", f"-{2**63}:{2**63 - 1}", f"{2**62} * {2**62}", "N / 0", "N % 0", "1 / 0", "N * N * N",
    "(" * DEEP, "(" * DEEP + "0" + ")" * DEEP,
    "-" * DEEP + "1", "[" * DEEP, "1 + " * DEEP + "1", "0, " * 200 + "0", "0:1, " * DEEP, "i" * DEEP, "min(" * 1000, "a[" * DEEP
    + "]" * DEEP, "\x00", "é", "\ud800", "\n", "#", "//", "{", "}",
    "X[X[X[i]]]", "Y[i] = Y[i]", "out = in", "out = a[]", "out = out[]", "o = a[] + 1.0f", "out = a[] if a[] > 0.0f", "out = "
    + "(" * DEEP + "a[]" + ")" * DEEP, "out = " + "exp(" * 5000 + "a[]" + ")" * 5000,
    "out = a[i, j, k, l]", "t = a[]\nout = t", "t = t\nout = t", "out = a[" * 1000, "out[i] = a[i]", "out = 1e400", "out = nan", "= 3",
    "out =", "a[] = out", "out = a[] ? 1 : 2",
    "sum", "prod", "min", "max", "minus", "default", "parallel", "sequential", "reduce", "scatter", "gpu", "IN_X", "OUT_X", "IN_", "OUT_",
    "in_0", "out_0", "a", "out", "data", "__return", "__return_0",
    "Relu", "Add", "Concat", "Split", "If", "Loop", "NoSuchOp", "ai.onnx", "main", "second", "MapFusion", "MapTiling(tile_sizes=0)",
    "MapTiling(tile_sizes=-1,2)", f"MapTiling(tile_sizes={2**62})",
    "MapTiling(" * 1000, "MapExpansion", "StateFusion", "Vectorization(vector_len=0)", f"Vectorization(vector_len={2**40})",
    "InputToConstant", "ConstantFolding", "RedundantArray", "TaskletFission", "expand", "fuse", "infer",
    "differentiate", "    map i in 0:N {\n      Y[i] = X[i]\n    }\n", "symbol M >= 3\n", "temp T: f32[M, M]\n", "C = Relu@13(X)\n",
    "map i in 0:N {\n" * 5000, "Y[0] = X[1000]\n", "map i in 0:0:0 {\n}\n", "temp T: f32[" + "1, " * 5000 + "1]",
]
NUMBERS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 16, 64, 65, 1000, -1, -2, -(2**31), 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**62,
    2**63 - 1, 2**63, -(2**63), 10**40, True, 1.5, float("nan"), float("inf")]
NAMES = ["X", "A", "W", "Y", "Z", "B", "C", "N", "i", "none", "new", "T"]


class Liar:
    """Says one length and has another, and fails where it is looked at."""

    def __len__(self):
        return 2**40

    def __getitem__(self, k):
        if k > 5:
            raise IndexError(k)
        return "X"

    def __bool__(self):
        raise RuntimeError("no truth")


class Emptying:
    """An index that empties the list that it is in."""

    def __init__(self, around):
        self.around = around

    def __index__(self):
        del self.around[:]
        return 3


class Hammer:
    def __init__(self, seed):
        from dcml import _core

        self.core, self.random, self.edges = _core, random.Random(seed), []
        self.renew()

    def renew(self):
        text = MODEL if self.random.random() < 0.8 else MODEL.split("state second")[0] + "}\n"
        self.graphs = [self.core.parse(text), self.core.Graph("other")]
        self.flows = [self.graphs[0].flow(0)]
        self.arrays = [np.ones((4, 5), np.float32), np.ones(3), np.zeros((0, 2), np.int64), np.array(7), np.array(["a", b"b"], object),
            np.ones((1,) * 20), np.ones(6, np.complex64)[::2]]

    def text(self):
        return self.random.choice(NAMES if self.random.random() < 0.4 else TEXTS)

    def number(self):
        return self.random.choice(NUMBERS) if self.random.random() < 0.3 else self.random.randrange(14)

    def few(self, make):
        return [make() for _ in range(self.random.choice([0, 1, 1, 2, 2, 3, 9, 70]))]

    def ranges(self):
        return [tuple(self.random.choice(["i0N1i"[k], self.text()]) for k in range(self.random.choice([4, 4, 4, 4, 4, 4, 3, 5])))
            for _ in range(self.random.choice([0, 1, 2, 2, 100]))]

    def memlet(self):
        return tuple(self.random.choice([[self.text() for _ in range(self.random.choice([2, 3, 3, 4, 5]))], [self.random.choice(NAMES),
            self.random.choice(["0:N", "i", "0:4, 0:5", None]), self.random.choice(["", "sum"])]]))

    def attributes(self):
        return {self.text(): self.anything(2) for _ in range(self.random.randrange(4))}

    def shape(self):
        return self.random.choice([self.few(self.number), self.few(lambda: self.random.choice(["N", 4, 5])), [2**62, 2**62, 4],
            [2**40] * 3, ["N"] * 9, [1] * 70])

    def liar(self):
        around = [1]
        around.append(Emptying(around))
        return self.random.choice([Liar(), around, (k for k in "XY"), memoryview(b"abc"), object(), self.core, int, bytearray(b"\xff" * 9)])

    def anything(self, depth=0):
        kinds = [self.text, self.number, self.number, lambda: None, self.liar, lambda: b"\x00\xff", lambda: self.random.choice(self.arrays)]
        if depth < 3:
            kinds += [lambda: self.few(lambda: self.anything(depth + 1)), lambda: tuple(self.few(self.text)), self.memlet, self.ranges,
                self.shape, self.attributes,
                      lambda: {self.text(): self.text()}, lambda: {self.text(): (self.text(), self.text())},
                      lambda: self.few(self.number), lambda: self.random.choice(self.graphs), lambda: self.random.choice(self.flows)]
        return self.random.choice(kinds)()

    def wanted(self, word):
        """An argument of the kind that a method's text names."""
        makers = {"id": self.number, "edge": self.number, "entry": self.number, "tasklet": self.number, "library": self.number,
            "state": lambda: self.random.choice([0, 0, 1, 2, 2**31]), "src": self.number, "dst": self.number,
                  "name": lambda: self.random.choice(NAMES), "new": lambda: self.random.choice(NAMES), "label": self.text,
                  "inputs": lambda: self.few(lambda: self.random.choice(["a", *NAMES])),
                  "outputs": lambda: self.few(lambda: self.random.choice(["out", *NAMES])),
                  "statements": self.text, "schedule": self.text, "graph": lambda: self.random.choice(self.graphs),
                  "inner": lambda: self.random.choice(self.graphs), "memlet": self.memlet, "dtype": lambda: self.random.choice([1, 1, 7,
                  9, 11, self.number()]),
                  "shape": self.shape, "array": lambda: self.random.choice(self.arrays), "attrs": self.attributes, "op": self.text,
                  "domain": self.text, "text": self.text, "call": self.text, "src_conn": self.connector, "dst_conn": self.connector,
                  "opset": self.number, "wrt": lambda: self.few(lambda: self.random.choice(NAMES)),
                  "nodes": lambda: self.few(self.number), "node_id": self.number, "set": self.number, "position": self.number,
                  "strides": self.shape, "transient": lambda: self.random.choice([True, False]),
                  "sizes": lambda: {"N": self.random.choice([1, 5, -1, 0])}, "ranges": self.ranges}
        return makers.get(word, self.anything)()

    def connector(self):
        return self.random.choice([None, None, "a", "out", "IN_X", "OUT_X", self.text()])

    def arguments(self, method):
        listed = (method.__doc__ or "").partition("(")[2]
        listed = listed.replace("[(param, begin, end, step)]", "ranges").partition(")")[0]
        words = [word.split("=")[0].strip() for word in listed.split(",") if word.strip()]
        if self.random.random() < 0.1:
            return [self.anything() for _ in range(self.random.randrange(8))]
        return [self.wanted(word) if self.random.random() < 0.85 else self.anything() for word in words]

    def call(self, tell):
        target = self.random.choice(self.graphs) if self.random.random() < 0.45 else self.random.choice(self.flows)
        name = self.random.choice([n for n in dir(type(target)) if not n.startswith("_")])
        member = getattr(target, name)
        if not callable(member):
            return
        arguments = self.arguments(member)
        if tell:
            print(f"{type(target).__name__}.{name}{tuple(shortened(a) for a in arguments)}", flush=True)
        try:
            result = member(*arguments)
        except SystemError:  # a method that fails and says nothing, or the other way round
            raise
        except Exception as error:
            if type(error).__name__ in ("AssertionError", "NotImplementedError"):
                raise
            return
        if isinstance(result, self.core.Graph) and len(self.graphs) < 5:
            self.graphs.append(result)
        if isinstance(result, self.core.Flow) and len(self.flows) < 5:
            self.flows.append(result)


class Draft:
    """Maps, tasklets and copies that are nearly right: what was drafted is built, and what could be built is run."""

    SUBSETS = ["i", "0:N", "0", "N - 1", "i + 1", "N - i - 1", "0:N:2", "1:N", "-1", "N", "2 * i", "i:i + 3", "i, j", "0:4, 0:5",
        "0:4, 1:4", "i, 0:5", "j, i", "0:1", "3:1", "X[i]", "a", "0, 0", "100", "0:100"]
    CODES = ["y = x[] + 1.0f", "y = x[i]", "y[i] = x[i]", "y = x[i, j]", "y = x[5]", "y = x[-1]", "t = x[] * x[]\ny = t + t", "y = y[]",
        "x = y[]", "y = z[]", "y = x", "y = i32(x[])", "y = x[x[]]", "y = x[i32(x[])]", "y = f32(N)", "y = x[] if x[] > 0.0f", "y = 3",
        "z = x[]", ""]

    def __init__(self, seed):
        from dcml import _core

        self.core, self.random, self.hammer = _core, random.Random(seed), Hammer(seed)

    def one(self, good):
        return self.hammer.text() if self.random.random() < 0.02 else self.random.choice(good)

    def array(self):
        return self.one("XXXYYYABSE")

    def memlet(self, container):
        if self.random.random() < 0.02:
            return self.random.choice([None, self.hammer.anything()])
        vector = ["i", "i", "0", "N - 1", "N - i - 1", "0:N", "0:N", "0:N:2", "1:N", "i + 1", "-1", "i - 1", "3:1", "100"]
        good = {"A": ["i, 0", "0:4, 0:5", "1:3, 2:4", "i, 0:5", "3, 4", "4, 5"], "S": ["0", None]}.get(container.replace("B", "A"), vector)
        return (self.array() if self.random.random() < 0.05 else container, self.one(good
            if self.random.random() < 0.9 else self.SUBSETS), self.random.choice(["", "", "", "", "sum", "max"]))

    def range(self):
        return ("i", "0", self.random.choice("NN45"), self.random.choice("1112")) if self.random.random() < 0.8 else (self.one(["i", "j",
            "k", "i"]), self.one(["0", "0", "0", "1", "N", "i", "-2"]), self.one(["N", "N", "4", "5", "0", "N / 2", "i", "i + 2"]),
            self.one(["1", "1", "1", "2", "3", "-1", "0", "N"]))

    def path(self, flow, scopes, ends):
        """Edges from an access node through all entries to a connector of a node, or the other way round."""
        node, connector, is_input = ends
        container = self.array()
        access, memlet = flow.add_access(container), self.memlet(container)
        point = self.memlet(container) if scopes and self.random.random() < 0.2 else (container, {"A": "1, 2", "B": "2, i",
            "S": "0"}.get(container, "i" if scopes else "N - 1"))
        if connector in ("X", "Y"):
            point = (container, None)
        last, last_connector = (access, None)
        for entry, exit in scopes if is_input else scopes[::-1]:
            at = entry if is_input else exit
            flow.add_connector(at, "IN_" + container, True), flow.add_connector(at, "OUT_" + container, False)
            pair = ((last, last_connector, at, "IN_" + container) if is_input else (at, "OUT_" + container, last, last_connector))
            if not is_input:
                pair = (node, connector, at, "IN_" + container) if last == access else (last, "OUT_" + container, at, "IN_" + container)
            flow.add_edge(*pair, point if node in pair else memlet)
            last, last_connector = at, "OUT_" + container
        flow.add_edge(*((last, last_connector, node, connector) if is_input else ((last, last_connector, access, None)
            if last != access else (node, connector, access, None))), point if is_input or not scopes else memlet)

    def draft(self, flow, nested):
        scopes = []
        for _ in range(self.random.choice([0, 1, 1, 1, 2, 3])):
            ranges = [self.range() for _ in range(self.random.choice([1, 1, 1, 2]))]
            scopes.append(flow.add_map("m", ranges, self.one(["default", "default", "parallel", "sequential", "reduce", "scatter"])))
        kind = self.random.choice(["tasklet", "tasklet", "tasklet", "library", "nested"])
        if kind == "tasklet":
            node = flow.add_tasklet("t", ["x"], ["y"], self.one(self.CODES) if self.random.random() < 0.4 else "y = x[] + 1.0f")
        elif kind == "nested":
            node = flow.add_nested("n", nested, ["X"], ["Y"], self.random.choice([{}, {"N": self.one(["N", "4", "0", "-1", "i"])}]))
        else:
            node = flow.add_library("l", self.one(["Relu", "Relu", "Elu", "Sign"]), "", self.one_number(13), {})
        names = {"tasklet": ("x", "y"), "nested": ("X", "Y"), "library": ("X", "Y")}[kind]
        flow.add_connector(node, names[0], True), flow.add_connector(node, names[1], False)
        self.path(flow, scopes, (node, names[0], True))
        self.path(flow, scopes, (node, names[1], False))
        for _ in range(self.random.choice([0] * 9 + [1, 3])):  # whatever else: order, circles, copies
            ids = flow.nodes()
            flow.add_edge(self.random.choice(ids), self.hammer.connector(), self.random.choice(ids), self.hammer.connector(),
                self.memlet(self.array()))
        if self.random.random() < 0.1:
            flow.remove_node(self.random.choice(flow.nodes()))

    def one_number(self, good):
        return self.random.choice(NUMBERS) if self.random.random() < 0.05 else good

    def run(self, tell):
        graph, nested = self.core.parse(EMPTY), self.core.parse(NESTED)
        flow = graph.flow(0)
        try:
            for _ in range(self.random.choice([1, 1, 2])):
                self.draft(flow, nested)
            if tell:
                print(flow.text(), flush=True)
            flow.build()
            graph.verify()
            self.core.parse(graph.text())
            flow.renew(), graph.flow(0), flow.touch(), flow.build()
            for k in (0, 1, 6):
                self.core.Function(graph, backend="interp")(np.ones(k, np.float32), np.full((4, 5), 2, np.float32), np.arange(k))
        except SystemError:
            raise
        except Exception as error:
            if tell:
                print(type(error).__name__, str(error)[:300], flush=True)
            return False
        return True


def shortened(value):
    text = repr(value)
    return value if len(text) < 300 else f"{text[:40]}...{len(text)}"


def translate_all():
    for k, code in enumerate(DEEP_CODE):
        print("code", k, flush=True)
        faulthandler.dump_traceback_later(30, exit=True)
        translate(code)
    faulthandler.cancel_dump_traceback_later()


def main(seed, calls, tell):
    hammer, draft, built = Hammer(seed), Draft(seed), 0
    for k in range(calls):
        faulthandler.dump_traceback_later(30, exit=True)
        hammer.call(tell)
        if k % 3 == 0:
            built += draft.run(tell)
        if k % 40 == 39:
            hammer.renew()
    faulthandler.cancel_dump_traceback_later()
    assert built > calls / 100, f"only {built} drafts could be run"


def run(*arguments):
    done = subprocess.run([sys.executable, __file__, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, (done.stdout + done.stderr)[-2000:]


@pytest.mark.parametrize("seed", range(4))
def test_whatever_a_graph_or_a_flow_is_called_with_it_answers_or_raises(seed):
    code, output = run(seed, 1500)
    if code:
        code, output = run(seed, 1500, "tell")
    assert code == 0, output


DEEP_CODE = ["y = " + "(" * DEEP + "x" + ")" * DEEP, "y = " + "x + " * DEEP + "x", "y = " + "-" * DEEP + "x", "y = " + "f(" * DEEP,
    "if x > 0:\n  " * 50, "y = y", "y = z", "while True: y = x", "y = (lambda: x)()",
             "def f(): return f()\ny = f()", "y = [x for x in x]", "import os", "y = __import__('os')", "y = x if x else", "y = x["
             + "x[" * 5000, "y = 10 ** 10 ** 10", "y = 1 << 10 ** 9", "y: int = x", "x = y", "y, y = x, x", "del x", "", "\x00",
             "y = " + "x if x > 0 else " * 5000 + "x", "t = x + x\n" + "t = t + t\n" * 2000 + "y = t", "if x > 0:\n  y = 1\n"
             + "elif x > 1:\n  y = 2\n" * 3000]


def translate(code):
    sdfg = dcml.SDFG("built")
    for name in "AB":
        sdfg.add_array(name, (4,), dcml.float32)
    state = sdfg.add_state("main")
    with contextlib.suppress(dcml.Error, SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        state.add_mapped_tasklet("t", dict(i="0:4"), dict(x=dcml.Memlet("A[i]")), code, dict(y=dcml.Memlet("B[i]")), external_edges=True)
        sdfg.validate()


def test_code_of_a_tasklet_is_translated_or_refused():
    code, output = run("codes")
    assert code == 0, output


@pytest.mark.parametrize("memlet", ["A[9]", "A[-9]", "A[0:99]", "A[i, j]", "A[", "A[]", "A[::]", "A[0:4:0]", "A[0:4:-1]", "none[0]",
    "A[none]", "A[A[A[0]]]", "A[" + "(" * DEEP + "0" + ")" * DEEP + "]", "A[" * DEEP, "", "A[1/0]", f"A[{2**62}:{2**63}]", f"A[{10**40}]"])
@pytest.mark.parametrize("wcr", [None, "lambda a, b: a + b", "lambda a, b: a - b", "lambda: 1", "lambda " + "a" * DEEP, "(" * DEEP, "sum",
    7])
def test_memlets_of_whatever_are_refused_or_stay_inside(memlet, wcr):
    sdfg = dcml.SDFG("built")
    for name in "AB":
        sdfg.add_array(name, (4,), dcml.float32)
    state = sdfg.add_state("main")
    a, b = np.ones(4, np.float32), np.zeros(4, np.float32)
    with contextlib.suppress(dcml.Error, SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        state.add_edge(state.add_read("A"), None, state.add_write("B"), None, dcml.Memlet(memlet, wcr=wcr))
        sdfg.validate()
        dcml._core.Function(sdfg.graph, backend="interp")(a, b)
    assert np.isfinite(b).all() and (a == 1).all()


def test_edges_in_a_circle_are_refused():
    sdfg = dcml.SDFG("built")
    sdfg.add_array("A", (4,), dcml.float32)
    state = sdfg.add_state("main")
    first, second = state.add_access("A"), state.add_access("A")
    state.add_edge(first, None, second, None, dcml.Memlet("A[0]"))
    state.add_edge(second, None, first, None, dcml.Memlet("A[1]"))
    with pytest.raises(dcml.Error, match="circle"):
        sdfg.validate()


if __name__ == "__main__":
    faulthandler.enable()
    translate_all() if sys.argv[1] == "codes" else main(int(sys.argv[1]), int(sys.argv[2]), len(sys.argv) > 3)
