"""What lowering walks: a graph without changes in place, and what its placeholders and results are.

Must not know: rows of operators, or how a module was traced.
"""
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch


class Kind(Enum):
    """Of a placeholder or a result, under torch.export's names."""
    PARAMETER = "parameter"
    BUFFER = "buffer"
    CONSTANT_TENSOR = "constant"
    USER_INPUT = "input"
    USER_OUTPUT = "output"
    PARAMETER_MUTATION = "new parameter"
    BUFFER_MUTATION = "new buffer"
    USER_INPUT_MUTATION = "new input"


@dataclass
class Spec:
    """kind: a Kind, or torch.export's own of the same names; target: the name of what is meant, outside the graph."""
    kind: Any
    target: str | None


@dataclass
class Region:
    """A graph of its own: the program's, or a branch of control flow in it.  inner: {name: Region} of its branches."""
    graph: torch.fx.Graph
    inner: dict = field(default_factory=dict)


@dataclass
class Program:
    """A traced module.

    region: its graph; all nodes are placeholders, calls, branches (get_attr) and one output.
    inputs, outputs: a Spec for each placeholder and each result.
    user_inputs: names of placeholders, or values of leaves that are none, by leaf of the arguments.
    constants: {name: tensor} of tensors that no module of the tree has as a parameter or buffer.
    literals: names of those that forward, or a decomposition, makes itself.
    tensors: {name: tensor} of parameters and buffers.
    ranges: {symbol: the range of its values}.
    worlds: of stand-ins, which the values of nodes are; None where they are fake tensors of torch.
    """
    region: Region
    inputs: list
    outputs: list
    user_inputs: list
    constants: dict
    literals: set
    tensors: dict
    ranges: dict
    worlds: Any = None

    @property
    def graph(self):
        return self.region.graph
