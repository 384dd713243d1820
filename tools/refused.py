"""Writes docs/refused.md: what of torch's own databases dcml refuses.  refused.py [--samples N] [--types float32,...] [TARGET]

What was found so far lies in build/refused.jsonl, so that a run goes on where another was interrupted or ended after --seconds; one
that has finished begins again.  An operator that crashes the process that runs it is left behind.  --page only writes the page again;
--only runs operators again and writes their rows of a page that is there.
Ends with 1 where a sample differs from eager PyTorch, or an operator is refused that the page did not list.
"""
import argparse
import gc
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
JOURNAL = ROOT / "build" / "refused.jsonl"
HEAD = """# What is refused of PyTorch

Written by `tools/refused.py` from runs of torch's own databases of operators (`op_db`) and modules (`module_db`); do not edit.
A sample follows eager PyTorch, in results and gradients, or is refused by a `dcml.Error` with the line and the reason.
`torch.compile(model, backend="dcml")` splits the graph at what depends on values, and around functions under
`torch.compiler.disable`; everything else may move out of `forward`.  How many samples were run, of how many there are, stands below;
operators that are not compared stand in `EXCEPT` of `tests/pytorch/operators_db.py`.

What stays refused, and why:

- what counts from where an argument's memory begins, or changes its size (`as_strided`, `resize_`): the next call may have it elsewhere;
- sparse tensors, as arguments or results;
- decompositions that no row computes (`linalg.eig`, `linalg.ldl_factor`);
- `hash_tensor`, and `batch_norm` of a tensor with neither elements nor channels.

"""


TYPES = ["float64", "float32", "bfloat16", "float16"]
TOGETHER, SECONDS = 32, 600  # samples in a graph; what a process may take for some operators


def found(dtype, samples, deadline, share, only):
    """Appends a line to the journal for each operator of a share (i, n), or of those among them that are asked for, that has none;
    a child process runs this."""
    sys.path.insert(0, str(ROOT / "tests" / "pytorch"))
    import operators_db as db
    import torch

    import dcml
    from dcml.library import change_default
    torch.set_num_threads(1)
    os.environ["DCML_KEEP_CAPTURES"] = "0"  # of modules that nobody makes again
    gc.freeze()  # what torch is made of need not be looked through after each graph
    known, alone = {(row["name"], row["dtype"]): row for row in rows()}, trouble()
    batch = {}
    with change_default(dcml.onnx, "interpreted"):
        for op in db.operators()[share[0]::share[1]]:
            name = db.name_of(op)
            asked = not only or name in only
            if not asked or db.DTYPES[dtype] not in op.dtypes or op.name in db.EXCEPT or is_done(known.get((name, dtype)), samples):
                continue
            everything = [case for _, case in db.cases(op, db.DTYPES[dtype])]
            some = [everything[k] for k in db.modules.spread_out(len(everything), samples)]
            if name in alone:
                judge(db, dtype, batch)
                batch = {}
            batch[name] = some, len(everything)
            if name in alone or sum(len(cases) for cases, _ in batch.values()) >= TOGETHER:
                judge(db, dtype, batch)
                batch = {}
            if time.time() > deadline:
                break
        judge(db, dtype, batch)


def trouble():
    """Operators that would keep others from being captured beside them."""
    lines, page = journal(), ROOT / "docs" / "refused.md"
    met = {row["name"] for row in lines if row.get("refused") or row.get("wrong")}
    return met.union(listed(page.read_text()) if page.exists() else (), *[row.get("alone", ()) for row in lines])


def is_done(row, samples):
    """Were as many samples run as are wanted?"""
    return row is not None and row["samples"] >= min(samples or row["of"], row["of"])


def judge(db, dtype, batch):
    """What becomes of some operators: {name: (cases, number of the database's samples)}."""
    if not batch:
        return
    append({"begins": list(batch), "pid": os.getpid()})
    signal.alarm(SECONDS)
    begin = time.time()
    everything = [case for cases, _ in batch.values() for case in cases]
    became = iter([one for k in range(0, len(everything), TOGETHER) for one in db.judged(everything[k:k + TOGETHER])])
    for name, (cases, count) in batch.items():
        append(line_of(name, dtype, count, [next(became) for _ in cases]))
    append({"seconds": time.time() - begin, "dtype": dtype})
    signal.alarm(0)


def line_of(name, dtype, count, became):
    """The journal's line for an operator in a type."""
    import dcml
    one = {"name": name, "dtype": dtype, "of": count, "samples": len(became), "torch": became.count(""), "refused": {}, "wrong": {}}
    for error in became:
        if isinstance(error, Exception):
            kind = one["refused" if isinstance(error, dcml.Error) else "wrong"]
            kind[reason(error)] = kind.get(reason(error), 0) + 1
    return one


def append(line):
    with open(JOURNAL, "a") as file:
        file.write(json.dumps(line) + "\n")


def journal():
    return [json.loads(line) for line in open(JOURNAL)] if JOURNAL.exists() else []


def reason(error):
    """What a message says, without the line and the ways out."""
    text = str(error).strip() or repr(error)
    if type(error).__module__ == "builtins" and not isinstance(error, AssertionError):
        text = f"{type(error).__name__}: {text}"
    text = re.sub(r" \((?:/|[A-Z]:).*\)$", "", text.splitlines()[0])
    text = re.sub(r": torch\.compile\(model.*", "", text)
    text = re.sub(r"(nothing computes it of) .*", r"\1 these arguments", text)
    return re.sub(r"0x[0-9a-f]+", "", text).replace("|", "\\|")[:160]


def sweep(types, samples, deadline, jobs):
    """What is left to run of some types, or all of it where nothing is."""
    finished = {"finished": types, "samples": samples}
    if journal()[-1:] == [finished]:
        JOURNAL.unlink()
    for dtype in types:
        run(dtype, samples, deadline, jobs)
    if time.time() < deadline:
        append(finished)


def again(types, samples, jobs, names):
    """Some operators once more, whatever the journal has of them."""
    kept = [line for line in journal() if line.get("name") not in names]
    JOURNAL.write_text("")
    for line in kept:
        append(line)
    for dtype in types:
        run(dtype, samples, float("inf"), jobs, names)


def run(dtype, samples, deadline, jobs, only=()):
    """All operators of a type, or some, whatever becomes of the processes."""
    children = {}
    waiting = [(k, jobs) for k in range(jobs)]
    while waiting or children:
        for share in waiting:
            given = [dtype, samples or 0, deadline, *share, ",".join(only)]
            children[subprocess.Popen([sys.executable, __file__, "--child", *map(str, given)])] = share
        waiting = []
        for child in [child for child in children if child.poll() is not None]:
            share = children.pop(child)
            if child.returncode:
                left_behind(child, dtype)
                waiting.append(share)
        time.sleep(0.2)


def left_behind(child, dtype):
    """Notes what a process that crashed was at: it is run alone after that, and once more is enough."""
    names = [line["begins"] for line in journal() if line.get("pid") == child.pid]
    if not names:
        sys.exit(f"a process for {dtype} ended with {child.returncode} before it ran an operator")
    if len(names[-1]) > 1:
        append({"alone": names[-1]})
    else:
        append({"name": names[-1][0], "dtype": dtype, "of": 1, "samples": 1, "torch": 0, "refused": {},
                "wrong": {f"the process ended with {child.returncode}": 1}})


def rows():
    """What the journal says of operators, the last of each."""
    return list({(row["name"], row["dtype"]): row for row in journal() if "name" in row}.values())


def page():
    """The text of the page."""
    all_rows = rows()
    text = ""
    for dtype in sorted({row["dtype"] for row in all_rows}, key=TYPES.index):
        some = [row for row in all_rows if row["dtype"] == dtype]
        count, everything = sum(row["samples"] - row["torch"] for row in some), sum(row["of"] for row in some)
        refused, wrong = (sum(sum(row[kind].values()) for row in some) for kind in ("refused", "wrong"))
        text += f"| {dtype} | {len(some)} | {count} | {everything} | {count - refused - wrong} | {refused} |\n"
    wrong = "".join(lines(all_rows, "wrong"))
    what = "\n## What differs\n\n| operator | types | samples | how |\n|---|---|---|---|\n" + wrong if wrong else ""
    return written(text, lines(all_rows, "refused")) + what


def patched(text, names):
    """The text of a page with rows of some operators as the journal has them now; what they were counts equally in each type."""
    some = [row for row in rows() if row["name"] in names]
    fewer = dict.fromkeys(TYPES, 0)
    for row in some:
        fewer[row["dtype"]] -= sum(row["refused"].values())
    old, kept = "", []
    for line in re.findall(r"^\| `.*\n", text, re.M):
        name, types, count = re.match(r"\| `([^`]+)` \| ([^|]+) \| (\d+) of", line).groups()
        if name not in names:
            kept.append(line)
            continue
        types = TYPES if types == "all four" else types.split(", ")
        if int(count) % len(types):
            sys.exit(f"what is refused of {name} differs from type to type: the page needs a whole run")
        for dtype in types:
            fewer[dtype] += int(count) // len(types)
    for dtype, *counts in re.findall(r"^\| (\w+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", text, re.M):
        operators, count, everything, same, refused = map(int, counts)
        old += f"| {dtype} | {operators} | {count} | {everything} | {same + fewer[dtype]} | {refused - fewer[dtype]} |\n"
    if any(row["wrong"] for row in some) or "What differs" in text:
        sys.exit("\n".join(lines(some, "wrong")) + "what differs from eager has no place in a page that is patched")
    return written(old, sorted([*kept, *lines(some, "refused")], key=lambda line: (line.split("`")[1], line.split(" | ")[3])))


def written(types, refused):
    """A page of lines for types and for what is refused."""
    return (HEAD + "| type | operators | samples | of | as in eager | refused |\n|---|---|---|---|---|---|\n" + types
            + "\nNo module of `module_db` is refused (`tests/pytorch/test_module_db.py`).\n\n"
            + "| operator | types | samples refused | why |\n|---|---|---|---|\n" + "".join(refused))


def lines(all_rows, kind):
    """A line of a table for each operator and reason."""
    table = {}
    for row in all_rows:
        for why, count in row[kind].items():
            table.setdefault((row["name"], why), []).append((row["dtype"], count, row["samples"] - row["torch"]))
    for (name, why), entries in sorted(table.items()):
        types = "all four" if len(entries) == len(TYPES) else ", ".join(sorted((entry[0] for entry in entries), key=TYPES.index))
        yield f"| `{name}` | {types} | {sum(e[1] for e in entries)} of {sum(e[2] for e in entries)} | {why} |\n"


def listed(text):
    """Names of operators in the page's table of what is refused."""
    return set(re.findall(r"^\| `([^`]+)` \|", text, re.M))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=0, help="of each operator at most; 0: all")
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no operator is begun")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--only", default="", help="names of operators, as the page has them, with commas between")
    parser.add_argument("--child", nargs=6, help=argparse.SUPPRESS)
    parser.add_argument("target", nargs="?", type=pathlib.Path, default=ROOT / "docs" / "refused.md")
    given = parser.parse_args()
    JOURNAL.parent.mkdir(exist_ok=True)
    if given.child:
        dtype, samples, deadline, *share, only = given.child
        found(dtype, int(samples) or None, float(deadline), [int(k) for k in share], set(only.split(",")) - {""})
        return
    names = given.only.split(",") if given.only else []
    if names:
        again(given.types.split(","), given.samples, given.jobs, names)
    elif not given.page:
        sweep(given.types.split(","), given.samples, time.time() + given.seconds, given.jobs)
    before = listed(given.target.read_text()) if given.target.exists() else set()
    given.target.write_text(patched(given.target.read_text(), names) if names else page())
    wrong, new = (sorted({row["name"] for row in rows() if row[kind]}) for kind in ("wrong", "refused"))
    new = [name for name in new if name not in before]
    for what, names in (("differs from eager", wrong), ("is refused and was not listed", new)):
        if names:
            print(f"{what}: {', '.join(names)}")
    sys.exit(bool(wrong or new))


if __name__ == "__main__":
    main()
