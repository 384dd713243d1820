"""The expansions of operators on images, under the manual's names.

Must not know: what rows say.
"""
from .pure_implementations import expansion

PureBatchNormalization = expansion("PureBatchNormalization", "BatchNormalization")
PureConv2D = expansion("PureConv2D", "Conv", 4)
PureMaxPool2D = expansion("PureMaxPool2D", "MaxPool", 4)

__all__ = ["PureBatchNormalization", "PureConv2D", "PureMaxPool2D"]
