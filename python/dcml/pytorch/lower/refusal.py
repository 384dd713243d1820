"""Why something cannot be lowered, said with the user's line."""
import os
import re
import weakref

import torch

from ... import _core
from ..guard.place import WAYS_OUT

_FOLDER = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")
DISABLED = (': torch.compile(model, backend="dcml") splits the graph around a function with the line under '
            "@torch.compiler.disable, or move the line out of forward")  # dynamo breaks by itself at what depends on values only
_GENERATED = weakref.WeakValueDictionary()  # file of code that torch.fx made -> its module


class Declined(Exception):
    """No row serves a node."""

    def __init__(self, node, reason):
        super().__init__(node, reason)
        self.node, self.reason = node, reason


def unsupported(node, reason):
    """The error for a node that cannot be captured."""
    by_values = torch.Tag.dynamic_output_shape in getattr(node.target, "tags", ())
    out = WAYS_OUT if by_values else DISABLED
    return _core.UnsupportedOpError(f"{node.target} cannot be captured: {reason}{out}{source(node)}")


def located(error, node):
    """The error that a node's lowering raised, with ``line``: the user's line, of the innermost node."""
    error.line = getattr(error, "line", "") or source(node)
    return error


def source(node):
    """' (file:line: code)' of the user's line that made a node."""
    trace = str(node.meta.get("stack_trace") or "")
    frames = re.findall(r'File "([^"]+)", line (\d+), in \S+\n[^\S\n]*(.*)', trace)
    frames = [f for f in frames if not f[0].startswith(_FOLDER)]
    users = [f for f in frames if "/torch/" not in f[0].replace("\\", "/")] or frames
    return (_behind(users[-1]) or f" ({users[-1][0]}:{users[-1][1]}: {users[-1][2].strip()})") if users else ""


def without_line(error):
    """An error's text without the user's line."""
    return re.split(r" \([^()]+:\d+: ", str(error))[0]


def generated(module):
    """Lines of code that torch.fx made, of modules within ``module``, are said as those of which it was made."""
    for one in module.modules():
        if isinstance(one, torch.fx.GraphModule) and hasattr(type(one).forward, "__code__"):
            _GENERATED[type(one).forward.__code__.co_filename] = one


def _behind(frame):
    """As ``source``, of the node of which a line of generated code was made; '' for other lines."""
    file, _, code = frame
    nodes = _GENERATED[file].graph.nodes if file in _GENERATED else ()
    name = re.match(r"\w*", code).group()
    return next((source(node) for node in nodes if node.name == name), "")
