"""The tape: scopes, leaves, heads, segments, and what stays of them."""
import gc
import threading
import weakref

import numpy as onp
import pytest

import dcml
from dcml.mx import autograd, np, npx, tape


def leaf(values, req="write"):
    x = np.array(values, dtype="float64")
    x.attach_grad(req)
    return x


def test_scopes_set_and_restore_the_flags_of_the_thread():
    def flags():
        return autograd.is_recording(), autograd.is_training()
    assert flags() == (False, False)
    with autograd.record():
        assert flags() == (True, True)
        with autograd.pause():
            assert flags() == (False, False)
            with autograd.train_mode():
                assert flags() == (False, True)
        with autograd.predict_mode():
            assert flags() == (True, False)
        with autograd.pause(train_mode=True):
            assert flags() == (False, True)
        found = []
        thread = threading.Thread(target=lambda: found.append(flags()))
        thread.start()
        thread.join()
        assert found == [(False, False)]
    with autograd.record(train_mode=False):
        assert flags() == (True, False)
    with pytest.raises(KeyError), autograd.record():
        raise KeyError
    assert flags() == (False, False) and autograd.record()(flags)() == (True, True)
    assert autograd.set_recording(True) is False and autograd.set_recording(False) is True
    assert autograd.set_training(True) is False and autograd.set_training(False) is True


def test_a_gradient_is_written_added_or_not_there():
    for req, wanted in (("write", [2, 4]), ("add", [4, 8]), ("null", None)):
        x, y = leaf([1, 2], req), leaf([1, 1])
        for _ in range(2):
            with autograd.record():
                z = (x * x * y).sum()
            z.backward()
        assert (x.grad if wanted is None else x.grad.tolist()) == wanted
    x = leaf([1])
    assert x.grad.tolist() == [0] and x.grad.dtype == np.float64
    held = x.grad
    with autograd.record():
        (x * 3).backward()
    assert held.tolist() == [3] and held is x.grad
    with pytest.raises(dcml.ValueError_, match="grad_req"):
        x.attach_grad("sometimes")


def test_heads_have_gradients_and_ones_without():
    x = leaf([1, 2])
    with autograd.record():
        y = x * x
    y.backward()
    assert x.grad.tolist() == [2, 4]
    with autograd.record():
        y = x * x
    y.backward(np.array([10., 1]))
    assert x.grad.tolist() == [20, 4]
    with autograd.record():
        y, z = x * x, x * 3
    autograd.backward([y, z], [np.ones(2), None])
    assert x.grad.tolist() == [5, 7]
    x.backward(np.array([8., 9]))
    assert x.grad.tolist() == [8, 9]


def test_values_may_be_read_while_recording():
    x = leaf([1, 2])
    with autograd.record():
        y = x * x
        assert y.tolist() == [1, 4]
        z = y * x if y.sum().item() > 4 else y
        assert z.tolist() == [1, 8]
        w = z.sum() + y.sum()
    w.backward()
    assert x.grad.tolist() == [3 + 2, 12 + 4]


def test_heads_of_one_recording_are_differentiated_one_by_one():
    x = leaf([1, 2], "add")
    with autograd.record():
        losses = [(x * k).sum() for k in (1, 2, 3)]
    for loss in losses:
        loss.backward()
    assert x.grad.tolist() == [6, 6]
    with pytest.raises(dcml.ValueError_, match="given up"):
        losses[0].backward()


def test_a_history_is_kept_if_asked():
    x = leaf([3], "add")
    with autograd.record():
        y = x * x
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [12]


def test_grad_returns_gradients_and_leaves_what_is_stored():
    x, w, u = leaf([1, 2]), leaf([3, 4]), leaf([0])
    with autograd.record():
        y = (x * w).sum()
    gx, gw, gu = autograd.grad(y, [x, w, u], head_grads=np.array(2.0), retain_graph=True)
    assert (gx.tolist(), gw.tolist(), gu.tolist()) == ([6, 8], [2, 4], [0]) and x.grad.tolist() == [0, 0]
    assert autograd.grad(y, x).tolist() == [3, 4]
    with pytest.raises(dcml.ValueError_, match="attach_grad"):
        autograd.grad(y, np.ones(2))


def test_detached_paused_and_stopped_values_are_constants():
    x = leaf([2])
    with autograd.record():
        y = x * x
        with autograd.pause():
            p = y * 1
        z = y.detach() * x + npx.stop_gradient(y) * x + p * x
    z.backward()
    assert x.grad.tolist() == [12]
    with autograd.record():
        y = x * x
        y.attach_grad()
        z = y * 3
    z.backward()
    assert y.grad.tolist() == [3] and x.grad.tolist() == [12]


def test_what_was_recorded_keeps_what_it_read():
    x, w = leaf([1, 2]), np.array([1., 1], dtype="float64")
    view = w[:]
    with autograd.record():
        y = (x * w).sum()
    w[:] = 100
    w *= 2
    assert y.item() == 3 and view.tolist() == [200, 200]
    y.backward()
    assert x.grad.tolist() == [1, 1]
    with autograd.record():
        y = (x * x).sum()
    x[:] = 50
    y.backward()
    assert x.grad.tolist() == [2, 4]


def test_in_place_operations_of_what_is_recorded():
    x = leaf([1, 2])
    with autograd.record():
        y = x * x
        y += x
        y *= 2
    y.backward()
    assert y.tolist() == [4, 12] and x.grad.tolist() == [6, 10]
    with autograd.record(), pytest.raises(dcml.ValueError_, match="in-place"):
        x += 1
    with autograd.record(), pytest.raises(dcml.ValueError_, match="recorded"):
        x[0] = 1


def test_gradients_reach_over_recordings():
    x = leaf([2])
    with autograd.record():
        y = x * x
    assert y.item() == 4
    with autograd.record():
        z = y * x
    z.backward()
    assert x.grad.tolist() == [12]


def test_an_unused_output_of_an_operator_has_no_say():
    x = leaf([[1, 2, 3, 4]])
    with autograd.record():
        a, b = npx.slice_channel(x, 2)
        b = b * 2
    a.backward()
    assert x.grad.tolist() == [[1, 1, 0, 0]]


def test_errors_leave_the_tape_usable():
    x = leaf([1, 2])
    with autograd.record():
        with pytest.raises(dcml.ShapeError, match="Add"):
            x + np.ones(3)
        y = x * 2
    y.backward()
    assert x.grad.tolist() == [2, 2]
    for call in (lambda: np.ones(2).backward(), lambda: y.backward(np.ones(3)), lambda: autograd.backward([y], [None, None])):
        with pytest.raises(dcml.Error):
            call()
    whole = np.array(onp.array([1]))
    whole.attach_grad()
    with pytest.raises(dcml.DTypeError, match="int64"):
        whole.backward()
    with pytest.raises(TypeError, match="heads"):
        autograd.backward([3])


def test_steps_of_one_structure_share_a_function_and_give_the_same_bits():
    x, w = np.array(onp.random.default_rng(0).standard_normal((8, 16))), leaf(onp.random.default_rng(1).standard_normal((4, 16)))

    def step():
        with autograd.record():
            loss = npx.log_softmax(npx.fully_connected(x, w, num_hidden=4)).mean()
        loss.backward()
        return loss.item(), w.grad.asnumpy().tobytes()
    step()
    before = len(tape._functions)
    assert len({step() for _ in range(4)}) == 1
    assert len(tape._functions) == before


def test_histories_go_with_their_heads():
    x = leaf(onp.ones(4))
    with autograd.record():
        y = (x * 2).sum()
    y.backward()
    segment = weakref.ref(y) if y._tape is None else None
    assert segment is not None
    state = np.zeros(4, dtype="float64")
    segments = []
    for _ in range(3):  # running arrays do not tie one step to the next
        with autograd.record():
            out = npx.batch_norm(x.reshape(2, 2), leaf([1, 1]), leaf([0, 0]), state[:2].copy(), state[2:].copy())
            segments.append(weakref.ref(out))
        out.backward()
        del out
    gc.collect()
    assert all(ref() is None for ref in segments)


def test_threads_record_by_themselves():
    results = {}

    def work(k):
        x = leaf([k])
        for _ in range(20):
            with autograd.record():
                y = x * x * k
            y.backward()
        results[k] = x.grad.item()
    threads = [threading.Thread(target=work, args=(k, )) for k in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == {k: 2 * k * k for k in range(1, 5)}


def test_waitall_runs_what_was_recorded():
    x = leaf([1])
    with autograd.record():
        y = x + 1
    assert y._data is None
    npx.waitall()
    assert y._data is not None


def test_what_nobody_waits_for_is_forgotten_and_long_recordings_run_in_parts(monkeypatch):
    x = leaf([1, 2])
    big = np.ones(3, dtype="float64")
    gone = weakref.ref(big)
    with autograd.record():
        (x[0] * big).sum()
        del big
        for _ in range(tape._CHECKED):
            x * 2
    gc.collect()
    assert gone() is None
    monkeypatch.setattr(tape, "_CHECKED", 8)
    monkeypatch.setattr(tape, "_MOST_NODES", 16)
    with autograd.record():
        y = x
        for _ in range(50):
            y = y * 1.0 + 1.0
    y.backward()
    assert y.tolist() == [51, 52] and x.grad.tolist() == [1, 1]


# -- gradients of gradients ---------------------------------------------------------------------------------
def test_gradients_are_recorded_to_any_order():
    x = leaf([0.5, -1, 2])
    with autograd.record():
        y = np.exp(x) * x
        for _ in range(3):
            y = autograd.grad(y, x, create_graph=True)
    wanted = onp.exp(x.asnumpy()) * (x.asnumpy() + 3)
    onp.testing.assert_allclose(y.asnumpy(), wanted)
    y.backward()
    onp.testing.assert_allclose(x.grad.asnumpy(), wanted + onp.exp(x.asnumpy()))


def test_a_gradient_meets_what_else_was_recorded():
    x, w, h = leaf([1, 2]), leaf([3, 5]), leaf([2, 7])
    with autograd.record():
        y, unread = x * x * w, w * 2
        gx, gw, gh = autograd.grad([y, unread], [x, w, h], head_grads=[h, None], create_graph=True)
        loss = (gx * gx + gw * x + unread).sum()  # gx = 2 x w h, gw = x x h + 2
    assert gx.tolist() == [12, 140] and gw.tolist() == [4, 30] and gh.tolist() == [0, 0]
    loss.backward()
    a, b, c = (v.asnumpy() for v in (x, w, h))
    for found, wanted in ((x.grad, 8 * a * b * b * c * c + 3 * a * a * c + 2), (w.grad, 8 * a * a * b * c * c + 2),
                          (h.grad, 8 * a * a * b * b * c + a ** 3)):
        onp.testing.assert_allclose(found.asnumpy(), wanted)
    assert [g.tolist() for g in (gx, gw)] == [[12, 140], [4, 30]]


def test_a_gradient_without_a_history_is_zero_behind():
    x = leaf([1, 2])
    with autograd.record():
        g = autograd.grad(x * 3, x, create_graph=True)
        z = (g * 2 + x).sum()
    z.backward()
    assert g.tolist() == [3, 3] and x.grad.tolist() == [1, 1]
    with autograd.record():
        g = autograd.grad(x * x, x, create_graph=False)
    with pytest.raises(dcml.ValueError_, match="was not computed by recorded"):
        g.backward()


_LAYERS = {
    "convolution": (lambda x, w: npx.convolution(x, w, kernel=(3, 3), num_filter=2, no_bias=True), (1, 2, 5, 4), (2, 2, 3, 3)),
    "fully_connected": (lambda x, w: npx.fully_connected(np.tanh(x), w, num_hidden=3, no_bias=True), (2, 4), (3, 4)),
    "layer_norm": (lambda x, w: npx.layer_norm(x, w, w * 2), (2, 5), (5, )),
    "batch_norm": (lambda x, w: npx.batch_norm(x, w, w, np.zeros(3), np.ones(3), fix_gamma=False), (4, 3), (3, )),
    "gelu": (lambda x, w: npx.leaky_relu(x * w, act_type="gelu"), (2, 3), (3, )),
    "softmax": (lambda x, w: npx.softmax(x * w), (2, 5), (5, )),
    "pooling": (lambda x, w: npx.pooling(x * x * w, kernel=(2, 2), stride=(2, 2), pool_type="avg"), (1, 2, 4, 4), (2, 1, 1)),
    "lstm": (lambda x, w: npx.rnn(x, w, np.zeros((1, 2, 3), "float64"), np.zeros((1, 2, 3), "float64"), state_size=3, num_layers=1,
                                  mode="lstm"), (2, 2, 2), (84, )),
}


@pytest.mark.parametrize("layer", _LAYERS)
def test_second_derivatives_are_those_of_central_differences(layer):
    """Of a penalty on the gradient by the data, by data and weights."""
    apply, *shapes = _LAYERS[layer]
    rng = onp.random.default_rng(0)
    values, seed = [rng.standard_normal(s) for s in shapes], None

    def penalty(arrays):
        nonlocal seed
        with autograd.record():
            y = apply(*arrays)
            seed = rng.standard_normal(y.shape) if seed is None else seed
            g = autograd.grad(y * y, arrays[0], head_grads=np.array(seed, dtype="float64"), create_graph=True)
            return (g * g).sum()
    arrays = [leaf(v) for v in values]
    penalty(arrays).backward()
    for k, v in enumerate(values):
        for at in rng.choice(v.size, min(v.size, 6), replace=False):
            ends = []
            for step in (1e-5, -1e-5):
                moved = [u.copy() for u in values]
                moved[k].flat[at] += step
                ends.append(penalty([leaf(u) for u in moved]).item())
            onp.testing.assert_allclose(arrays[k].grad.asnumpy().flat[at], (ends[0] - ends[1]) / 2e-5, rtol=2e-5, atol=1e-5)
