"""Work in a process of its own, so that a crash is a result and not the end.

The one idea: the child sends what it finds as it goes; whatever ends it, the parent knows what it did last.
Must not know: what the work is.
"""
import os
import pickle
import signal
import sys
import threading
import traceback

from .problems import BadInput


class Crashed(Exception):
    """The child ended by a signal; the text names it."""


def run(work, receive):
    """Calls work(send) in a child; each sent value comes to receive(value).  Raises Crashed, or BadInput for what work
    raised of our errors."""
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _become_child(work, writer)
    os.close(writer)
    try:
        with os.fdopen(reader, "rb") as stream:
            failure = _listen(stream, receive)
    finally:
        _, status = os.waitpid(child, 0)
    if failure:
        raise BadInput(failure)
    code = os.waitstatus_to_exitcode(status)
    if code:
        raise Crashed(signal.Signals(-code).name if code < 0 else f"exit code {code}")


def _become_child(work, writer):
    """Never returns.  A new thread gets OpenMP threads of its own: the parent's did not come along."""
    try:
        thread = threading.Thread(target=_child, args=(work, writer))
        thread.start()
        thread.join()
    finally:  # an interruption, too
        os._exit(1)


def _listen(stream, receive):
    while True:
        try:
            kind, value = pickle.load(stream)
        except (EOFError, pickle.UnpicklingError):
            return None
        if kind == "error":
            return value
        receive(value)


def _child(work, writer):
    """Never returns."""
    from .. import _core
    code = 1
    try:
        with os.fdopen(writer, "wb") as stream:
            def put(message):
                pickle.dump(message, stream)
                stream.flush()
            try:
                work(lambda value: put(("value", value)))
            except (BadInput, _core.Error, MemoryError) as error:
                put(("error", str(error) or type(error).__name__))
        code = 0
    except (KeyboardInterrupt, BrokenPipeError):
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
