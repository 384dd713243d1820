"""What the tests of the command share."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MISH = str(ROOT / "tests" / "ir" / "fuse" / "mish.txt")


def in_a_process(*arguments, **options):
    """The finished process of `python -m dcml` with these arguments."""
    return subprocess.run([sys.executable, "-m", "dcml", *map(str, arguments)], capture_output=True, text=True, timeout=300,
                          **options)
