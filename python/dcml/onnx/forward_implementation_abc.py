"""What an implementation of an ONNX operator in Python must offer.

Must not know: how implementations are registered or chosen.
"""
import abc


class ONNXForward(abc.ABC):
    """Base of implementations; register them with ``dcml.onnx.op_implementations.op_implementation``."""

    @staticmethod
    def forward_can_be_applied(node, state, sdfg):
        """May forward be called for this node?  If not, the node falls back to the default.

        node: ONNXOp, validated; state, sdfg: the SDFGState and SDFG that hold it.
        Returns bool.
        """
        return True

    @staticmethod
    @abc.abstractmethod
    def forward(node, state, sdfg):
        """What the node becomes.

        node: ONNXOp, validated; state, sdfg: the SDFGState and SDFG that hold it, which stay as they are.
        Returns an SDFG whose arrays that are not transient are named as the node's connectors, or another node with
        the same connectors.
        """


__all__ = ["ONNXForward"]
