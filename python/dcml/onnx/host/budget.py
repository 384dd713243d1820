"""How much a host program may make of what its caller holds.

The one idea is the core's (csrc/backends/work.c): bytes that were passed in justify others, attributes and shapes do
not.  A loop may double its value in each iteration, and each is small beside the next: so what a program makes is
compared with what the program was given, not with what an operator reads.
Must not know: operators.
"""
import os

from ... import _core

FREE = 1 << 28      # bytes that nobody need justify: a quarter of the core's, for old and new values are there at once
_PER_BYTE = 1 << 14
PIECE = 1 << 10     # what an object that Python makes or looks at counts, for its time more than for its room
STEPS = 1 << 31     # iterations of a loop that nothing ends but its trip count


def allowance():
    """The factor that the user allows more; see docs/limits.md."""
    try:
        factor = float(os.environ.get("DCML_ALLOW", "1"))
    except ValueError:
        return 1.0
    return factor if factor > 0 else 1.0


def bytes_of(value):
    """Bytes of an array, a tensor or a sequence; of strings those of their places."""
    if isinstance(value, (list, tuple)):
        return sum(map(bytes_of, value)) + PIECE * len(value)
    return getattr(value, "nbytes", 0)


class Budget:
    """Of one call of a program; its bodies share it.  Looks at what was given only where something large is asked for."""

    def __init__(self, program, given):
        self._program, self._given = program, given

    def check(self, wanted):
        """Raises dcml.Error where so many bytes are more than what was given justifies."""
        if wanted > FREE:
            self._judge(wanted)

    def _judge(self, wanted):
        held = sum(map(bytes_of, self._given)) + self._program.constant_bytes()
        most = max(FREE, _PER_BYTE * held) * allowance()
        if wanted > most:
            raise _core.Error(f"it asks for {wanted} bytes, but {held} bytes of inputs and weights justify no more than "
                              f"{most:.0f}; DCML_ALLOW=<factor> allows more")


def check_trips(trips):
    """Raises dcml.Error where a loop that only its trip count ends runs for too long; None is for ever."""
    if trips is None or trips >= STEPS * allowance():
        raise _core.Error(f"its body cannot end it, and it asks for {trips or 'endlessly many'} iterations; no more than "
                          f"{STEPS} make sense; DCML_ALLOW=<factor> allows more")
