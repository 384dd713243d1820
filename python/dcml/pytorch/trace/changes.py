"""What forward changes of Python while it is traced: containers, globals, attributes of modules.

The one idea: what is not a change of tensors (entry.py) a compiled call would not make, so it is refused; unless only the first
call does, as where a cache is filled: then that change is made, and a second trace must find nothing left to change.
Must not know: how a module is exported or lowered.
"""
import linecache

import torch

from ... import _core
from ..guard.watch import held_tensors, restore


class Changed(Exception):
    """Forward has changed containers or globals of Python, or set attributes to values that are no tensors."""

    def __init__(self, containers, attributes, found, what, line):
        self._containers, self._attributes, self._found = containers, attributes, found
        self.what, self.line = what, line

    def redo(self):
        """Lets the change happen."""
        for one in self._attributes:
            one.redo()

    def undo(self):
        restore(self._containers)
        for one in self._attributes:
            one.undo()

    def computed(self, found):
        """Was the same computed before the change?"""
        return _text(*self._found) == _text(*found) and all(
            torch.equal(a, b) for a, b in zip(*[_constants(program) for program, _ in (self._found, found)]))


def _text(program, result):
    specs = [(spec.kind.name, spec.target) for spec in [*program.inputs, *program.outputs]]
    return [*_graphs(program.region), str(specs), str(result.shape), repr(result.leaves), *sorted(program.constants)]


def _graphs(region):
    """Texts of a graph and of the branches inside it."""
    return [str(region.graph), *[text for inner in region.inner.values() for text in _graphs(inner)]]


def _constants(program):
    return [program.constants[name] for name in sorted(program.constants)]


def refuse_changes(module, attributes, code, found, again):
    """Containers and attributes that forward changes would stay as they are in a compiled call."""
    containers, written = code.changed(), attributes.changes()
    if not containers and not written:
        if again and not again.computed(found):
            raise _core.UnsupportedOpError(f"{type(module).__name__} computes something else at its first call, which sets "
                                           f"{again.what}, which later calls read: call it once before it is wrapped{again.line}")
        return
    what, line = _first(containers, written, code)
    refusal = _refusal(type(module).__name__, containers, what, line)
    if not again and all(one.is_value() for one in written) and not any(held_tensors(seen) for seen, _ in containers):
        raise Changed(containers, written, found, what, line)
    restore(containers)
    raise refusal


def _first(containers, written, code):
    """(what is changed first, ' (file:line: code)' of that)."""
    if containers:
        return containers[0][1], code.line(containers[0][1])
    first = written[0]
    return f"the attribute {first.name!r}", f" ({first.file}:{first.line}: {linecache.getline(first.file, first.line).strip()})"


def _refusal(name, containers, what, line):
    if containers:
        return _core.UnsupportedOpError(f"{name} changes {what} while it runs, which a compiled call would not do: return "
                                        f"the value, or make it a buffer{line}")
    return _core.UnsupportedOpError(f"{name} sets {what} while it runs, which a compiled call would not do: make it a buffer, "
                                    f"or call the module once before it is wrapped if only the first call sets it{line}")
