"""Nodes of a state: access nodes, the two ends of maps, tasklets, operators, nested SDFGs.

The one idea: a node is made detached, or is a handle: a state and the node's id in the core's flat view.  The state
hands out the same object for the same id.
Must not know: operators; their classes are found by ``library_class``.
"""
import importlib

from .. import _core

LIBRARY_CLASSES = "dcml.onnx.nodes", "library_class"  # module and function(domain, op, opset), imported when first needed


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

    @property
    def id(self):
        """Its number in the state's flat view; 0 in no state."""
        return self._id

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
        return dict.fromkeys(self._state._connectors(self)[0]) if self._state is not None else self._in

    @property
    def out_connectors(self):
        """{name: None} of the connectors that edges leave from."""
        return dict.fromkeys(self._state._connectors(self)[1]) if self._state is not None else self._out

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

    def __str__(self):
        return self.label

    def __repr__(self):
        return f"{type(self).__name__}({self.label})"


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

    @classmethod
    def _from_core(cls, label, op, domain, opset, attributes):
        """A node of this class for an operator in a graph; ``attributes()`` gives {name: value} when asked."""
        node = cls.__new__(cls)
        LibraryNode.__init__(node, label)
        node._op = op, domain, opset
        return node

    @classmethod
    def _handle(cls, state, id, label, detail):
        op, domain, opset = detail[:3]
        cls = library_class(domain, op, opset)
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


