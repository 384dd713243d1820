"""What callers pass in: whatever goes wrong while an argument is looked at is an error that names the argument.

The one idea: numpy, torch and an argument's own methods may raise anything; a caller catches ``dcml.Error``, and finds
what was raised as its cause.  What ends the process (KeyboardInterrupt, SystemExit) is no error and passes.
Must not know: what becomes of an argument.
"""
from . import _core


def read(what, value, how):
    """how(value); raises DTypeError, ValueError_ or Error (for want of memory) that begins with ``what``."""
    try:
        return how(value)
    except Exception as error:
        raise blamed(what, error, value) from (None if isinstance(error, _core.Error) else error)


def blamed(what, error, value, expected="an array"):
    """The error to raise in place of another one: of the same class if it is one of ours, else of the nearest."""
    if isinstance(error, _core.Error):
        return type(error)(f"{what}: {error}")
    kind = _core.DTypeError if isinstance(error, (TypeError, ValueError)) else _core.ValueError_
    kind = _core.Error if isinstance(error, MemoryError) else kind
    return kind(f"{what}: expected {expected}, got {type(value).__name__}: {type(error).__name__}: {_text(error)}")


def _text(error):
    try:
        return str(error)
    except Exception:  # its own __str__
        return "(without a text)"
