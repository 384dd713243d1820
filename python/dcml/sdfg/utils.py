"""What DaCe's users find in ``dace.sdfg.utils``.

The one idea: small functions on nodes that need no SDFG.
Must not know: transformations, which read what is made here.
"""


def node_path_graph(*pattern):
    """The pattern of nodes each of which has an edge to the next."""
    return list(pattern)


__all__ = ["node_path_graph"]
