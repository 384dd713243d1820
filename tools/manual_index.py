"""Says which names of the manual's index dcml lacks, and where parameters differ.

    python tools/manual_index.py [-v]             checks tests/manual/names.txt against dcml; the exit status is 1 if any is missing
    python tools/manual_index.py --write MANUAL   writes names.txt from the manual's text (../shared/reference, if no path is given)

The one idea: a line of names.txt is a kind, a dotted name within dcml and the manual's parameters; each is looked up, nothing is
called.  Names come from the manual's index, parameters from its chapters, modules are renamed from daceml to dcml.
"""
import argparse
import ast
import enum
import importlib
import inspect
import math
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMES = ROOT / "tests" / "manual" / "names.txt"
MANUAL = ROOT.parent / "shared" / "reference" / "daceml-manual.txt"

HEAD = "# What the manual's index names, with the parameters of its chapters: written by tools/manual_index.py --write\n"
WITHDRAWN = {  # names of the index -> why they are no part of dcml
    "ONNXGraphCall": "ONNX has withdrawn the operator GraphCall",
}
ON_PURPOSE = {  # (name, parameter) -> why dcml has it otherwise
    ("pytorch.DaceModule", "training"): "None, the default, leaves the module's modes as they are",
    ("pytorch.dace_module", "training"): "None, the default, leaves the module's modes as they are",
    ("onnx.nodes.onnx_op.ONNXLinearClassifier", "coefficients"): "the schema requires it",
}

# -- from the manual's text --------------------------------------------------------------------------
MISPRINTS = {  # what the text of the manual has -> what was meant
    "ONNXImputer.use_float": "ONNXImputer.replaced_value_float",
    "ONNXImputer.use_int64": "ONNXImputer.replaced_value_int64",
    "ONNXSchema.source_version": "ONNXSchema.since_version", "ONNXShrink.lambda": "ONNXShrink.lambd",
    "ONXTopK.sorted": "ONNXTopK.sorted", "ONNXxor": "ONNXXor", "ONNXTfIdfVectorizer": "ONNXTfIdfVectorizer",
}
WRONG_DIGITS = {"9.99999747378752e-06": "9.999999747378752e-06"}
STARRED = {"args": "*", "kwargs": "**", "mapping": "**", "actual_inputs": "*"}  # whose stars the text confuses with emphasis
ENTRY = re.compile(r"\b([A-Za-z_]\w*) ?(?:\(\))? ?"
                   r"\((?:(class in|in module) ([\w.]+) ?|(\w+) (attribute|method|static method|class method))\)")


def index_entries(text):
    """{dotted name within dcml: kind} of the index."""
    body, index = text[:text.index("## PYTHON MODULE INDEX")], text[text.index("## Symbols"):]
    plain = re.sub(r"\s+", " ", re.sub(r"[`\\*]|<[^>]*>", "", index))
    found = {name.replace("daceml.", ""): "module" for name in re.findall(r"(daceml\.[\w.]+) module,", plain)}
    home, members = {}, []
    for name, where, module, owner, kind in ENTRY.findall(plain):
        if name.startswith("Pure"):  # two columns of the index run into each other there: see below
            continue
        name, owner = MISPRINTS.get(name, name), MISPRINTS.get(owner, owner)
        if where:
            home[name] = module.replace("daceml.", "")
            found[f"{home[name]}.{name}"] = "class" if where == "class in" else "function"
        else:
            members.append((MISPRINTS.get(f"{owner}.{name}", f"{owner}.{name}"), kind))
    for name in re.findall(r"^class (Pure\w+)", body, re.M):
        image = body.rindex(f"class {name}") > body.rindex("Image-related")
        found[f"onnx.op_implementations.{'img_op' if image else 'pure'}_implementations.{name}"] = "class"
    for name, kind in members:
        owner = name.partition(".")[0]
        found[f"{home.get(owner) or home[spelled(owner, home)]}.{spelled(owner, home)}.{name.partition('.')[2]}"] = kind
    return found


def spelled(name, names):
    """``name`` as one of ``names`` spells it, whatever the case."""
    return next((n for n in names if n.lower() == name.lower()), name)


def signature_after(text, start):
    """The parameters in the parentheses that open after ``start``, cleaned of marks of emphasis; None if there are none."""
    opening = re.compile(r"[`*]*\s*\(").match(text, start)
    if not opening:
        return None
    depth, parts, part = 1, [], ""
    for letter in text[opening.end():]:
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0:
            break
        if letter == "," and depth == 1:
            parts, part = [*parts, part], ""
        else:
            part += letter
    return ", ".join(filter(None, map(parameter, [*parts, part] if part.strip() else parts)))


def parameter(part):
    if not part.strip():
        return ""
    name, equal, default = (re.sub(r"[*`]|\s+$|^\s+", "", piece) for piece in part.strip().partition("="))
    default = re.sub(r"\s+", " ", default)
    default = WRONG_DIGITS.get(default, re.sub(r"^- ", "-", default))
    return STARRED.get(name, "") + name.replace(" ", "") + equal + default if name else "*"


def with_parameters(text, entries):
    """The lines of names.txt."""
    body = text[text.index("\n7.1 Generating Backward Passes\n"):text.index("## PYTHON MODULE INDEX")].replace("\\", "")
    body = re.sub(r"(?<=\w)-\s*\n\s*(?=\w)", "", body)  # words broken at the end of a line
    body = re.sub(r"ONNX (?=[A-Z])", "ONNX", re.sub(r"^(>>>|\.\.\.) .*", "", body, flags=re.M))
    starts = {}
    for match in re.finditer(r"class[\s*`]+(\w+)(?=[\s`*]*[(\n])", body):
        starts.setdefault(match[1].lower(), match)
    ends = sorted(match.start() for match in starts.values())
    for name, kind in sorted(entries.items(), key=lambda item: item[0].lower()):
        *_, owner, last = name.rsplit(".", 2) if "." in name else ("", name)
        parameters = None
        if kind == "class":
            parameters = signature_after(body, starts[last.lower()].end())
        elif kind == "function":
            parameters = signature_after(body, re.search(rf"^[@*`]*{last}(?=[`*]* \()", body, re.M).end())
        elif kind.endswith("method"):
            first = starts[owner.lower()].start()
            segment = body[first:next((end for end in ends if end > first), len(body))]
            parameters = signature_after(segment, re.search(rf"\b{last}(?=[`*]* ?\()", segment).end())
        yield f"{kind} {name}" + ("" if parameters is None else f"({parameters})")


# -- against dcml --------------------------------------------------------------------------------------
def resolve(name):
    """The object of a dotted name within dcml; raises AttributeError with the first part that is missing."""
    parts, value, path = name.split("."), importlib.import_module("dcml"), "dcml"
    for part in parts:
        path += "." + part
        if inspect.ismodule(value):
            try:
                value = getattr(value, part)
                continue
            except (AttributeError, ModuleNotFoundError):
                try:
                    value = importlib.import_module(path)
                    continue
                except ModuleNotFoundError as error:
                    if error.name and path.startswith(error.name):
                        raise AttributeError(f"no {path}") from None
                    raise
        if isinstance(value, type) and not hasattr(value, part):
            if any(part in vars(base).get("__annotations__", {}) for base in value.__mro__):
                return None  # what instances have
            raise AttributeError(f"no {path}")
        value = getattr(value, part)
    return value


def manual_parameters(text):
    """[(name, kind, default text or None)] of a line of names.txt."""
    result, keyword_only = [], False
    for part in filter(None, re.split(r", (?![^\[(<]*[\])>])", text)):
        name, equal, default = part.partition("=")
        if name == "*":
            keyword_only = True
        elif name.startswith("**"):
            result.append((name[2:], "**", None))
        elif name.startswith("*"):
            result.append((name[1:], "*", None))
            keyword_only = True
        else:
            result.append((name, "keyword" if keyword_only else "", default if equal else None))
    return result


def same_default(text, value):
    try:
        want = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text in (repr(value), str(value))
    if isinstance(want, float):
        return isinstance(value, float) and math.isclose(want, value, rel_tol=1e-6)
    return (list(want) == list(value) if isinstance(want, (list, tuple)) and isinstance(value, (list, tuple)) else
            type(want) is type(value) and want == value)


def difference(value, kind, text, leave_out=()):
    """What is wrong with the parameters of ``value``; '' if the manual's calls work.

    dcml may give a default to what the manual passes by position, and may add parameters that have one.  leave_out: parameters whose
    defaults are not compared.
    """
    if isinstance(value, enum.EnumMeta):
        return ""
    want = manual_parameters(text)
    if [mark for _, mark, _ in want] == ["*", "**"]:
        return ""  # anything
    try:
        have = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return "no signature"
    if kind.endswith("method") and have and have[0].name in ("self", "cls"):
        del have[0]
    marks = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**", inspect.Parameter.KEYWORD_ONLY: "keyword"}
    given = {p.name: p for p in have}
    for position, (name, mark, default) in enumerate(want):
        p = next((p for p in have if marks.get(p.kind) == mark), None) if mark in ("*", "**") else given.get(name)
        if p is None:
            return f"no parameter {name}"
        if marks.get(p.kind, "") != mark or (not mark and have[position] is not p):
            return f"{name} is passed otherwise"
        if name in leave_out:
            continue
        required = p.default is p.empty
        if default is None and mark == "keyword" and not required:
            return f"{name} has a default"
        if default is not None and (required or not same_default(default, p.default)):
            return f"{name}={default} is {p}"
    extra = [p for p in have if p.name not in {name for name, *_ in want} and p.default is p.empty and p.kind.name[:3] != "VAR"]
    return f"wants {extra[0]}" if extra else ""


def missing(lines):
    """(name, what is wrong) for each line that dcml does not honour."""
    for line in lines:
        kind, name, _, parameters = re.fullmatch(r"(module|class|function|attribute|(?:static |class )?method) ([\w.]+)(\((.*)\))?",
                                                 line).groups()
        if any(withdrawn in name.split(".") for withdrawn in WITHDRAWN):
            continue
        try:
            value = resolve(name)
        except AttributeError as error:
            yield name, f"{error}"
            continue
        leave_out = [parameter for function, parameter in ON_PURPOSE if function == name]
        wrong = difference(value, kind, parameters, leave_out) if parameters is not None else ""
        if wrong:
            yield name, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", nargs="?", const=MANUAL, type=pathlib.Path, metavar="MANUAL")
    parser.add_argument("-v", action="store_true", help="print every name that is missing, not the first of each class or module")
    options = parser.parse_args()
    if options.write:
        text = options.write.read_text()
        NAMES.write_text(HEAD + "\n".join(with_parameters(text, index_entries(text))) + "\n")
    lines = [line for line in NAMES.read_text().splitlines() if not line.startswith("#")]
    wrong = list(missing(lines))
    groups = {}
    for name, why in wrong:
        groups.setdefault(why if not options.v else name, []).append((name, why))
    width = max((len(members[0][0]) for members in groups.values()), default=0)
    for members in groups.values():
        name, why = members[0]
        more = f" (and {len(members) - 1} more names)" if len(members) > 1 else ""
        print(textwrap.shorten(f"{name:{width}}", 200), f"  {why}{more}")
    print(f"{len(lines)} names, {len(wrong)} missing")
    for name, why in [*WITHDRAWN.items(), *((" ".join(key), why) for key, why in ON_PURPOSE.items())]:
        print(f"not counted: {name} ({why})")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
