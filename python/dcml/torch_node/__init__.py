"""The autograd node in C++: its source, and how it is compiled for one torch.

setup.py builds it as ``dcml._torch_node`` for the torch that it finds; ``dcml.pytorch.call.node`` has it built
into the cache of kernels for any other.
Must not import torch: neither setup.py nor the process that compiles has need of it.
"""
