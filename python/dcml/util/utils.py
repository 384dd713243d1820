"""Optimisation of a graph by hand, as in the manual's tuning example."""


def auto_optimize(sdfg, cuda=False, simplify=False, *, apply_strict=False):
    """Expands operators and fuses the result, as the compiler does by itself later.

    sdfg: SDFG, changed in place.
    cuda: accepted for source compatibility; the same passes serve both devices.
    simplify, apply_strict: first remove what has no effect.
    """
    if simplify or apply_strict:
        sdfg.simplify()
    expand_onnx_nodes(sdfg)
    sdfg.graph.run_pass("loops")
    sdfg.graph.run_pass("fuse")


def expand_onnx_nodes(sdfg):
    """Replaces the operators of an SDFG by the maps that define them."""
    sdfg.expand_library_nodes()
