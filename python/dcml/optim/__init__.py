"""Optimisers of torch whose step is one compiled call: dcml.optim.Adam is a torch.optim.Adam, AdamW and SGD likewise."""
from .optimizers import SGD, Adam, AdamW

__all__ = ["SGD", "Adam", "AdamW"]
