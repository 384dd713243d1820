"""Times of things that run in turns in one process, and answers of processes of their own."""
import json
import os
import statistics
import subprocess
import sys
import time

_HERE = os.path.dirname(os.path.abspath(__file__))


def medians(runs, n):
    """Of n times of each, in seconds, without the first tenth."""
    times = [[] for _ in runs]
    for _ in range(n):
        for run, found in zip(runs, times):
            begin = time.perf_counter()
            run()
            found.append(time.perf_counter() - begin)
    return [statistics.median(found[n // 10:]) for found in times]


def answer_of(program, *words, **environment):
    """What a Python program prints last, as JSON; None where it prints nothing.  It can import the benchmark's modules."""
    done = subprocess.run([sys.executable, "-c", program, *words], check=True, capture_output=True, text=True, cwd=_HERE,
                          env={**os.environ, **environment})
    return json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else None
