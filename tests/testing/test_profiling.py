"""Time measurement."""
import pytest

from dcml.testing.profiling import print_time_statistics, time_funcs


def test_functions_run_in_turns():
    order = []
    times = time_funcs([lambda: order.append("a"), lambda: order.append("b")], ["a", "b"], warmups=2, num_iters=3)
    assert order == ["a"] * 2 + ["b"] * 2 + ["a", "b"] * 3
    assert [len(t) for t in times] == [3, 3] and all(t >= 0 for row in times for t in row)


def test_table_has_a_line_for_each_function(capsys):
    print_time_statistics([[1.0, 2.0, 6.0], [4.0]], ["dcml", "torch"])
    assert capsys.readouterr().out.splitlines() == [
        "Name\tMin\tMean\tMedian\tStdev\tMax", "dcml\t1.0000\t3.0000\t2.0000\t2.6458\t6.0000",
        "torch\t4.0000\t4.0000\t4.0000\t0.0000\t4.0000"]


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="1 functions but 2 names"):
        time_funcs([print], ["a", "b"])
    with pytest.raises(ValueError, match="positive"):
        time_funcs([print], ["a"], num_iters=0)
