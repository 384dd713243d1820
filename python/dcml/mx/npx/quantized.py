"""Operators on numbers of eight bits whose results differ in number.

The one idea: a row gives all results; these functions hand out those that the attributes ask for.
Must not know: how rows compute.
"""
from ..array import invoke
from .rows import DOMAIN, signature_of, write_out

__all__ = ["quantized_elemwise_mul"]


def quantized_elemwise_mul(*args, out=None, **kwargs):
    """The product of two arrays of int8, with its range: [int32, min, max], each range of shape (1,).

    Arguments: lhs, rhs, lhs_min, lhs_max, rhs_min, rhs_max; with min_calib_range and max_calib_range the product is int8
    in that range; with enable_float_output it is one array of float32.
    Raises TypeError for arguments that do not fit, dcml.ShapeError for shapes that cannot be broadcast.
    Source: MXNet's npx.quantized_elemwise_mul."""
    inputs, attributes = signature_of("quantized_elemwise_mul_", "quantized_elemwise_mul").bind(args, kwargs)
    made = invoke("quantized_elemwise_mul_", DOMAIN, 1, inputs, attributes)
    made = made[0] if attributes.get("enable_float_output") else made
    return made if out is None else write_out("quantized_elemwise_mul", made, out)
