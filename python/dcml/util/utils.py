"""Optimisation of a graph by hand, as in the manual's tuning example."""


def auto_optimize(sdfg, cuda=False, simplify=False, *, apply_strict=False):
    """Expands operators and removes what has no effect; fusing is left to transformations, or to the compiler later.

    sdfg: SDFG, changed in place.
    cuda: put all arrays on the GPU, where the program then runs.
    simplify, apply_strict: remove what has no effect before and after.
    """
    if simplify or apply_strict:
        sdfg.simplify()
    expand_onnx_nodes(sdfg)
    if simplify or apply_strict:
        sdfg.simplify()
    if cuda:
        sdfg.apply_gpu_transformations(simplify=False)


def expand_onnx_nodes(sdfg):
    """Replaces the operators of an SDFG by the maps that define them."""
    sdfg.expand_library_nodes()
