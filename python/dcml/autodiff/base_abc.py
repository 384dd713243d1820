"""Gradients that users state for operators: what an implementation offers, and which there are.

Must not know: where an implementation is used.
"""
import abc
import dataclasses
import typing

from .. import _core


@dataclasses.dataclass
class BackwardContext:
    """What an implementation may look at.

    forward_sdfg, forward_state: what holds the node.  backward_sdfg, backward_state: where the reverse node goes; they are
    made for this node.  backward_generator: what asks, a ``dcml.autodiff.generate.BackwardPassGenerator``.
    """
    forward_sdfg: typing.Any
    forward_state: typing.Any
    backward_sdfg: typing.Any
    backward_state: typing.Any
    backward_generator: typing.Any


@dataclasses.dataclass
class BackwardResult:
    """The names of the gradients that a reverse node computes and takes.

    required_grad_names: {input connector of the forward node: connector of the reverse node that gives its gradient}.
    given_grad_names: {output connector of the forward node: connector of the reverse node that takes its gradient}.
    """
    required_grad_names: typing.Dict[typing.Optional[str], typing.Optional[str]]
    given_grad_names: typing.Dict[typing.Optional[str], typing.Optional[str]]

    @staticmethod
    def empty():
        """A result to be filled."""
        return BackwardResult({}, {})


class BackwardImplementation(abc.ABC):
    """Base of gradients for operators.

    Register with ``autoregister_params(op=, name=)``, or by ``BackwardImplementation.register(cls, op=, name=)``.  One that
    can be applied wins over the gradient that dcml derives; ``node.backward_implementation = name`` chooses among several,
    else ``ONNX<Op>.default_backward_implementation`` does, else the first that was registered.

    >>> from dcml.autodiff import BackwardImplementation, autoregister_params
    >>> @autoregister_params(op="Relu", name="mine")
    ... class MyReluBackward(BackwardImplementation):
    ...     @staticmethod
    ...     def backward(forward_node, context, given_gradients, required_gradients):
    ...         ...
    >>> _ = BackwardImplementation.unregister(MyReluBackward)
    """
    _registered = []  # (operator or None, class of nodes or None, name, implementation)

    @staticmethod
    def backward_can_be_applied(node, state, sdfg):
        """May backward be called for this node?  If not, others are asked.

        node: the candidate; state, sdfg: the SDFGState and SDFG that hold it.  Returns bool.
        """
        return True

    @staticmethod
    @abc.abstractmethod
    def backward(forward_node, context, given_gradients, required_gradients):
        """The reverse node of a node.

        forward_node: the node, a LibraryNode; context: BackwardContext.
        given_gradients: names of the output connectors whose gradients there will be.
        required_gradients: names of the input connectors for which gradients may be asked; those that the result leaves out
            are zero.
        Returns (node, BackwardResult): a detached node, one that was added to ``context.backward_state``, or an SDFG whose
        arrays that are not transient are the connectors.  Connectors besides the gradients are named as connectors of the
        forward node, and are given their values.
        """

    @staticmethod
    def register(cls, op=None, node_type=None, name=None):
        """Adds an implementation.

        cls: a subclass; op: an ONNX operator's name, as "Conv"; node_type: a class of library nodes instead; name: its own.
        One that was registered before for the same under the same name is replaced.
        Raises TypeError if the class is no BackwardImplementation or has no ``backward``, or node_type is no class of
        library nodes; ValueError_ without a name, or without exactly one of op and node_type.
        """
        from ..sdfg.nodes import LibraryNode
        if not (isinstance(cls, type) and issubclass(cls, BackwardImplementation)):
            raise TypeError(f"{cls!r} is no subclass of BackwardImplementation")
        if cls.__abstractmethods__:
            raise TypeError(f"{cls.__name__} has no method {sorted(cls.__abstractmethods__)[0]!r}")
        if not isinstance(name, str) or not name:
            raise _core.ValueError_(f"{cls.__name__} is registered by name=, a text; got {name!r}")
        if (op is None) == (node_type is None):
            raise _core.ValueError_(f"{cls.__name__} is registered for an operator, op=, or for a class of nodes, node_type=")
        if node_type is not None and not (isinstance(node_type, type) and issubclass(node_type, LibraryNode)):
            raise TypeError(f"{cls.__name__}: gradients are stated for library nodes, not for {node_type!r}; the others are derived")
        BackwardImplementation._registered[:] = [r for r in BackwardImplementation._registered if r[:3] != (op, node_type, name)]
        BackwardImplementation._registered.append((op, node_type, name, cls))
        return cls

    @staticmethod
    def unregister(cls):
        """Forgets an implementation, wherever it was registered."""
        BackwardImplementation._registered[:] = [r for r in BackwardImplementation._registered if r[3] is not cls]
        return cls


def implementations_for(op, cls):
    """{name: implementation} for an operator's name and its nodes' class, in the order of registration."""
    return {name: made for other, node_type, name, made in BackwardImplementation._registered
            if other == op or (node_type is not None and issubclass(cls, node_type))}


def any_registered():
    return bool(BackwardImplementation._registered)
