"""ImageDecoder, where Pillow is installed.

Source: ONNX ImageDecoder.
"""
import io

import numpy as np

from ... import _core
from . import values as v

_MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}


def image_decoder(node, data):
    """The bytes of an image file as [height, width, channels] of uint8."""
    try:
        from PIL import Image
    except ImportError:
        raise _core.UnsupportedOpError("ImageDecoder needs the package Pillow, which is not installed") from None
    layout = node.get("pixel_format", "RGB")
    if layout not in _MODES:
        raise _core.ModelError(f"pixel_format {layout!r} is none of {', '.join(_MODES)}")
    try:
        image = Image.open(io.BytesIO(v.as_numpy(data).tobytes()))
        pixels = np.array(image.convert(_MODES[layout]))
    except (OSError, Image.DecompressionBombError) as error:
        raise _core.ValueError_(f"not an image that Pillow decodes: {error}") from None
    if layout == "Grayscale":
        pixels = pixels[:, :, None]
    return [np.ascontiguousarray(pixels[:, :, ::-1] if layout == "BGR" else pixels)]
