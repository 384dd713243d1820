"""Nodes of a state: access nodes, the two ends of maps, tasklets, operators, nested SDFGs.

The one idea: a node is made detached, or is a handle: a state and the node's id in the core's flat view.  The state
hands out the same object for the same id.
Must not know: operators; their classes are found by ``library_class``.
"""
import importlib
import types

from .. import _core
from ..dtypes import ScheduleType

LIBRARY_CLASSES = "dcml.onnx.nodes.onnx_op", "library_class"  # module and function(domain, op, opset), imported when first needed


def library_class(domain, op, opset):
    """The class of an operator's nodes: what the function of LIBRARY_CLASSES finds, else LibraryNode."""
    module, function = LIBRARY_CLASSES
    return getattr(importlib.import_module(module), function)(domain, op, opset) or LibraryNode


class Node:
    """A node.  ``label``; ``in_connectors`` and ``out_connectors`` as {name: None}; ``state`` where it is in one."""
    _kind = None

    def __init__(self, label, in_connectors=(), out_connectors=()):
        self._label = str(label)
        self._in, self._out = dict.fromkeys(in_connectors or ()), dict.fromkeys(out_connectors or ())
        self._state, self._id = None, 0

    @classmethod
    def _handle(cls, state, id, label, detail):
        """The handle on a node that the core made."""
        node = cls.__new__(cls)
        Node.__init__(node, label)
        node._state, node._id = state, id
        return node

    # -- where it is ----------------------------------------------------------------------------
    def _attach(self, state, flow):
        """Makes the node in a flow; returns its id there."""
        raise _core.ValueError_(f"{self!r} cannot be added to a state by itself")

    def _node(self):
        """(kind, label, detail) in the core.  Raises ValueError_ naming the node if it is in no state, or gone."""
        if self._state is None:
            raise _core.ValueError_(f"{self!r} is in no state yet: add it by state.add_node")
        return self._state._look(self)

    @property
    def state(self):
        """The state that it is in, or None."""
        return self._state

    def copy(self):
        """A detached node like this, without its edges."""
        made = type(self).__new__(type(self))
        Node.__init__(made, self._label, self.in_connectors, self.out_connectors)
        self._copy_to(made)
        return made

    def _copy_to(self, made):
        """Gives a copy what the class adds."""
        raise _core.ValueError_(f"{self!r} cannot be copied by itself")

    @property
    def id(self):
        """The node of the core graph that it stands for; 0 for an access node, and before it is built."""
        if self._state is None:
            return 0
        self._node()
        return self._state._flow().origin(self._id)

    @property
    def kind(self):
        return self._kind

    @property
    def label(self):
        return self._label

    name = label

    # -- connectors -----------------------------------------------------------------------------
    @property
    def in_connectors(self):
        """{name: None} of the connectors that edges come into."""
        return self._in if self._state is None else types.MappingProxyType(dict.fromkeys(self._state._connectors(self)[0]))

    @property
    def out_connectors(self):
        """{name: None} of the connectors that edges leave from."""
        return self._out if self._state is None else types.MappingProxyType(dict.fromkeys(self._state._connectors(self)[1]))

    def add_in_connector(self, connector_name, dtype=None, force=False):
        """Adds a connector; False if there is one of that name."""
        return self._add_connector(connector_name, self._in, True)

    def add_out_connector(self, connector_name, dtype=None, force=False):
        """Adds a connector; False if there is one of that name."""
        return self._add_connector(connector_name, self._out, False)

    def remove_in_connector(self, connector_name):
        """Removes a connector; False if there is none of that name."""
        return self._remove_connector(connector_name, self._in, True)

    def remove_out_connector(self, connector_name):
        """Removes a connector; False if there is none of that name."""
        return self._remove_connector(connector_name, self._out, False)

    def _add_connector(self, name, own, is_input):
        if name in (self.in_connectors if is_input else self.out_connectors):
            return False
        if self._state is None:
            own[name] = None
        else:
            self._state._edit().add_connector(self._id, name, is_input)
        return True

    def _remove_connector(self, name, own, is_input):
        if name not in (self.in_connectors if is_input else self.out_connectors):
            return False
        if self._state is None:
            del own[name]
        else:
            self._state._edit().remove_connector(self._id, name, is_input)
        return True

    def _repr_html_(self):
        if self._state is None:
            return None
        from . import view
        self._node()
        return view.notebook_node(self._state.sdfg._graph, self._state.index, self._id)

    def __str__(self):
        return self.label

    def __repr__(self):
        return f"{type(self).__name__}({self._label})"


class LibraryNode(Node):
    """A node whose meaning is an operator's.

    label: the node's name.  A subclass sets ``_op`` to (op, domain, opset) and gives its attributes by
    ``_attributes()``; after it changed one of a node in a state it calls ``_attributes_changed()``.
    A node that the core made is built by ``_from_core``, which a subclass may replace.
    """
    _kind = "library"
    _op = None
    implementation = None

    def __init__(self, label, inputs=(), outputs=()):
        super().__init__(label, inputs, outputs)
        self._own_attributes = {}

    def _attributes(self):
        """{name: value} of the attributes as the core takes them; None stands for absent."""
        if self._state is None:
            return dict(self._own_attributes)
        return self._state._attributes(self)

    def _attributes_changed(self):
        """Tells the core; needed for a node in a state only."""
        if self._state is not None:
            self._state._edit().set_attributes(self._id, self._attributes())

    def _copy_to(self, made):
        made._op, made._own_attributes = self._op, self._attributes()

    @classmethod
    def _from_core(cls, label, op, domain, opset, attributes):
        """A node of this class for an operator in a graph; ``attributes()`` gives {name: value} when asked."""
        node = cls.__new__(cls)
        LibraryNode.__init__(node, label)
        node._op = op, domain, opset
        return node

    @classmethod
    def _handle(cls, state, id, label, detail):
        op, domain, opset, _, is_gradient = detail
        cls = LibraryNode if is_gradient else library_class(domain, op, opset)
        node = cls._from_core(label, op, domain, opset, lambda: state._attributes_by_id(id))
        node._state, node._id = state, id
        return node

    def _attach(self, state, flow):
        if self._op is None:
            raise _core.ValueError_(f"{self!r} is of a class that stands for no operator")
        op, domain, opset = self._op
        id = flow.add_library(self._label, op, domain, opset, self._attributes())
        have = flow.connectors(id)
        for is_input, names in ((True, self._in), (False, self._out)):
            for name in names:
                if name not in have[not is_input]:
                    flow.add_connector(id, name, is_input)
        return id

    def validate(self, sdfg, state):
        """Raises a dcml.Error if the node is not right where it is; subclasses look at their attributes and edges."""

    @property
    def op(self):
        """The operator's name."""
        return self._op[0]


class AccessNode(Node):
    """Where an array is read or written.  ``data``: its name."""
    _kind = "access"

    def __init__(self, data):
        super().__init__(data)

    @property
    def data(self):
        if self._state is not None:
            self._label = self._node()[2]
        return self._label

    @data.setter
    def data(self, name):
        if self._state is not None:
            self._state._edit().set_label(self._id, name)
        self._label = name

    label = name = data

    def desc(self, sdfg):
        """The array's descriptor.  sdfg: an SDFG or a state."""
        sdfg = getattr(sdfg, "sdfg", sdfg)
        return sdfg.arrays[self.data]

    def _attach(self, state, flow):
        return flow.add_access(self._label)


class Map:
    """What the two ends of a map share: ``label``, ``params``, ``range`` (a Range) and ``schedule``, which can be set."""

    def __init__(self, label, params, ndrange, schedule=ScheduleType.Default, unroll=False, collapse=1):
        from .subset import Range
        self._label, self._params = str(label), list(params)
        self._range = ndrange if isinstance(ndrange, Range) else Range(ndrange)
        self._schedule, self._entry = ScheduleType(schedule), None
        if len(self._params) != len(self._range):
            raise _core.ValueError_(f"map {label!r} has {len(self._params)} parameters and {len(self._range)} ranges")

    @classmethod
    def _handle(cls, entry):
        self = cls.__new__(cls)
        self._label, self._entry, self._schedule = entry.label, entry, ScheduleType.Default
        return self

    def _ranges(self):
        """[(param, begin, end, step)] as texts, the end excluded."""
        if self._entry is not None and self._entry._state is not None:
            return self._entry._node()[2][1]
        return _core_ranges(self._params, self._range)

    def _set(self, params, ranges):
        if len(params) != len(ranges):
            raise _core.ValueError_(f"map {self._label!r} has {len(params)} parameters and {len(ranges)} ranges")
        self._params, self._range = list(params), ranges
        if self._entry is not None and self._entry._state is not None:
            self._entry._state.sdfg._mention(ranges.free_symbols, params)
            self._entry._state._edit().set_ranges(self._entry._id, _core_ranges(params, ranges))

    @property
    def label(self):
        return self._label

    @property
    def params(self):
        """Names of the parameters; can be set."""
        return [row[0] for row in self._ranges()]

    @params.setter
    def params(self, params):
        self._set(params, self.range)

    @property
    def range(self):
        """A Range, a dimension for each parameter; can be set."""
        from .subset import Range
        from .symbolic import parse
        return Range([(begin, parse(end, True) - 1, step) for _, begin, end, step in self._ranges()])

    @range.setter
    def range(self, ndrange):
        from .subset import Range
        self._set(self.params, ndrange if isinstance(ndrange, Range) else Range(ndrange))

    def get_param_num(self):
        return len(self._ranges())

    @property
    def schedule(self):
        if self._entry is None or self._entry._state is None:
            return self._schedule
        if self._schedule in _ON_GPU and self in self._entry._state.sdfg._gpu_maps:
            return self._schedule  # its results are not known yet
        name = self._entry._node()[2][2]
        if name != "sequential" and self._on_gpu():
            return ScheduleType.GPU_ThreadBlock if self._entry.state.entry_node(self._entry) is not None else ScheduleType.GPU_Device
        return _SCHEDULES.get(name, ScheduleType.Default)

    @schedule.setter
    def schedule(self, schedule):
        self._schedule = ScheduleType(schedule)
        if self._entry is not None and self._entry._state is not None:
            self._entry._state._edit().set_schedule(self._entry._id, schedule_name(self._schedule))
            if self._schedule in _ON_GPU:
                self._entry._state.sdfg._gpu_maps.append(self)

    def _results(self):
        """Names of the arrays that the map writes."""
        state = self._entry.state
        return {edge.data.data for edge in state.out_edges(state.exit_node(self._entry)) if edge.data is not None and edge.data.data}

    def _place_results(self):
        """Puts what the map writes on the GPU."""
        if self._entry._state is not None:
            for name in self._results():
                self._entry.state.sdfg._graph.set_device(name, "cuda")

    def _on_gpu(self):
        graph = self._entry.state.sdfg._graph
        return any(graph.device(name) == "cuda" for name in self._results())

    def __repr__(self):
        return f"Map({self})"

    def __str__(self):
        ranges = [f"{p}={begin}:{end}" + (f":{step}" if step != "1" else "") for p, begin, end, step in self._ranges()]
        return f"{self._label}[{', '.join(ranges)}]"


def _core_ranges(params, ranges):
    """[(param, begin, end, step)] as texts, the end excluded."""
    return [(p, str(first), str(last + 1), str(step)) for p, (first, last, step) in zip(params, ranges)]


class _MapEnd(Node):
    """Where a map begins or ends; what they share is the map."""

    def __init__(self, map, in_connectors=(), out_connectors=()):
        super().__init__(map.label, in_connectors, out_connectors)
        self._map = map

    @classmethod
    def _handle(cls, state, id, label, detail):
        node = super()._handle(state, id, label, detail)
        node._map = None
        return node


class MapEntry(_MapEnd):
    """Where a map begins; ``map`` tells its parameters.  Made by ``state.add_map``, or of a Map."""
    _kind = "entry"

    @property
    def map(self):
        if self._map is None:
            self._map = Map._handle(self)
        return self._map

    @property
    def params(self):
        return self.map.params

    def _attach(self, state, flow):
        state.sdfg._mention(self._map._range.free_symbols, self._map._params)
        entry, _ = flow.add_map(self._label, self._map._ranges(), schedule_name(self._map.schedule))
        self._map._entry = self
        if self._map._schedule in _ON_GPU:
            state.sdfg._gpu_maps.append(self._map)
        return entry


class MapExit(_MapEnd):
    """Where a map ends; ``map`` is that of its entry."""
    _kind = "exit"

    @property
    def map(self):
        if self._map is None:
            self._map = self._state._handle_of(self._node()[2][0]).map
        return self._map

    def _attach(self, state, flow):
        entry = self._map._entry
        if entry is None or entry._state is not state:
            raise _core.ValueError_(f"{self!r} is added before its entry")
        return flow.node(entry._id)[2][0]


class CodeText(str):
    """Code as a text, which DaCe's users also find in ``as_string``."""
    __slots__ = ()

    @property
    def as_string(self):
        return str(self)


class Tasklet(Node):
    """A computation on what its connectors carry.  ``code``: Python, see dcml.sdfg.code; can be set."""
    _kind = "tasklet"

    def __init__(self, label, inputs=(), outputs=(), code="", language=None, **_):
        super().__init__(label, _ordered(inputs), _ordered(outputs))
        if getattr(language, "name", language) not in (None, "Python", "python"):
            raise _core.UnsupportedOpError(f"tasklet {label!r}: code in {getattr(language, 'name', language)}: expected Python")
        self._code = code

    @classmethod
    def _handle(cls, state, id, label, detail):
        node = super()._handle(state, id, label, detail)
        node._code = None
        return node

    @property
    def code(self):
        """The statements: as they were given, or as the core tells them."""
        return CodeText(self._code if self._code is not None else self._node()[2][2])

    @code.setter
    def code(self, code):
        if self._state is not None:
            statements = self._translated(self._state, code, self.in_connectors, self.out_connectors)
            self._state._edit().set_code(self._id, statements)
        self._code = code

    def _copy_to(self, made):
        made._code = str(self.code)

    def _translated(self, state, code, inputs, outputs):
        from .code import translate
        code = translate(f"tasklet {self._label!r}", code, inputs, outputs)
        state.sdfg._mention(code.free)
        return code.statements

    def _attach(self, state, flow):
        statements = self._translated(state, self._code, self._in, self._out)
        return flow.add_tasklet(self._label, list(self._in), list(self._out), statements)


class NestedSDFG(Node):
    """An SDFG as a node; its arrays that are not transient are connectors.

    ``sdfg``; ``symbol_mapping``: {name of its symbol: value}; those that are left out are called the same outside.
    """
    _kind = "nested"

    def __init__(self, label, sdfg, inputs=(), outputs=(), symbol_mapping=None):
        super().__init__(label, _ordered(inputs), _ordered(outputs))
        self._sdfg, self._symbols = sdfg, {str(k): str(v) for k, v in (symbol_mapping or {}).items()}
        unknown = sorted(self._symbols.keys() - sdfg.symbols.keys())
        if unknown:
            raise _core.ValueError_(f"nested SDFG {label!r} has no symbol {unknown[0]!r}; it has {sorted(sdfg.symbols)}")

    @classmethod
    def _handle(cls, state, id, label, detail):
        node = super()._handle(state, id, label, detail)
        node._sdfg, node._symbols = None, None
        return node

    @property
    def sdfg(self):
        if self._sdfg is None:
            from .graph import SDFG
            self._sdfg = SDFG(self._node()[2])
        return self._sdfg

    @property
    def symbol_mapping(self):
        return dict(self._symbols or {})

    def _copy_to(self, made):
        made._sdfg, made._symbols = self.sdfg, self.symbol_mapping

    def _attach(self, state, flow):
        for name in [*self._in, *self._out]:
            if name not in self._sdfg.arrays:
                raise _core.ValueError_(f"nested SDFG {self._label!r} has no array {name!r} for its connector")
        from .symbolic import free_symbols
        state.sdfg._nest(self._sdfg, state, self)
        inner = self._sdfg.graph
        self._symbols = {**{name: name if inner.uses_symbol(name) else "0" for name in self._sdfg.symbols}, **self._symbols}
        state.sdfg._mention(set().union(*map(free_symbols, self._symbols.values())))
        return flow.add_nested(self._label, inner, list(self._in), list(self._out), self._symbols)


_SCHEDULES = {"sequential": ScheduleType.Sequential, "parallel": ScheduleType.CPU_Multicore, "reduce": ScheduleType.CPU_Multicore,
              "scatter": ScheduleType.CPU_Multicore}
_NAMES = {ScheduleType.Sequential: "sequential", ScheduleType.Default: "default", ScheduleType.CPU_Multicore: "default",
          ScheduleType.Unrolled: "default", **dict.fromkeys((ScheduleType.GPU_Default, ScheduleType.GPU_Device,
                                                             ScheduleType.GPU_ThreadBlock), "default")}
_ON_GPU = (ScheduleType.GPU_Default, ScheduleType.GPU_Device)  # of maps whose results lie there
CLASSES = {cls._kind: cls for cls in (AccessNode, MapEntry, MapExit, Tasklet, LibraryNode, NestedSDFG)}


def schedule_name(schedule):
    """The core's name of a ScheduleType.  Raises DeviceError for those of devices that are not there."""
    schedule = ScheduleType(schedule)
    if schedule not in _NAMES:
        raise _core.DeviceError(f"schedule {schedule.name}: maps run on a processor, or a GPU")
    return _NAMES[schedule]


def _ordered(connectors):
    return sorted(connectors) if isinstance(connectors, (set, frozenset)) else list(connectors or ())
