"""Captures as files, found by what they depend on.

The one idea: a file has the graph's text and numbers, names and lists of such, nothing that is run; it serves where all that the
capture had built in is the same here, in words (portable.py), and a doubt about anything means that the module is traced.
Must not know: how a module is traced, or how a call runs.
"""
import builtins
import contextlib
import functools
import json
import os
import platform
import secrets
import sys
import types

import torch
from torch.utils import _pytree as pytree

from ... import _core
from ...verbose import say
from ..call import errors, trees
from ..call.keys import kind_of, surroundings
from ..call.results import Fixed, Number, Ordered, Passed
from ..guard.asked import known_of
from ..guard.extents import Guard
from ..guard.state import frozen
from ..guard.watch import VALUES
from ..lower.captured import Capture
from .portable import Doubt, Portable, address_of, digest, identity, shape_of

_FORMAT = 2
_MOST_BYTES = 1 << 24
_VARIANTS = 8  # captures of one kind of module and arguments, told apart by what forward reads
_KINDS = {kind.__name__: kind for kind in (Fixed, Passed, Number, Ordered)}
_PLAIN = ("inputs", "own", "seed", "checks", "refused_dynamic", "asks", "asks_attributes")
_EMPTY = ("transients", "outside", "flagged", "freed", "counted", "sets", "altered", "decided")  # captures that have these are not kept
# What comes of a file that cannot be read or says what no file of ours says, or of a module that is not imported here.
_DAMAGED = (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError, RuntimeError)
_CONTAINERS = {"tuple": tuple, "list": list, "dict": dict}


class Kept:
    """The captures on disk for calls of ``owner.model`` with these arguments; ``find`` and ``keep``."""

    def __init__(self, owner, args, kwargs, dynamic):
        self._owner = owner
        try:
            wanted = os.environ.get("DCML_KEEP_CAPTURES") != "0" and not owner.debug_transients
            self._stem = self._key(args, kwargs, dynamic) if wanted else None
        except Doubt as doubt:
            self._stem = None
            say("capture", f"{owner.sdfg_name}: not kept on disk: {doubt}")

    def _key(self, args, kwargs, dynamic):
        """Where files for such calls lie, without their endings; None where there is no folder that lasts."""
        leaves, spec = trees.flatten((tuple(args), dict(kwargs)))
        self._leaves = leaves
        if trees.first_places(leaves) != list(range(len(leaves))):
            raise Doubt("an argument that is given twice")
        own = {address_of(tensor) for tensor in (*self._owner.model.parameters(), *self._owner.model.buffers())} - {0}
        if not own.isdisjoint([address_of(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)]):
            raise Doubt("an argument that is the module's own")
        if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
            raise Doubt("a mode of torch is active")
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            raise Doubt("other processes take part")
        dynamic = sorted([(k, sorted(axes)) for k, axes in dynamic.items()]) if isinstance(dynamic, dict) else dynamic
        what = (_versions(), _settings(), self._owner.sdfg_name, self._owner.precision, dynamic, _form(spec),
                [_leaf(leaf) for leaf in leaves], shape_of(self._owner.model))
        _, folder, lasts = _core.toolchain()
        return os.path.join(folder, f"capture-{digest(what)[:32]}") if lasts else None

    # -- finding --------------------------------------------------------------------------------
    def find(self):
        """The Capture, None if there is none that certainly serves."""
        for k in range(_VARIANTS if self._stem else 0):
            path = f"{self._stem}-{k}.json"
            if not _core.is_sealed(path):
                return None
            try:
                with open(path, "rb") as file:
                    data = json.loads(file.readline())  # behind it stands the seal
                seen = Portable(self._owner.model, data["reads"], data["ran"])
                if seen.text == data["seen"]:
                    made = self._capture(data, seen.codes)
                    self._refuse_misfits(made)
                    os.utime(path)  # what was used last is deleted last
                    return made
            except (Doubt, _core.Error, *_DAMAGED) as reason:
                say("capture", f"{self._owner.sdfg_name}: {path} does not serve: {type(reason).__name__}: {reason}")
        return None

    def _capture(self, data, codes):
        code = types.SimpleNamespace(names=set(data["names"]), computed=set(data["computed"]), codes=codes, globals={})
        for package, name in data["globals"]:
            table = vars(sys.modules[package])
            code.globals[id(table), name] = table, name
        held = {name: data[name] for name in _PLAIN}
        ranges = {symbol: tuple(bounds) for symbol, bounds in data["ranges"].items()}
        return Capture(graph=_core.parse(data["graph"]), out_spec=_spec_of(data["out_spec"]), params=[tuple(p) for p in data["params"]],
                       outputs=[_output_of(one) for one in data["outputs"]], mutated=[tuple(one) for one in data["mutated"]],
                       changed_inputs=[tuple(one) for one in data["changed_inputs"]], guard=Guard.known(data["shapes"], ranges),
                       reads=set(data["reads"]), ties=[tuple(tie) for tie in data["ties"]], code=code,
                       tape=None if data["tape"] is None else [frozenset(one) for one in data["tape"]],
                       orders={int(k): tuple(order) for k, order in data["orders"].items()},
                       devices=[None if d is None else torch.device(d) for d in data["devices"]], **held)

    def _refuse_misfits(self, made):
        """Raises Doubt where a capture speaks of results, arguments or parameters that are not there."""
        results, leaves = range(len(made.graph.outputs)), range(len(self._leaves))
        lent = range(len(self._leaves) + len(made.own))
        indices = [getattr(one, "index", one) for one in made.outputs if not isinstance(one, (Fixed, Passed))]
        indices += [index for index, *_ in [*made.mutated, *made.changed_inputs, *made.checks]] + list(made.orders)
        passed = [one.leaf for one in made.outputs if isinstance(one, Passed)]
        given = made.inputs + [leaf for _, leaf, _ in made.changed_inputs]
        named = {name for name, _ in self._owner.model.named_parameters(remove_duplicate=False)}
        named |= {name for name, _ in self._owner.model.named_buffers(remove_duplicate=False)}
        mentioned = {name for name, _ in [*made.params, *[pair[::-1] for pair in made.mutated]]}
        mentioned |= {*made.own, *[name for tie in made.ties for name in tie]}
        tensors = [leaf for leaf in self._leaves if isinstance(leaf, torch.Tensor)]
        fits = (made.guard.refusal(tensors, dict) is None
                and all(error in errors.BY_NAME for *_, error in made.checks)
                and all(index in results for index in indices) and all(leaf in leaves for leaf in given)
                and all(leaf in lent for leaf in passed) and mentioned <= named
                and [name for name, _ in made.params] == list(made.graph.params)
                and len(made.inputs) == len(made.guard.shapes) == len(made.graph.inputs)
                and made.out_spec.num_leaves == len(made.outputs) == len(made.devices)
                and (made.tape is None or len(made.tape) == len(results)))
        if not fits:
            raise Doubt("the file speaks of what is not there")

    # -- keeping --------------------------------------------------------------------------------
    def keep(self, made):
        """Writes a capture that was just made, if all of it can be said."""
        if self._stem is None:
            return
        try:
            text = json.dumps(self._told(made))
            if len(text) > _MOST_BYTES:
                raise Doubt(f"{len(text)} bytes are too many")
            self._write(text)
        except (Doubt, OSError, _core.Error) as reason:  # the call itself goes on
            say("capture", f"{self._owner.sdfg_name}: not kept on disk: {reason}")

    def _write(self, text):
        """Into the first free place, or that which was used least lately."""
        path = min([f"{self._stem}-{k}.json" for k in range(_VARIANTS)], key=_used)
        scratch = os.path.join(os.path.dirname(path), f"tmp-{secrets.token_hex(8)}")
        try:
            with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(text + "\n")
            _core.seal(scratch, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(scratch)
            raise

    def _told(self, made):
        for name in _EMPTY:
            if getattr(made, name):
                raise Doubt(f"the capture has {name}")
        if made.named is not None or made.redone:
            raise Doubt("forward changes what later calls read")
        graph = made.graph.text()
        if _core.parse(graph).text() != graph:
            raise Doubt("the graph has no text that can be read back")
        ran, packages = [identity(code) for code in made.code.codes.values()], []
        for table, name in made.code.globals.values():
            package = table.get("__name__")
            if getattr(sys.modules.get(package), "__dict__", None) is not table:
                raise Doubt(f"the global {name!r} of no module")
            packages.append((package, name))
        shapes, ranges = made.guard.told()
        reads, names = sorted(made.reads), sorted(made.code.names)
        seen = Portable(self._owner.model, reads, ran)
        return {"reads": reads, "names": names, "computed": sorted(made.code.computed),
                "ran": sorted(map(list, {tuple(identity(c)) for c in seen.codes.values()})), "globals": packages, "seen": seen.text,
                "graph": graph, "shapes": shapes, "ranges": ranges,
                "out_spec": _spec_told(made.out_spec), "params": made.params, "outputs": [_output_told(one) for one in made.outputs],
                "mutated": made.mutated, "changed_inputs": made.changed_inputs, "ties": made.ties,
                "tape": None if made.tape is None else [sorted(one) for one in made.tape], "orders": made.orders,
                "devices": [None if d is None else str(d) for d in made.devices], **{name: getattr(made, name) for name in _PLAIN}}


def _used(path):
    """When a file was last used; 0: there is none."""
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0


# -- what keys are made of -------------------------------------------------------------------------
@functools.cache
def _versions():
    """Of all code that takes part; dcml's own by the files."""
    root, files = os.path.dirname(os.path.dirname(os.path.dirname(__file__))), []
    for folder, _, names in os.walk(root):
        for name in names:
            if name.endswith((".py", ".def", ".so")):
                about = os.stat(os.path.join(folder, name))
                files.append((os.path.relpath(os.path.join(folder, name), root), about.st_size, about.st_mtime_ns))
    return _FORMAT, torch.__version__, torch.version.git_version, sys.version, platform.machine(), digest(sorted(files))


def _settings():
    """Switches of torch that decide which operators run."""
    return (str(surroundings()), torch.is_grad_enabled(), torch.is_inference_mode_enabled(), str(torch.get_default_device()),
            torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision(), torch.cuda.is_available(),
            torch.backends.mha.get_fastpath_enabled(),
            torch._C._get_flash_sdp_enabled(), torch._C._get_math_sdp_enabled(), torch.backends.mkldnn.enabled, builtins.__debug__)


def _form(spec):
    """Of a tree of plain containers, whose keys are texts and numbers."""
    if isinstance(spec, trees.Shape) or spec.type not in (None, tuple, list, dict):
        raise Doubt("an argument in a container of another kind")
    held = [] if spec.type is not dict else spec.context
    if not all(type(key) in (str, int) for key in held):
        raise Doubt("an argument in a dictionary with keys of another kind")
    return (getattr(spec.type, "__name__", "*"), [repr(key) for key in held], [_form(child) for child in spec.children()])


def _leaf(leaf):
    if isinstance(leaf, torch.Tensor):
        if type(leaf) not in (torch.Tensor, torch.nn.Parameter) or leaf.layout is not torch.strided or leaf.device.type != "cpu":
            raise Doubt(f"an argument of type {type(leaf).__name__} on {leaf.device}")
        if any(name not in ("requires_grad", "is_leaf", "stride") for name, _ in known_of(leaf)):
            raise Doubt("an argument with attributes")
        return (type(leaf).__name__, repr(kind_of(leaf)), tuple(leaf.shape), leaf.stride(), known_of(leaf), leaf.is_conj(), leaf.is_neg(),
                leaf.is_inference())
    if not isinstance(leaf, (*VALUES, float, complex)):
        raise Doubt(f"an argument of type {type(leaf).__name__}")
    return repr(frozen(leaf, []))


# -- data ------------------------------------------------------------------------------------------
def _spec_told(spec):
    if spec.is_leaf():
        return "*"
    _form(spec)
    if spec.type is dict and not all(type(key) is str for key in spec.context):
        raise Doubt("a result in a dictionary with keys of another kind")
    return [spec.type.__name__, list(spec.context or ()), [_spec_told(child) for child in spec.children()]]


def _spec_of(told):
    """A tree of the kinds that were told."""
    return pytree.tree_structure(_tree_of(told))


def _tree_of(told):
    if told == "*":
        return 0
    kind, keys, children = told
    children = list(map(_tree_of, children))
    return dict(zip(keys, children)) if kind == "dict" else _CONTAINERS[kind](children)


def _output_told(output):
    if type(output) is int:
        return output
    if type(output) is Fixed and type(output.value) in (bool, int, str, type(None)):
        return ["Fixed", output.value]
    if type(output) in (Passed, Number):
        return [type(output).__name__, output.leaf if type(output) is Passed else output.index]
    if type(output) is Ordered:
        return ["Ordered", output.index, list(output.order)]
    raise Doubt(f"a result that is {type(output).__name__}")


def _output_of(told):
    if type(told) is int:
        return told
    kind, *values = told
    return _KINDS[kind](*[tuple(value) if isinstance(value, list) else value for value in values])
