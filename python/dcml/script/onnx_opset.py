"""opset1 to the newest, opset_ai_onnx_ml1 to the newest: the versions of ONNX's operators.

The one idea: a name tells domain and version, so an opset is made when it is first asked for.
Must not know: operators.
"""
import re

from ..opsets import newest
from .values import Opset

_DOMAINS = {"opset": "", "opset_ai_onnx_ml": "ai.onnx.ml", "opset_ai_onnx_preview_training": "ai.onnx.preview.training"}


def names():
    """The names of all opsets."""
    return [f"{prefix}{version}" for prefix, domain in _DOMAINS.items() for version in range(1, newest(domain) + 1)]


def __getattr__(name):
    if name == "all_opsets":
        value = {(opset.domain, opset.version): opset for opset in map(__getattr__, names())}
    elif name == "default_opset":
        value = __getattr__(f"opset{newest('')}")
    elif name == "__all__":
        value = ["all_opsets", "default_opset", *names()]
    else:
        found = re.fullmatch(r"(opset|opset_ai_onnx_ml|opset_ai_onnx_preview_training)([1-9][0-9]{0,3})", name)
        if not found or int(found[2]) > newest(_DOMAINS[found[1]]):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = Opset(_DOMAINS[found[1]], int(found[2]))
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), "all_opsets", "default_opset", *names()})
