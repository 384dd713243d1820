"""No search for garbage while a module is traced.

The one idea: what such a search runs, finalisers and callbacks of gc, may be anybody's code, and would count as what forward does.
Must not know: modules or captures.
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


def grow_old():
    """What there is belongs to the oldest generation, where searches seldom look, and none has to find that it stays."""
    if not gc.get_freeze_count():  # else the caller has frozen objects, which this would thaw
        gc.freeze()
        gc.unfreeze()
