"""What a module is, in words that mean the same in another process.

The one idea: whatever the guards of a capture look at in this process is either said by its value, its code or its name, or it
is a Doubt, and with a doubt nothing is kept and nothing is found.
Must not know: captures, files or graphs.
"""
import builtins
import collections
import dis
import enum
import functools
import hashlib
import itertools
import sys
import types

import torch

from ..guard.attributes import READS_ALL
from ..guard.extents import Doubt
from ..guard.state import GLOBAL_HOOKS, TABLES
from ..guard.watch import VALUES, foreign_file, is_foreign

# What functions and classes of these packages do follows from their arguments and from what keys of captures say.
_PURE = {"builtins", "math", "operator", "_operator", "functools", "_functools", "itertools", "collections", "typing", "dataclasses",
         "copy", "numbers", "contextlib", "warnings", "abc", "types", "string"}
_PURE_OF_TORCH = {"torch", "torch.nn", "torch.functional", "torch.linalg", "torch.fft", "torch.special", "torch._tensor", "torch.types",
                  "torch._C", "torch._C._nn", "torch._C._linalg", "torch._C._fft", "torch._C._special", "torch.autograd.grad_mode",
                  "torch.amp.autocast_mode", "torch.utils._contextlib", "torch._jit_internal", "torch.return_types", "torch.overrides"}
# But these tell of the machine, of files, of threads or of earlier calls.
_OF_THE_PROCESS = {"load", "save", "from_file", "get_num_threads", "get_num_interop_threads", "initial_seed", "seed", "get_rng_state",
                   "manual_seed", "set_rng_state", "set_num_threads", "get_file_path", "compile", "compiled_with_cxx11_abi", "lru_cache",
                   "is_warn_always_enabled", "get_deterministic_debug_mode", "is_deterministic_algorithms_warn_only_enabled", "cache",
                   "set_default_dtype", "set_default_device", "get_default_device", "typename", "is_storage", "count"}
_UNSEEN = {"open", "input", "exec", "eval", "compile", "__import__", "globals", "locals", "vars", "id", "hash", "dir", "breakpoint"}
_NOT_READ = {"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__qualname__", "__firstlineno__",
             "__static_attributes__", "__annotate__", "__annotate_func__", "__annotations_cache__", "__parameters__", "__orig_bases__"}
_CALLED_BY_ALL = (torch, torch._C._nn, type(torch._C._VariableFunctions), torch.nn.functional,
                  torch.functional, torch.Tensor, torch.nn.Module)
_HOOKS = [name for name in vars(torch.nn.Module()) if "hooks" in name]
_BOUND = (types.MethodType, staticmethod, classmethod, property, functools.partial)
_PARTS = ("__func__", "__self__", "func", "args", "keywords", "fget", "fset", "fdel")
_CALLED = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_BUILT_IN = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType)


def identity(code):
    """Where a code object stands in the sources."""
    return [code.co_filename, getattr(code, "co_qualname", code.co_name), code.co_firstlineno]


def digest(value):
    """Of a nest of tuples, texts and numbers."""
    return hashlib.sha256(repr(value).encode()).hexdigest()


def shape_of(model):
    """What is cheap to say of a module and tells most modules apart."""
    return tuple([(path, type(m).__module__, type(m).__qualname__, m.training, tuple(m._parameters), tuple(m._buffers))
                  for path, m in model.named_modules(remove_duplicate=False)])


class Portable:
    """Looks at ``model``.

    reads: names of attributes of modules that forward reads; ran: identities of the functions that ran.  Afterwards ``text`` is a
    digest of all that these see, and ``codes`` are those of the functions that were met, by id.
    Raises Doubt.
    """

    def __init__(self, model, reads, ran):
        self._reads, self._ran = {*reads, "forward", "_compiled_call_impl", "training"}, set(map(tuple, ran))
        self.codes, self._met, self._numbers = {}, {}, itertools.count()
        self._paths, self._tensors, self._memories = {}, {}, {}
        modules = list(model.named_modules(remove_duplicate=False))
        for path, m in modules:
            self._paths.setdefault(id(m), path)
            for name, tensor in (*m._parameters.items(), *m._buffers.items()):
                if tensor is not None:
                    self._tensors.setdefault(id(tensor), f"{path}.{name}")
        if any(GLOBAL_HOOKS):
            raise Doubt("hooks of all modules")
        patched = [_patched(owner) for owner in _CALLED_BY_ALL]
        self.text = digest((patched, [self._module(path, m) for path, m in modules]))
        missing = self._ran - {tuple(identity(code)) for code in self.codes.values()}
        missing = [one for one in missing if one[0] not in _files_of_finders()]
        if missing:
            raise Doubt(f"{min(missing)[1]} is not found by name")

    # -- modules --------------------------------------------------------------------------------
    def _module(self, path, module):
        if self._paths[id(module)] != path:
            return path, "is", self._paths[id(module)]
        if any(vars(module).get(name) for name in _HOOKS):
            raise Doubt(f"hooks of {path or 'the module'}")
        attributes = [(name, self._value(value)) for name, value in sorted(vars(module).items())
                      if name in self._reads and name not in TABLES]
        tensors = [(name, None if tensor is None else self._form(f"{path}.{name}", tensor))
                   for name, tensor in (*module._parameters.items(), *module._buffers.items())]
        return path, self._value(type(module)), tuple(module._modules), attributes, tensors, len(module._parameters)

    def _form(self, name, tensor):
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided or tensor.device.type != "cpu":
            raise Doubt(f"the tensor {name}")
        if vars(tensor):
            raise Doubt(f"attributes of the tensor {name}")
        memory = self._memories.setdefault(address_of(tensor), name), tensor.storage_offset()
        return (memory, self._tensors[id(tensor)], type(tensor).__name__, str(tensor.dtype), tuple(tensor.shape), tensor.stride(),
                tensor.requires_grad, tensor.is_conj(), tensor.is_neg(), tensor.is_inference())

    # -- values ---------------------------------------------------------------------------------
    def _value(self, value):
        if type(value) in (bool, int, str, bytes, float, complex, type(None), type(...), range):
            return type(value).__name__, repr(value)
        if isinstance(value, enum.Enum):
            if not is_foreign(type(value).__module__):
                raise Doubt(f"the enumeration {type(value).__qualname__}")
            return "enum", type(value).__qualname__, value.name
        if isinstance(value, VALUES) and is_foreign(type(value).__module__):
            return type(value).__name__, repr(value)
        if id(value) in self._met:
            return "met", self._met[id(value)][0]
        self._met[id(value)] = next(self._numbers), value  # held, so that its id stays its own
        return self._told(value)

    def _told(self, value):
        kind = type(value)
        if isinstance(value, torch.nn.Module):
            return self._known("module", self._paths, value)
        if isinstance(value, torch.Tensor):
            return self._known("tensor", self._tensors, value)
        if kind in (list, tuple):
            return kind.__name__, [self._value(one) for one in value]
        if kind in (dict, collections.OrderedDict):
            return kind.__name__, [(self._value(key), self._value(one)) for key, one in value.items()]
        if kind in (set, frozenset):
            return kind.__name__, sorted([repr(self._value(one)) for one in value])
        if kind is types.FunctionType:
            return self._function(value)
        if isinstance(value, type):
            return self._class(value)
        if kind in _BOUND:
            return kind.__name__, [self._value(getattr(value, part)) for part in _PARTS if hasattr(value, part)]
        if isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)) and str(value).startswith("aten."):
            return "operator", str(value)
        if isinstance(value, _BUILT_IN):
            return self._built_in(value)
        raise Doubt(f"an object of type {kind.__qualname__}")

    def _known(self, what, table, value):
        if id(value) not in table:
            raise Doubt(f"a {what} outside the tree of modules")
        return what, table[id(value)]

    def _built_in(self, value):
        owner = getattr(value, "__objclass__", getattr(value, "__self__", None))
        package = owner.__name__ if isinstance(owner, types.ModuleType) else (value if owner is None else owner).__module__
        if not isinstance(owner, (type, types.ModuleType, type(None))) or package is None or not _is_pure(package, value.__name__):
            raise Doubt(f"the built-in function {value.__qualname__}")
        return "built in", package, value.__qualname__

    def _class(self, kind):
        if is_foreign(kind.__module__):
            if _by_name(kind.__module__, kind.__qualname__) is not kind or not _is_pure(kind.__module__, kind.__name__):
                raise Doubt(f"the class {kind.__module__}.{kind.__qualname__}")
            bases = [base for base in kind.__mro__ if issubclass(kind, torch.nn.Module) and base.__module__.startswith("torch.")]
            owners = dict.fromkeys([*bases, *[sys.modules[base.__module__] for base in bases]])
            return "class", kind.__module__, kind.__qualname__, [_patched(owner) for owner in owners]
        if type(kind) is not type or "__slots__" in vars(kind):
            raise Doubt(f"the class {kind.__qualname__} of a kind of its own")
        items = [(name, self._value(value)) for name, value in sorted(vars(kind).items()) if name not in _NOT_READ]
        return "class", kind.__module__, kind.__qualname__, [self._value(base) for base in kind.__bases__], items

    # -- functions ------------------------------------------------------------------------------
    def _function(self, function):
        code = function.__code__
        if foreign_file(code.co_filename):
            package = vars(sys.modules.get(function.__module__, builtins))
            name = next((name for name, value in package.items() if value is function), None)
            if name is None or not _is_pure(function.__module__, name):
                raise Doubt(f"the function {function.__module__}.{function.__qualname__}")
            return "function", function.__module__, name
        if tuple(identity(code)) not in self._ran:
            return "function that does not run", identity(code)
        for part in _with_nested(code):
            self.codes[id(part)] = part
            if not READS_ALL.isdisjoint(part.co_names):
                raise Doubt(f"{function.__qualname__} looks at all that an object has")
        if vars(function):
            raise Doubt(f"attributes of the function {function.__qualname__}")
        cells = [self._value(_content(cell, function)) for cell in function.__closure__ or ()]
        given = [self._value(function.__defaults__), self._value(function.__kwdefaults__)]
        return "function", _text_of(code), cells, given, [self._global(function, *found) for found in _globals_of(code)]

    def _global(self, function, name, chains):
        table = function.__globals__
        if name not in table:
            if name in _UNSEEN or not hasattr(builtins, name):
                raise Doubt(f"the name {name!r} in {function.__qualname__}")
            value = getattr(builtins, name)
            if getattr(value, "__module__", None) != "builtins" or getattr(value, "__name__", None) != name:
                raise Doubt(f"the builtin {name!r}, which is not Python's")
            return name, "builtin"
        if not isinstance(table[name], types.ModuleType):
            return name, self._value(table[name])
        return name, [(chain, self._value(self._attribute(table[name], chain))) for chain in sorted(chains)]

    def _attribute(self, found, chain):
        """What a function reads of a package: module.part.name."""
        for name in chain:
            if not isinstance(found, types.ModuleType):
                break
            if not is_foreign(found.__name__) or sys.modules.get(found.__name__) is not found or not hasattr(found, name):
                raise Doubt(f"{found.__name__}.{name}")
            found = getattr(found, name)
        if isinstance(found, types.ModuleType):
            raise Doubt(f"the module {found.__name__} as a value")
        return found


def _files_of_finders():
    """What runs where something is imported, which tracing does too."""
    return {getattr(getattr(f, "find_spec", None), "__code__", _files_of_finders.__code__).co_filename for f in sys.meta_path}


def _by_name(module, qualname):
    found = sys.modules.get(module)
    for part in (qualname or "").split("."):
        found = getattr(found, part, None)
    return found


@functools.lru_cache(maxsize=None)
def _home(value):
    """(module, name) that a function gives itself; raises Doubt if it is somebody else's."""
    if isinstance(value, types.FunctionType) and not foreign_file(value.__code__.co_filename):
        raise Doubt(f"{value.__qualname__} in the place of a function of torch")
    return getattr(value, "__module__", None), value.__qualname__


def _patched(owner):
    """What a class or a module of torch holds that is no function under its own name: the same in all processes but where somebody
    puts something in a function's place."""
    of_class, found = isinstance(owner, type), []
    package, prefix = (owner.__module__, f"{owner.__qualname__}.") if of_class else (owner.__name__, "")
    for name, value in list(vars(owner).items()):
        if isinstance(value, _CALLED):
            if (home := _home(value)) != (package, prefix + name) and home[0] is not None:
                found.append((name, home))
            elif home[0] is None and value.__name__ != name:
                found.append((name, home))
        elif callable(value) and not isinstance(value, type):
            if isinstance(value, functools.partial) or not is_foreign(type(value).__module__) and type(value) is not types.GenericAlias:
                raise Doubt(f"{name} of {owner.__name__} is an object of type {type(value).__qualname__}")
            found.append((name, type(value).__qualname__))
    return found


def address_of(tensor):
    """Of the memory that a plain tensor looks at; raises Doubt for others."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
        raise Doubt(f"a tensor of type {type(tensor).__name__} and layout {tensor.layout}")
    return tensor.untyped_storage().data_ptr()


def _is_pure(package, name):
    if name in _OF_THE_PROCESS:
        return False
    return package in _PURE_OF_TORCH or package.startswith("torch.nn.") or package.partition(".")[0] in _PURE


def _content(cell, function):
    try:
        return cell.cell_contents
    except ValueError:
        raise Doubt(f"a variable of {function.__qualname__} without a value") from None


def _with_nested(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _with_nested(constant)


def _text_of(code):
    """All that a code object does."""
    constants = [_text_of(c) if isinstance(c, types.CodeType) else (type(c).__name__, sorted(map(repr, c)) if isinstance(c, frozenset)
                                                                  else repr(c)) for c in code.co_consts]
    return (identity(code), code.co_code.hex(), constants, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars,
            code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount,
            getattr(code, "co_exceptiontable", b"").hex())


def _globals_of(code):
    """[(name of a global that a code reads, chains of attributes that it reads of it)], those of functions within included."""
    names = {}
    for part in _with_nested(code):
        chain = None
        for found in dis.get_instructions(part):
            if found.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                chain = []
                names.setdefault(found.argval, []).append(chain)
            elif found.opname.endswith(("_ATTR", "_METHOD")) and found.opname.startswith("LOAD") and chain is not None:
                chain.append(found.argval)
            elif found.opname not in ("EXTENDED_ARG", "CACHE"):
                chain = None
            if found.opname in ("STORE_GLOBAL", "DELETE_GLOBAL", "IMPORT_NAME", "IMPORT_STAR"):
                raise Doubt(f"{part.co_qualname if hasattr(part, 'co_qualname') else part.co_name} imports or sets a global")
    return [(name, {tuple(chain) for chain in chains}) for name, chains in names.items()]
