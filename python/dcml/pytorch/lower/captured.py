"""What lowering gives: a graph, and how a call of the module is one of the graph."""
from dataclasses import dataclass, field
from typing import Any

from ..guard.extents import Guard


@dataclass
class Capture:
    """A captured module.

    graph: inputs are the tensor leaves of (args, kwargs) in order, then ``seed`` if random numbers are drawn;
        params are parameters and buffers under their qualified names; outputs are user outputs, then new
        buffer values, then new values of inputs that the module changes in place.
    inputs: position among the leaves of (args, kwargs) of each graph input.
    params: (qualified name, is a buffer) of each graph param, tied weights once.
    outputs: one entry per leaf of the result: graph output index, or what has a method ``of``: Fixed, Passed, ...
    mutated: (graph output index, qualified name) of each buffer or parameter that a call changes.
    changed_inputs: (graph output index, position among the leaves, the history it gets: that of the graph output
        (True), none (False), the one it had (None)) of inputs changed in place.
    transients: (value name, graph output index) of intermediate values, if they were asked for.
    checks: (graph output index, message, name of the error, see call.errors) of conditions that must be true after each call.
    reads: names of attributes of modules that were read; other values of them may mean another graph.
    ties: pairs of qualified names of one parameter, which is one only as long as both name the same tensor.
    refused_dynamic: the module did not allow symbolic extents.
    asks: forward asked which inputs require a gradient, or whether gradients are on, or what known_of tells else.
    asks_attributes: forward asked for attributes that users set on arguments.
    code: the functions that ran, with what they may have read of Python.
    tape: names of graph inputs and params on whose tape each graph output lies; None: of all.
    flagged: (position among the leaves, flag) of inputs on which forward calls requires_grad_().
    freed: (extents, type, device) of leaves that a call adds to those of (args, kwargs): results on which forward calls
        requires_grad_(), by an input that only their gradients reach.
    own: names of parameters and buffers that a call adds to its leaves behind these: results are they themselves, or views of them.
    named: tensors on which forward sets attributes, see trace.entry.Result; None: there are none.
    sets: attributes that are set to the last ``outputs``, see trace.entry.Result.
    altered: what forward makes of containers that stay, see trace.entry.Result; these leaves stand before those of ``sets``.
    orders: {graph output index: order in which its axes are to lie in memory} where that is not their own.
    counted: extents in the graph depend on values.
    redone: the first call changed what later ones read of Python.
    devices: by leaf of the result, the device of a tensor that the graph computes; None for other leaves.
    decided: what Python decides by values of tensors, in order, bools and ints; the checks of kind Decided have these values.
    outside: tensors by the names of graph params that no module of the tree has, such as those of globals.
    places: (name, what holds a container, key, which leaf) of those of ``outside`` that lie in containers which forward sets or changes.
    """
    graph: Any
    out_spec: Any
    inputs: list
    params: list
    outputs: list
    mutated: list
    changed_inputs: list
    seed: bool
    guard: Guard
    transients: list = field(default_factory=list)
    checks: list = field(default_factory=list)
    reads: set = field(default_factory=set)
    ties: list = field(default_factory=list)
    refused_dynamic: bool = False
    asks: bool = False
    asks_attributes: bool = False
    code: Any = None
    tape: list = None
    outside: dict = field(default_factory=dict)
    places: list = field(default_factory=list)
    flagged: list = field(default_factory=list)
    freed: list = field(default_factory=list)
    own: list = field(default_factory=list)
    named: Any = None
    sets: tuple = ()
    altered: list = field(default_factory=list)
    orders: dict = field(default_factory=dict)
    counted: bool = False
    devices: list = field(default_factory=list)
    redone: bool = False
    decided: tuple = ()
