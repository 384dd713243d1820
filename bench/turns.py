"""Times of things that run in turns in one process."""
import statistics
import time


def medians(runs, n):
    """Of n times of each, in seconds, without the first tenth."""
    times = [[] for _ in runs]
    for _ in range(n):
        for run, found in zip(runs, times):
            begin = time.perf_counter()
            run()
            found.append(time.perf_counter() - begin)
    return [statistics.median(found[n // 10:]) for found in times]
