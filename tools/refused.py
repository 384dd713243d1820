"""Writes docs/refused.md: what of torch's own databases dcml refuses.  refused.py [--samples N] [--types float32,...] [TARGET]

Each operator runs in a process that ends with it where it crashes; what was found so far lies in build/refused.jsonl, so that a run
that was interrupted goes on.  --page only writes the page again.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
JOURNAL = ROOT / "build" / "refused.jsonl"
HEAD = """# What is refused of PyTorch

Written by `tools/refused.py` from runs of torch's own databases of operators (`op_db`) and modules (`module_db`); do not edit.
A sample follows eager PyTorch, in results and gradients, or is refused by a `dcml.Error` with the line and the reason.
`torch.compile(model, backend="dcml")` splits the graph at what depends on values, and around functions under
`torch.compiler.disable`; everything else may move out of `forward`.  How many samples were run stands below; operators that are
not compared stand in `EXCEPT` of `tests/pytorch/operators_db.py`.

"""


def found(dtype, begin, samples):
    """Appends a line to the journal for each operator from ``begin`` on; a child process runs this."""
    sys.path.insert(0, str(ROOT / "tests" / "pytorch"))
    import operators_db as db

    import dcml
    from dcml.library import change_default
    with change_default(dcml.onnx, "interpreted"), open(JOURNAL, "a", buffering=1) as journal:
        for k, op in enumerate(db.operators()):
            if k < begin or db.DTYPES[dtype] not in op.dtypes or op.name in db.EXCEPT:
                continue
            one = {"at": k, "name": db.name_of(op), "dtype": dtype}
            journal.write(json.dumps({**one, "begins": True}) + "\n")
            one.update(samples=0, torch=0, refused={}, wrong={})
            for _, became in db.judged(op, db.DTYPES[dtype], samples):
                one["samples"] += 1
                one["torch"] += became == ""
                if isinstance(became, Exception):
                    kind = "refused" if isinstance(became, dcml.Error) else "wrong"
                    text = reason(str(became))
                    one[kind][text] = one[kind].get(text, 0) + 1
            journal.write(json.dumps(one) + "\n")


def reason(text):
    """What a message says, without the line and the ways out."""
    text = re.sub(r" \((?:/|[A-Z]:).*\)$", "", text.strip().splitlines()[0])
    text = re.sub(r": torch\.compile\(model.*", "", text)
    text = re.sub(r"(nothing computes it of) .*", r"\1 these arguments", text)
    return re.sub(r"0x[0-9a-f]+", "", text).replace("|", "\\|")[:160]


def run(dtype, samples):
    """All operators of a type, whatever becomes of the processes."""
    done = [row for row in rows() if row["dtype"] == dtype]
    begin = 1 + max([row["at"] for row in done], default=-1)
    while True:
        code = subprocess.run([sys.executable, __file__, "--child", dtype, str(begin), str(samples or 0)]).returncode
        if not code:
            return
        last = [row for row in map(json.loads, open(JOURNAL)) if row["dtype"] == dtype][-1]
        with open(JOURNAL, "a") as journal:
            journal.write(json.dumps({"at": last["at"], "name": last["name"], "dtype": dtype, "samples": 1, "torch": 0, "refused": {},
                                      "wrong": {f"the process ended with {code}": 1}}) + "\n")
        begin = last["at"] + 1


def rows():
    """What the journal says of whole operators, the last of each."""
    lines = map(json.loads, open(JOURNAL)) if JOURNAL.exists() else ()
    return list({(row["name"], row["dtype"]): row for row in lines if "begins" not in row}.values())


def page():
    """The text of the page."""
    all_rows = rows()
    text = HEAD + "| type | operators | samples | as in eager | refused |\n|---|---|---|---|---|\n"
    for dtype in dict.fromkeys(row["dtype"] for row in all_rows):
        some = [row for row in all_rows if row["dtype"] == dtype]
        count = sum(row["samples"] - row["torch"] for row in some)
        refused = sum(sum(row["refused"].values()) for row in some)
        wrong = sum(sum(row["wrong"].values()) for row in some)
        text += f"| {dtype} | {len(some)} | {count} | {count - refused - wrong} | {refused} |\n"
    text += "\nNo module of `module_db` is refused (`tests/pytorch/test_module_db.py`).\n\n"
    text += "| operator | types | samples refused | why |\n|---|---|---|---|\n"
    text += "".join(lines(all_rows, "refused"))
    wrong = "".join(lines(all_rows, "wrong"))
    return text + ("\n## What differs\n\n| operator | types | samples | how |\n|---|---|---|---|\n" + wrong if wrong else "")


def lines(all_rows, kind):
    """A line of a table for each operator and reason."""
    table = {}
    for row in all_rows:
        for why, count in row[kind].items():
            table.setdefault((row["name"], why), []).append((row["dtype"], count, row["samples"] - row["torch"]))
    for (name, why), entries in sorted(table.items()):
        types = ", ".join(entry[0] for entry in entries)
        yield f"| `{name}` | {types} | {sum(e[1] for e in entries)} of {sum(e[2] for e in entries)} | {why} |\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=0, help="of each operator at most; 0: all")
    parser.add_argument("--types", default="float64,float32,bfloat16,float16")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("target", nargs="?", default=ROOT / "docs" / "refused.md")
    given = parser.parse_args()
    JOURNAL.parent.mkdir(exist_ok=True)
    if given.child:
        found(given.child[0], int(given.child[1]), int(given.child[2]) or None)
        return
    for dtype in [] if given.page else given.types.split(","):
        run(dtype, given.samples)
    pathlib.Path(given.target).write_text(page())


if __name__ == "__main__":
    main()
