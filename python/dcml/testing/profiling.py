"""Time measurement: functions run in turns, so that a drift of the machine touches all of them alike."""
import statistics
import time


def time_funcs(funcs, func_names, warmups=10, num_iters=100):
    """Measures functions without arguments.

    funcs: list of callables.  func_names: their names, one each.
    warmups: calls of each that are not counted.  num_iters: calls of each that are.
    Returns a list of lists: milliseconds of each call, by function.
    Raises ValueError if there is not one name for each function, or num_iters is not positive.
    """
    if len(funcs) != len(func_names):
        raise ValueError(f"{len(funcs)} functions but {len(func_names)} names")
    if num_iters < 1:
        raise ValueError("num_iters must be positive")
    wait = _device_wait()
    for func in funcs:
        for _ in range(warmups):
            func()
    times = [[] for _ in funcs]
    for _ in range(num_iters):
        for func, measured in zip(funcs, times):
            wait()
            start = time.perf_counter()
            func()
            wait()
            measured.append((time.perf_counter() - start) * 1e3)
    return times


def print_time_statistics(times, func_names):
    """Prints minimum, mean, median, standard deviation and maximum in milliseconds, a line for each function."""
    print("Name\tMin\tMean\tMedian\tStdev\tMax")
    for name, row in zip(func_names, times):
        deviation = statistics.stdev(row) if len(row) > 1 else 0.0
        numbers = (min(row), statistics.mean(row), statistics.median(row), deviation, max(row))
        print("\t".join([name, *(f"{number:.4f}" for number in numbers)]))


def _device_wait():
    """Waits for the GPU if torch is loaded and uses one."""
    import sys
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        return torch.cuda.synchronize
    return lambda: None
