"""What operators and values of a captured graph are called.

The one idea: an operator stands at the path of the module whose forward made it, and a value that leaves that module is the
module's ``out``; other values are called after what computes them.
Must not know: graphs, or what a row appends.
"""
import operator
import re

_FUNCTIONAL_FORM = re.compile(r"_native_batch_norm_legit(_functional|_no_training)?")  # what batch_norm is called when traced
_NUMBER = re.compile(r"_\d+$")
_AGAIN = re.compile(r"@\d+")  # torch's mark of a module that is called again
_NO_PART = re.compile(r"[^\w.]")


def names_of(node):
    """(name of the operator, name of values on the way, name of the result) of an fx node."""
    path, kind = path_of(node), _FUNCTIONAL_FORM.sub("batch_norm", node.name)
    if not path:
        return kind, kind, kind
    short = _NUMBER.sub("", kind).lstrip("_")
    return f"{path}/{kind}", f"{path}.{short}", f"{path}.out" if _leaves(node, path) else f"{path}.{short}"


def constant_name(array):
    """Of a NumPy array: what is in it, where that is short."""
    if array.ndim == 0:
        return str(array[()])
    return f"[{', '.join(map(str, array))}]" if array.ndim == 1 and array.size <= 6 else "c"


def path_of(node):
    """'layer1.0.bn1': the innermost module in whose forward an fx node was made; '' for the outermost."""
    stack = node.meta.get("nn_module_stack")
    path = next(reversed(stack.values()))[0] if stack else ""
    return "" if path.startswith("_empty") else _NO_PART.sub("_", _AGAIN.sub("", path))


def _leaves(node, path):
    """Does what is made outside of the module use a result, or is it one of the whole?"""
    for user in node.users:
        outside = path_of(user) != path and not path_of(user).startswith(path + ".")
        if _leaves(user, path) if user.target is operator.getitem else outside:
            return True
    return False
