"""SDFGs as DaCe's users know them: handles on core graphs, which hold no copy.

>>> import dcml as dace
>>> sdfg = dace.SDFG("double")
>>> sdfg.add_array("A", (4,), dace.float32)
('A', A: Array(float32[4]))
"""
from . import data, edges, memlet, nodes, state, subset, symbolic, utils
from .data import Array, Data, Scalar
from .edges import Edge, InterstateEdge
from .graph import SDFG
from .memlet import Memlet
from .nodes import Node
from .state import SDFGState
from .subset import Range
from .symbolic import symbol

State, MultiConnectorEdge = SDFGState, Edge

__all__ = ["Array", "Data", "Edge", "InterstateEdge", "Memlet", "MultiConnectorEdge", "Node", "Range", "SDFG", "SDFGState",
           "Scalar", "State", "data", "edges", "memlet", "nodes", "state", "subset", "symbol", "symbolic", "utils"]
