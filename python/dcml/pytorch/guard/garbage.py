"""No search for garbage while a module is traced, or while what traces it is loaded.

The one idea: what such a search runs, finalisers and callbacks of gc, may be anybody's code, and would count as what forward does;
and modules that are loaded stay, so that nobody has to find it out.
Must not know: modules of torch or captures.
"""
import contextlib
import gc


@contextlib.contextmanager
def uncollected():
    """No search in any thread, unless one is asked for; afterwards it is as before."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextlib.contextmanager
def loading():
    """What is made meanwhile belongs to the oldest generation at once, where searches seldom look."""
    if not gc.isenabled():
        yield
        return
    gc.collect(1)  # of what was young before, only what is in use grows old
    with uncollected():
        yield
        if not gc.get_freeze_count():  # else the caller has frozen objects, which this would thaw
            gc.freeze()
            gc.unfreeze()
