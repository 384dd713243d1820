"""The part of a state that builds: nodes and edges in any order, as DaCe's users write them.

The one idea: each call is one or a few edits of the core's flat view; what the edits mean is found out when the view is
built into the graph.
Must not know: how it is built.
"""
from .. import _core
from . import nodes
from .memlet import Memlet, wcr_name
from .subset import Range
from .symbolic import Symbolic, parse

_REDUCTIONS = {"sum": "ReduceSum", "prod": "ReduceProd", "min": "ReduceMin", "max": "ReduceMax"}


class Building:
    """Mixed into SDFGState, which gives ``_edit()``, ``_adopt(node)`` and ``_core_memlet(memlet)``."""

    # -- nodes ----------------------------------------------------------------------------------
    def add_node(self, node):
        """Adds a detached node.  Returns it.  Raises ValueError_ for a node of another state."""
        if not isinstance(node, nodes.Node):
            raise _core.ValueError_(f"{node!r} is no node")
        if node._state is None:
            self._adopt(node, node._attach(self, self._edit()))
        elif node._state is not self:
            raise _core.ValueError_(f"{node!r} is in another state, {node._state.label!r}")
        return node

    def add_nodes_from(self, node_iterable):
        for node in node_iterable:
            self.add_node(node)

    def add_access(self, array_or_stream_name, debuginfo=None):
        """An access node for an array by its name."""
        return self.add_node(nodes.AccessNode(array_or_stream_name))

    add_read = add_write = add_access

    def add_array(self, name, shape, dtype, **options):
        """Adds an array to the SDFG, and an access node for it."""
        return self.add_access(self.sdfg.add_array(name, shape, dtype, **options)[0])

    def add_transient(self, name, shape, dtype, **options):
        """Adds a transient to the SDFG, and an access node for it."""
        return self.add_access(self.sdfg.add_transient(name, shape, dtype, **options)[0])

    def add_scalar(self, name, dtype, **options):
        """Adds a scalar to the SDFG, and an access node for it."""
        return self.add_access(self.sdfg.add_scalar(name, dtype, **options)[0])

    def add_tasklet(self, name, inputs, outputs, code, language=None, debuginfo=None, **_):
        """A tasklet.

        inputs, outputs: names of connectors, a set, list or dict; code: Python that reads and assigns them.
        Raises ValueError_ with the line of the code that is not understood.
        """
        return self.add_node(nodes.Tasklet(name, inputs, outputs, code, language))

    def add_map(self, name, ndrange, schedule=nodes.ScheduleType.Default, unroll=False, debuginfo=None):
        """A map.  ndrange: {parameter: "begin:end:step"}, or the same as pairs.  Returns (entry, exit)."""
        params, ranges = _map_ranges(name, ndrange)
        map = nodes.Map(name, params, ranges, schedule)
        entry, exit = nodes.MapEntry(map), nodes.MapExit(map)
        return self.add_node(entry), self.add_node(exit)

    def add_nested_sdfg(self, sdfg, parent=None, inputs=(), outputs=(), symbol_mapping=None, name=None, schedule=None,
                        location=None, debuginfo=None):
        """An SDFG as a node: inputs and outputs are names of its arrays.  symbol_mapping: {its symbol: size}, for symbols
        that are not called the same here."""
        if parent is not None and not hasattr(parent, "states"):  # newer: (sdfg, inputs, outputs)
            parent, inputs, outputs = None, parent, inputs
        return self.add_node(nodes.NestedSDFG(name or sdfg.name, sdfg, inputs, outputs, symbol_mapping))

    def add_reduce(self, wcr, axes, identity=None, schedule=None, debuginfo=None):
        """A reduction of its input, all of it, over ``axes`` (None: over all) into its output.

        wcr: a lambda as for memlets; identity: None, or the value that the operation starts from; any other is refused.
        """
        kind = wcr_name(wcr)
        if kind not in _REDUCTIONS:
            raise _core.ValueError_("a reduction needs a wcr")
        start = {"sum": 0, "prod": 1, "min": None, "max": None}[kind]
        if identity is not None and start is not None and identity != start:
            raise _core.UnsupportedOpError(f"reduction from {identity}: add it to the result afterwards")
        return self.add_node(Reduce(kind, axes))

    # -- edges ----------------------------------------------------------------------------------
    def add_edge(self, u, u_connector, v, v_connector, memlet):
        """An edge from a node's connector to another's; None for nodes without connectors.  Returns it."""
        self.add_node(u), self.add_node(v)
        flow = self._edit()
        for node, connector, is_input in ((u, u_connector, False), (v, v_connector, True)):
            if connector is not None and node.kind in ("entry", "exit"):
                node._add_connector(connector, None, is_input)
        if u_connector is None and isinstance(u, Reduce):
            u_connector = next(iter(u.out_connectors), None)
        if v_connector is None and isinstance(v, Reduce):
            v_connector = next(iter(v.in_connectors), None)
        core = self._core_memlet(memlet)
        return self._edge_between(flow.add_edge(u._id, u_connector, v._id, v_connector, core), u, u_connector, v, v_connector, core)

    def add_nedge(self, u, v, data=None):
        """An edge without connectors; without a memlet it says only that v comes after u."""
        return self.add_edge(u, None, v, None, data if data is not None else Memlet())

    def add_memlet_path(self, *path_nodes, memlet=None, src_conn=None, dst_conn=None, propagate=True):
        """Edges along nodes: from an access node through entries to a node, or from a node through exits to an access
        node.  Parts of an array that are carried along the same way share its edges.

        memlet: that of the edge inside the maps; the others carry the whole array.  Returns the last edge.
        """
        if len(path_nodes) < 2 or not isinstance(memlet, Memlet):
            raise _core.ValueError_("a path has two nodes or more, and a memlet")
        self.add_nodes_from(path_nodes)
        inward, last = isinstance(path_nodes[-2], nodes.MapEntry), len(path_nodes) - 2
        whole = memlet if memlet.data is None else Memlet(memlet.data, wcr=None if inward else memlet.wcr)
        conn, edge = src_conn, None
        for k, (u, v) in enumerate(zip(path_nodes, path_nodes[1:])):
            edge = self._shared_edge(u, conn, v, memlet.data)
            if edge is None:
                into = dst_conn if k == last else self._connector_through(v, path_nodes[k + 2], memlet.data)
                edge = self.add_edge(u, conn, v, into, memlet if k == (last if inward else 0) else whole)
            conn = "OUT" + edge.dst_conn[2:] if k < last and edge.dst_conn else None
        return edge

    def _shared_edge(self, u, connector, v, data):
        """The edge that carries an array into an entry or out of an exit already, or None."""
        if data is None or not (isinstance(v, nodes.MapEntry) or isinstance(u, nodes.MapExit) and connector):
            return None
        edges = self.in_edges(v) if isinstance(v, nodes.MapEntry) else self.out_edges(u)
        return next((e for e in edges if e.src is u and e.dst is v and e.src_conn == connector and e.data.data == data), None)

    def _connector_through(self, v, after, data):
        """The connector of an entry or exit for what goes on to the node ``after``; a new one unless that exists."""
        if data is None:
            return None
        if isinstance(v, nodes.MapExit):
            for edge in self.out_edges(v):
                if edge.dst is after and edge.src_conn and edge.data.data == data:
                    return "IN" + edge.src_conn[3:]
        taken, k, name = v.in_connectors, 0, data
        while f"IN_{name}" in taken:
            k += 1
            name = f"{data}_{k}"
        v.add_in_connector(f"IN_{name}"), v.add_out_connector(f"OUT_{name}")
        return f"IN_{name}"

    def add_mapped_tasklet(self, name, map_ranges, inputs, code, outputs, schedule=nodes.ScheduleType.Default,
                           unroll_map=False, location=None, language=None, debuginfo=None, external_edges=False,
                           input_nodes=None, output_nodes=None, propagate=True, **_):
        """A map around a tasklet.

        map_ranges: as for add_map; inputs, outputs: {connector: Memlet}; code: as for add_tasklet.
        external_edges: also make access nodes and edges outside; input_nodes, output_nodes: {array: access node} to take
        instead of new ones.  Returns (tasklet, entry, exit).
        """
        inputs, outputs = dict(inputs or {}), dict(outputs or {})
        entry, exit = self.add_map(name + "_map", map_ranges, schedule)
        tasklet = self.add_tasklet(name, list(inputs), list(outputs), code, language)
        given = {True: _by_array(input_nodes), False: _by_array(output_nodes)}
        for is_input, memlets, end in ((True, inputs, entry), (False, outputs, exit)):
            seen = set()
            for connector, memlet in memlets.items():
                data, outside = memlet.data, external_edges or memlet.data in given[is_input]
                if data is None:
                    raise _core.ValueError_(f"tasklet {name!r}: connector {connector!r} has an empty memlet")
                names = (f"IN_{data}", f"OUT_{data}") if outside else (None, None)
                if is_input:
                    self.add_edge(entry, names[1], tasklet, connector, memlet)
                else:
                    self.add_edge(tasklet, connector, exit, names[0], memlet)
                if outside and data not in seen:
                    seen.add(data)
                    node = given[is_input].get(data) or self.add_access(data)
                    whole = Memlet(data, wcr=memlet.wcr)
                    if is_input:
                        self.add_edge(node, None, entry, names[0], whole)
                    else:
                        self.add_edge(exit, names[1], node, None, whole)
        if not inputs:
            self.add_nedge(entry, tasklet)
        if not outputs:
            self.add_nedge(tasklet, exit)
        return tasklet, entry, exit

    # -- removal --------------------------------------------------------------------------------
    def remove_node(self, node):
        """Removes a node with its edges."""
        node._node()
        self._edit().remove_node(node._id)

    def remove_nodes_from(self, node_iterable):
        for node in list(node_iterable):
            self.remove_node(node)

    def remove_edge(self, edge):
        """Removes an edge; connectors stay."""
        self._edit().remove_edge(edge._id)

    def remove_edge_and_connectors(self, edge):
        """Removes an edge and the connectors that it joins."""
        self.remove_edge(edge)
        for node, connector, is_input in ((edge.src, edge.src_conn, False), (edge.dst, edge.dst_conn, True)):
            if connector is not None:
                node._remove_connector(connector, None, is_input)


class Reduce(nodes.LibraryNode):
    """A reduction, made by ``state.add_reduce``.  ``axes``: a list, or None for all."""

    def __init__(self, kind, axes):
        super().__init__(f"reduce_{kind}", ["data"], ["reduced"])
        self.axes = None if axes is None else [int(a) for a in (axes if isinstance(axes, (list, tuple)) else (axes,))]
        self._op, self._own_attributes = (_REDUCTIONS[kind], "", 11), {"axes": self.axes, "keepdims": 0}


def _map_ranges(name, ndrange):
    """(parameters, Range) of {parameter: range}, or of pairs."""
    pairs = list(ndrange.items() if hasattr(ndrange, "items") else ndrange)
    ranges = []
    for param, range_ in pairs:
        if isinstance(range_, str):
            range_ = Range.from_string(range_)
        if isinstance(range_, (int, Symbolic)):
            range_ = Range([(range_, range_, 1)])
        if isinstance(range_, Range):
            if len(range_) != 1:
                raise _core.ValueError_(f"map {name!r}: parameter {param!r} has {len(range_)} ranges")
            range_ = range_[0]
        ranges.append(tuple(parse(x, True) for x in range_))
        if not str(param).isidentifier():
            raise _core.ValueError_(f"map {name!r}: {param!r} is no name for a parameter")
    return [str(param) for param, _ in pairs], Range(ranges)


def _by_array(given):
    """{array: access node} of a dict, or of access nodes."""
    if given is None or hasattr(given, "items"):
        return dict(given or {})
    return {node.data: node for node in given}
