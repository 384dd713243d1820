"""The fake's streams: order, events, graphs, late work, and failures on demand."""
import ctypes

import numpy as np
import pytest
from simulated import Failed, Gpu

TEXT = r"""
extern "C" __global__ void twice(float *a) { a[threadIdx.x] *= 2; }
extern "C" __global__ void more(float *a, float by) { a[threadIdx.x] += by; }
"""
N = 32


@pytest.fixture
def card(fake):
    with Gpu(fake) as device:
        device.kernel = device.module(TEXT)
        yield device


def _event(card):
    event = ctypes.c_void_p()
    card.call("cuEventCreate", ctypes.byref(event), 0)
    return event


def _more(card, memory, by, stream=None):
    card.launch(card.kernel("more"), 1, N, memory, ctypes.c_float(by), stream=stream)


def _pinned(card):
    address = ctypes.c_void_p()
    card.call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(4 * N), 2)
    return address, np.ctypeslib.as_array((ctypes.c_float * N).from_address(address.value))


@pytest.mark.parametrize("seed", range(4))
def test_a_stream_keeps_its_order(card, seed):
    card.fake.set(LAZY=1, SEED=seed)
    memory, stream = card.put(np.ones(N, np.float32)), card.stream()
    _more(card, memory, 1, stream)
    card.launch(card.kernel("twice"), 1, N, memory, stream=stream)
    _more(card, memory, 3, stream)
    card.call("cuStreamSynchronize", stream)
    assert (card.get(memory, N, np.float32) == 7).all()


def test_what_no_event_orders_comes_in_either_order(card):
    card.fake.set(LAZY=1)
    found = set()
    for seed in range(8):
        card.fake.set(SEED=seed)
        memory, a, b = card.put(np.ones(N, np.float32)), card.stream(), card.stream()
        card.launch(card.kernel("twice"), 1, N, memory, stream=a)
        _more(card, memory, 1, b)
        card.call("cuCtxSynchronize")
        found.add(float(card.get(memory, N, np.float32)[0]))
    assert found == {3, 4}


@pytest.mark.parametrize("seed", range(4))
def test_an_event_orders_two_streams(card, seed):
    card.fake.set(LAZY=1, SEED=seed)
    memory, a, b, event = card.put(np.ones(N, np.float32)), card.stream(), card.stream(), _event(card)
    card.launch(card.kernel("twice"), 1, N, memory, stream=a)
    card.call("cuEventRecord", event, a)
    card.call("cuStreamWaitEvent", b, event, 0)
    _more(card, memory, 1, b)
    card.call("cuStreamSynchronize", b)
    assert (card.get(memory, N, np.float32) == 3).all()


def test_pinned_memory_is_read_when_the_copy_runs_and_pageable_memory_when_it_is_asked_for(card):
    card.fake.set(LAZY=1)
    stream, (address, pinned), pageable = card.stream(), _pinned(card), np.ones(N, np.float32)
    a, b = card.take(4 * N), card.take(4 * N)
    pinned[:] = 1
    card.call("cuMemcpyHtoDAsync_v2", a, address, ctypes.c_size_t(4 * N), stream)
    card.call("cuMemcpyHtoDAsync_v2", b, ctypes.c_void_p(pageable.ctypes.data), ctypes.c_size_t(4 * N), stream)
    pinned[:], pageable[:] = 2, 2
    card.call("cuStreamSynchronize", stream)
    assert (card.get(a, N, np.float32) == 2).all() and (card.get(b, N, np.float32) == 1).all()
    card.call("cuMemFreeHost", address)


@pytest.mark.parametrize("waits", [False, True])
def test_memory_of_a_stream_is_there_for_another_only_after_an_event(card, waits):
    card.fake.set(LAZY=1, SEED=0)
    a, b, event = card.stream(), card.stream(), _event(card)
    memory = card.take(4 * N, a, pooled=True)
    card.call("cuEventRecord", event, a)
    if waits:
        card.call("cuStreamWaitEvent", b, event, 0)
    _more(card, memory, 1, b)
    card.call("cuMemFreeAsync", memory, b)
    if waits:
        return card.call("cuCtxSynchronize")
    with pytest.raises(Failed):
        for _ in range(4):  # the seed says which of the two runs first
            card.call("cuStreamSynchronize", b)
            memory = card.take(4 * N, a, pooled=True)
            _more(card, memory, 1, b)


def test_the_default_stream_waits_for_the_others_that_block(card):
    card.fake.set(LAZY=1)
    blocking = ctypes.c_void_p()
    card.call("cuStreamCreate", ctypes.byref(blocking), 0)
    memory = card.put(np.ones(N, np.float32))
    _more(card, memory, 1, blocking)
    card.launch(card.kernel("twice"), 1, N, memory)
    _more(card, memory, 1, blocking)
    card.call("cuStreamSynchronize", blocking)
    assert (card.get(memory, N, np.float32) == 5).all()


def test_a_graph_replays_what_was_captured_and_can_be_updated(card):
    memory, stream = card.put(np.ones(N, np.float32)), card.stream()

    def capture(by):
        graph = ctypes.c_void_p()
        card.call("cuStreamBeginCapture_v2", stream, 2)
        card.launch(card.kernel("twice"), 1, N, memory, stream=stream)
        _more(card, memory, by, stream)
        card.call("cuStreamEndCapture", stream, ctypes.byref(graph))
        return graph

    graph, made, info = capture(1), ctypes.c_void_p(), (ctypes.c_void_p * 3)()
    assert (card.get(memory, N, np.float32) == 1).all()
    card.call("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, ctypes.c_uint64(0))
    for _ in range(2):
        card.call("cuGraphLaunch", made, stream)
    assert (card.get(memory, N, np.float32) == 7).all()
    card.call("cuGraphExecUpdate_v2", made, capture(-7), info)
    card.call("cuGraphLaunch", made, stream)
    assert (card.get(memory, N, np.float32) == 7).all()
    card.call("cuStreamBeginCapture_v2", stream, 2)
    _more(card, memory, 1, stream)
    other = ctypes.c_void_p()
    card.call("cuStreamEndCapture", stream, ctypes.byref(other))
    with pytest.raises(Failed) as error:
        card.call("cuGraphExecUpdate_v2", made, other, info)
    assert error.value.code == 910


def test_waiting_breaks_a_capture(card):
    stream, graph = card.stream(), ctypes.c_void_p()
    card.call("cuStreamBeginCapture_v2", stream, 0)
    with pytest.raises(Failed) as error:
        card.call("cuCtxSynchronize")
    assert error.value.code == 900
    with pytest.raises(Failed) as error:
        card.call("cuStreamEndCapture", stream, ctypes.byref(graph))
    assert error.value.code == 901


def test_events_tell_time(card):
    begin, end, out = _event(card), _event(card), ctypes.c_float()
    card.call("cuEventRecord", begin, None)
    _more(card, card.put(np.ones(N, np.float32)), 1)
    card.call("cuEventRecord", end, None)
    card.call("cuEventSynchronize", end)
    card.call("cuEventElapsedTime", ctypes.byref(out), begin, end)
    assert out.value > 0


def test_calls_fail_when_told_to_and_only_then(card):
    card.fake.set(FAIL="cuMemAlloc_v2:2,cuLaunchKernel:*:716")
    card.take(4)
    with pytest.raises(Failed) as error:
        card.take(4)
    assert error.value.code == 2
    memory = card.take(4 * N)
    for _ in range(2):
        with pytest.raises(Failed) as error:
            _more(card, memory, 1)
        assert error.value.code == 716


def test_memory_ends(card):
    card.fake.set(MEMORY=10000)
    card.take(6000)
    with pytest.raises(Failed) as error:
        card.take(6000)
    assert error.value.code == 2


def test_without_devices_or_a_context_nothing_goes(fake):
    fake.set(DEVICES=0)
    assert fake.library.cuInit(0) == 100
    fake.unset("DEVICES")
    assert fake.library.cuInit(0) == 0 and fake.library.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(4)) == 201


def test_handles_that_were_destroyed_are_known(card):
    stream, event = card.stream(), _event(card)
    card.call("cuStreamDestroy_v2", stream)
    card.call("cuEventDestroy_v2", event)
    for call in (("cuStreamSynchronize", stream), ("cuEventRecord", event, None), ("cuEventDestroy_v2", event)):
        with pytest.raises(Failed) as error:
            card.call(*call)
        assert error.value.code == 400


def test_what_is_alive_is_counted_and_calls_are_logged(card):
    before = card.fake.alive()
    with card.fake.logged() as calls:
        memory, stream = card.take(100, pooled=True), card.stream()
    after = card.fake.alive()
    assert (after.allocations - before.allocations, after.bytes - before.bytes, after.streams - before.streams) == (1, 100, 1)
    assert [name for name, *_ in calls] == ["cuMemAllocAsync", "cuStreamCreate"] and calls[0][1]["bytes"] == "100"
    card.call("cuMemFreeAsync", memory, None)
    card.call("cuStreamDestroy_v2", stream)
    assert card.fake.alive() == before
