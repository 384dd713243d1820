"""Writes docs/operators.md from the operator table: operators.py [TARGET]."""
import sys

from dcml import _core
from dcml.onnx.host.table import HOST, VARIANTS

REAL = {1, 10, 11, 16}  # float32, float16, float64, bfloat16
HEAD = """# Operators

Written by `tools/operators.py` from `csrc/ops/ops.def` and the table of host operators; do not edit.

*shape*, *forward*: from the row, or by the host (Python functions on the values between compiled segments). *gradient*: `derived`
from the row's body, by the row's own `clause`, on torch's `tape` through the host, or `-`: no floating input reaches a
floating output. *libraries*: may serve the operator, in this order, before the generated kernel. Gradients of rounding,
sign and quantisation are zero, as in PyTorch.

"""
ON_TAPE = {"If", "Loop", "Scan", "SequenceMap", "SequenceConstruct", "SequenceAt", "SequenceInsert", "SequenceErase", "SplitToSequence",
           "ConcatFromSequence", "Optional", "OptionalGetElement", "Compress"}
TITLES = {"": "ai.onnx", "dcml": "dcml (internal)"}


def _versions(numbers):
    return ", ".join(map(str, sorted(numbers)))


def _gradient(row):
    real = [any(REAL & set(a["types"]) for a in row[side]) for side in ("inputs", "outputs")]
    return "clause" if row["grad"] else "derived" if all(real) else "-"


def _lines(domain, rows):
    """A table line for each operator of a domain."""
    operators = {}
    for row in rows:
        if row["domain"] == domain:
            operators.setdefault(row["name"], []).append(row)
    for name in {n for d, n in HOST if d == domain} - {variant for variant, _ in VARIANTS.values()} - operators.keys():
        operators[name] = []
    for name in sorted(operators):
        versions = operators[name]
        if not versions:
            yield f"| {name} | all | host | host | {'tape' if name in ON_TAPE else '-'} | |"
            continue
        gradients = list(dict.fromkeys(map(_gradient, versions)))
        libraries = list(dict.fromkeys(library for row in versions for library in row["natives"]))
        forward = "row" if not versions[-1]["native"] else "pass"
        yield (f"| {name} | {_versions(row['since'] for row in versions)} | row | {forward} | {', '.join(gradients)} | "
               f"{', '.join(libraries)} |").replace("  |", " |")


def page():
    """The text of the page."""
    rows = _core.ops()
    domains = sorted({row["domain"] for row in rows} | {domain for domain, _ in HOST}, key=lambda d: (d == "dcml", d))
    text = HEAD + f"{len({(r['domain'], r['name']) for r in rows})} operators in {len(rows)} versions have rows.\n"
    for domain in domains:
        text += f"\n## {TITLES.get(domain, domain)}\n\n| operator | versions | shape | forward | gradient | libraries |\n"
        text += "|---|---|---|---|---|---|\n"
        text += "\n".join(_lines(domain, rows)) + "\n"
    return text


if __name__ == "__main__":
    with open(sys.argv[1] if len(sys.argv) > 1 else "docs/operators.md", "w", encoding="utf-8") as file:
        file.write(page())
