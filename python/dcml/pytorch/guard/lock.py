"""One thread traces at a time, and nobody gives tensors to a module meanwhile.

The one idea: torch.export patches classes of torch, and the module that it traces holds stand-ins for its tensors.
"""
import os
import threading

LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release)


def traced_elsewhere():
    """Is another thread capturing?  torch.compiler.is_compiling() is then true in this thread too."""
    if LOCK.acquire(blocking=False):
        LOCK.release()
        return False
    return True
