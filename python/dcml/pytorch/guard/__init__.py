"""What a capture has built in besides tensors, and whether it still holds: Python's state, autograd's, extents."""
