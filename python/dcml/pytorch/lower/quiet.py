"""Keeps torch.export from telling what it will also raise, in this thread; what others log, warn of and print is theirs."""
import contextlib
import logging
import re
import sys
import threading
import warnings

_LOGGERS = ("torch.__trace", "torch.fx.experimental.symbolic_shapes", "torch._export", "torch._subclasses.fake_tensor",
            "torch._dynamo")
_WARNINGS = ((FutureWarning, ""),  # of torch about its own use of its own functions
             (Warning, "The tensor attribute.*assigned during export"),  # nn.RNN's list of its weights
             (Warning, "A model attribute .* requires gradient"))  # see Capture.outside


class _InThread:
    """Stands where a filter of warnings has a pattern: matches in this thread, as long as it lasts."""

    def __init__(self, pattern):
        self._match, self._thread, self.lasts = re.compile(pattern, re.IGNORECASE).match, threading.get_ident(), True

    def match(self, text):
        return self.lasts and threading.get_ident() == self._thread and self._match(text)


@contextlib.contextmanager
def quiet():
    """torch.export logs, warns of and prints little that is not raised too."""
    thread, trace = threading.get_ident(), sys.modules.get("torch.export._trace")
    if trace is None:  # nothing of torch's that tells runs before it is there
        yield
        return

    def of_others(record):
        return record.thread != thread or record.levelno >= logging.CRITICAL

    def print_of_others(*args, **kwargs):
        if threading.get_ident() != thread:  # else it is what it had traced before an error
            print(*args, **kwargs)
    loggers = [logging.getLogger(name) for name in [*logging.root.manager.loggerDict] if name.startswith(_LOGGERS)]
    ignored = [("ignore", _InThread(pattern), kind, None, 0) for kind, pattern in _WARNINGS]
    for logger in loggers:
        logger.addFilter(of_others)
    warnings.filters[:0] = ignored
    trace.print = print_of_others
    try:
        yield
    finally:
        vars(trace).pop("print", None)
        for one in ignored:
            one[1].lasts = False  # in copies of the list too, which another thread may have made
            if one in warnings.filters:
                warnings.filters.remove(one)
        for logger in loggers:
            logger.removeFilter(of_others)
