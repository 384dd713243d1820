"""States: the flat view of a dataflow graph, with access nodes, the two ends of maps, and edges with memlets.

The one idea: the core derives the view and takes edits of it (``graph.flow(index)``); a state keeps only handles, one for
each id that somebody asked for.
Must not know: what nodes compute.
"""
from .. import _core
from . import nodes
from .building import Building
from .edges import Edge
from .memlet import Memlet


class SDFGState(Building):
    """A dataflow graph inside an SDFG.  ``sdfg``, ``label``; nodes and edges come from the program itself.

    Made by ``sdfg.add_state``.  Raises ValueError_ naming it when the SDFG has it no longer.
    """

    def __init__(self, sdfg, label):
        self.sdfg, self._label, self._index = sdfg, label, None
        self._nodes = {}       # id -> handle
        self._edges = {}       # id -> Edge
        self._view = None      # the core's Flow, held so that it stays the same object
        self._edits, self._scopes = 0, (None, {})  # for as long as nothing changes: (stamp, {id: id of the entry around})

    # -- the core's view ------------------------------------------------------------------------
    @property
    def index(self):
        """Its position among the states."""
        self.sdfg._sync()
        if self._index is None:
            raise _core.ValueError_(f"state {self._label!r} is gone from {self.sdfg!r}")
        return self._index

    @property
    def graph(self):
        """The SDFG's core graph, with all edits in it."""
        return self.sdfg.graph

    def _flow(self):
        index = self.index
        view = self._view = self.sdfg._graph.flow(index)
        return view

    def _edit(self):
        """The view, to be changed."""
        self._edits += 1
        self.sdfg._edited()
        return self._flow()

    def _touch(self, node):
        """What is in the node, an SDFG, has changed: if it is still there, the state is built anew."""
        if self._index is not None and self._flow().has(node._id):
            self._edit().touch()

    def _look(self, node):
        flow = self._flow()
        if not flow.has(node._id):
            raise _core.ValueError_(f"{node!r} is gone from state {self._label!r}")
        return flow.node(node._id)

    def _connectors(self, node):
        self._look(node)
        return self._flow().connectors(node._id)

    def _attributes(self, node):
        self._look(node)
        return self._attributes_by_id(node._id)

    def _attributes_by_id(self, id):
        return self.sdfg._graph.attributes(self._flow().node(id)[2][3])

    def _adopt(self, node, id):
        node._state, node._id = self, id
        self._nodes[id] = node

    def _handle_of(self, id):
        node = self._nodes.get(id)
        if node is None:
            kind, label, detail = self._flow().node(id)
            node = self._nodes[id] = nodes.CLASSES[kind]._handle(self, id, label, detail)
        return node

    def _edge(self, id, src, src_conn, dst, dst_conn, core):
        """The handle on an edge as the core tells it."""
        return self._edge_between(id, self._handle_of(src), src_conn, self._handle_of(dst), dst_conn, core)

    def _edge_between(self, id, u, u_connector, v, v_connector, core):
        edge = self._edges.get(id)
        if edge is None or (edge.src, edge.src_conn, edge.dst, edge.dst_conn) != (u, u_connector, v, v_connector):
            edge = self._edges[id] = Edge(self, id, u, u_connector, v, v_connector, core)
        else:
            edge._refresh(core)
        return edge

    def _core_memlet(self, memlet):
        """A Memlet as the core takes it.  Raises ValueError_ for another value, and for a name that is no array's."""
        if memlet is None:
            return None
        if not isinstance(memlet, Memlet):
            raise _core.ValueError_(f"{memlet!r} is no memlet")
        core = memlet._core_form(self.sdfg._shape_of)
        self.sdfg._mention(memlet.free_symbols)
        return core

    # -- looking --------------------------------------------------------------------------------
    @property
    def label(self):
        return self._label

    name = label

    @property
    def parent(self):
        return self.sdfg

    def nodes(self):
        """The nodes, sources first."""
        ids = self._flow().nodes()
        if len(self._nodes) > 2 * len(ids) + 64:  # most are handles on what is gone
            self._nodes = {id: self._nodes[id] for id in ids if id in self._nodes}
        return [self._nodes.get(id) or self._handle_of(id) for id in ids]

    def node(self, node_id):
        """The node at a position in ``nodes()``."""
        return self.nodes()[node_id]

    def node_id(self, node):
        """The position of a node in ``nodes()``."""
        node._node()
        return self._flow().nodes().index(node._id)

    def number_of_nodes(self):
        return len(self._flow().nodes())

    def number_of_edges(self):
        return len(self._flow().edges())

    def edges(self):
        """The edges: ``src``, ``src_conn``, ``dst``, ``dst_conn``, ``data``."""
        rows = self._flow().edges()
        if len(self._edges) > 2 * len(rows) + 64:
            self._edges = {row[0]: self._edges[row[0]] for row in rows if row[0] in self._edges}
        return [self._edge(*row) for row in rows]

    def in_edges(self, node):
        return [self._edge(*row) for row in self._flow().in_edges(self._id_of(node))]

    def out_edges(self, node):
        return [self._edge(*row) for row in self._flow().out_edges(self._id_of(node))]

    def _id_of(self, node):
        node._node()
        if node._state is not self:
            raise _core.ValueError_(f"{node!r} is in another state, {node._state.label!r}")
        return node._id

    def all_edges(self, *nodes):
        """The edges into and out of nodes, each once."""
        return list(dict.fromkeys(edge for node in nodes for edge in (*self.in_edges(node), *self.out_edges(node))))

    def edges_between(self, source, destination):
        return [edge for edge in self.out_edges(source) if edge.dst is destination]

    def in_edges_by_connector(self, node, connector):
        """The edges into a node's connector."""
        return iter([edge for edge in self.in_edges(node) if edge.dst_conn == connector])

    def out_edges_by_connector(self, node, connector):
        """The edges out of a node's connector."""
        return iter([edge for edge in self.out_edges(node) if edge.src_conn == connector])

    edges_by_connector = in_edges_by_connector

    def in_degree(self, node):
        return len(self._flow().in_edges(self._id_of(node)))

    def out_degree(self, node):
        return len(self._flow().out_edges(self._id_of(node)))

    def degree(self, node):
        return self.in_degree(node) + self.out_degree(node)

    def predecessors(self, node):
        """The nodes that edges come from, each once."""
        return list(dict.fromkeys(edge.src for edge in self.in_edges(node)))

    def successors(self, node):
        """The nodes that edges go to, each once."""
        return list(dict.fromkeys(edge.dst for edge in self.out_edges(node)))

    def neighbors(self, node):
        return self.successors(node)

    def source_nodes(self):
        """The nodes without edges into them."""
        return [node for node in self.nodes() if not self.in_degree(node)]

    def sink_nodes(self):
        """The nodes without edges out of them."""
        return [node for node in self.nodes() if not self.out_degree(node)]

    def data_nodes(self):
        """The access nodes."""
        return [node for node in self.nodes() if node.kind == "access"]

    def all_nodes_recursive(self):
        """(node, state) of each node, those of nested SDFGs included (and then (state, SDFG) of their states)."""
        for node in self.nodes():
            yield node, self
            if node.kind == "nested":
                yield from node.sdfg.all_nodes_recursive()

    def all_edges_recursive(self):
        """(edge, state) of each edge, those of nested SDFGs included."""
        for edge in self.edges():
            yield edge, self
        for node in self.nodes():
            if node.kind == "nested":
                yield from node.sdfg.all_edges_recursive()

    # -- scopes ---------------------------------------------------------------------------------
    def scope_dict(self, node_to_children=False):
        """{node: entry of the map around it, or None}; an exit is in its own map.  node_to_children: {entry or None: [nodes]}.

        Raises a dcml.Error naming nodes of a circle, or an edge across maps."""
        order = self.nodes()
        scope = {node: self._around(node) for node in order}
        if not node_to_children:
            return scope
        children = {None: []}
        for node in order:
            children.setdefault(scope[node], []).append(node)
        return children

    def scope_children(self):
        """{entry, or None for the outermost: [nodes directly inside]}."""
        return self.scope_dict(True)

    def _around(self, node):
        if node.kind == "exit":
            return self.entry_of(node)
        stamp = (self._edits, self.sdfg._graph.version)
        if self._scopes[0] != stamp:
            self._scopes = stamp, self._flow().scopes()
        entry = self._scopes[1][node._id]
        return self._handle_of(entry) if entry else None

    def entry_node(self, node):
        """The entry of the map around a node, None outside; of an exit, its entry."""
        self._id_of(node)
        return self._around(node)

    def entry_of(self, exit):
        """The entry that belongs to an exit."""
        return self._handle_of(exit._node()[2][0])

    def exit_node(self, entry_node):
        """The exit that belongs to an entry."""
        return self._handle_of(entry_node._node()[2][0])

    def memlet_path(self, edge):
        """The edges that carry what an edge carries, through entries and exits, outermost first on the way in."""
        path = [edge]
        while path[0].src.kind in ("entry", "exit") and (path[0].src_conn or "").startswith("OUT_"):
            before = [e for e in self.in_edges(path[0].src) if e.dst_conn == "IN_" + path[0].src_conn[4:]]
            if not before or path[0].src.kind == "exit" and len(before) > 1:
                break
            path.insert(0, before[0])
        while path[-1].dst.kind in ("entry", "exit") and (path[-1].dst_conn or "").startswith("IN_"):
            after = [e for e in self.out_edges(path[-1].dst) if e.src_conn == "OUT_" + path[-1].dst_conn[3:]]
            if not after or path[-1].dst.kind == "entry" and len(after) > 1:
                break
            path.append(after[0])
        return path

    def read_and_write_sets(self):
        """(names of arrays that are read, names of arrays that are written)."""
        return ({n.data for n in self.data_nodes() if self.out_degree(n)}, {n.data for n in self.data_nodes() if self.in_degree(n)})

    def validate(self):
        """Raises a dcml.Error naming what is not right."""
        self.sdfg.validate()

    def _repr_html_(self):
        from . import view
        index = self.index
        return view.notebook(self.sdfg._graph, index)

    def __str__(self):
        return self._label

    def __repr__(self):
        return f"SDFGState({self._label!r} of {self.sdfg.name!r})"
