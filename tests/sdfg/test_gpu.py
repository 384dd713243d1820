"""SDFGs on the GPU: storage and schedule names, transformations, and what is said where there is no GPU."""
import copy

import numpy as np
import pytest

import dcml
import dcml as dace
from dcml.transformation import GPUTransformSDFG
from dcml.util.utils import auto_optimize

N = dace.symbol("N")
GPU = dace.ScheduleType.GPU_Device, dace.ScheduleType.GPU_ThreadBlock


def doubled(**options):
    """B = 2 * A, by a map."""
    sdfg = dace.SDFG("doubled")
    for name in "AB":
        sdfg.add_array(name, (N,), dace.float32, storage=options.get("storage", dace.StorageType.Default))
    state = sdfg.add_state("main")
    state.add_mapped_tasklet("double", {"i": "0:N"}, {"a": dace.Memlet("A[i]")}, "b = 2 * a", {"b": dace.Memlet("B[i]")}, external_edges=True,
                             schedule=options.get("schedule", dace.ScheduleType.Default))
    return sdfg


def storages(sdfg):
    return {name: desc.storage for name, desc in sdfg.arrays.items()}


def schedules(sdfg):
    return [node.map.schedule for node, _ in sdfg.all_nodes_recursive() if isinstance(node, dace.sdfg.nodes.MapEntry)]


def test_arrays_and_maps_of_a_transformed_sdfg_are_on_the_gpu():
    sdfg = doubled()
    assert sdfg.apply_gpu_transformations() == 1
    assert set(storages(sdfg).values()) == {dace.StorageType.GPU_Global}
    assert schedules(sdfg) == [dace.ScheduleType.GPU_Device]
    assert sdfg.apply_gpu_transformations() == 0


def test_the_transformation_has_a_class():
    sdfg = doubled()
    assert sdfg.apply_transformations(GPUTransformSDFG) == 1
    assert set(storages(sdfg).values()) == {dace.StorageType.GPU_Global}
    with pytest.raises(dcml.ValueError_, match="has no options"):
        GPUTransformSDFG.apply_to(sdfg, simplify=1)


def test_where_an_array_lies_is_kept_by_copies_and_files(tmp_path):
    sdfg = doubled(storage=dace.StorageType.GPU_Global)
    assert "input A: f32[N] cuda" in str(sdfg)
    sdfg.save(str(tmp_path / "s.txt"))
    for again in (copy.deepcopy(sdfg), dace.SDFG.from_json(sdfg.to_json()), dace.SDFG.from_file(str(tmp_path / "s.txt"))):
        assert storages(again) == storages(sdfg) and str(again) == str(sdfg)


def test_storage_can_be_set_and_taken_back():
    sdfg = doubled()
    sdfg.arrays["A"].storage = dace.StorageType.GPU_Global
    assert storages(sdfg) == {"A": dace.StorageType.GPU_Global, "B": dace.StorageType.Default}
    sdfg.arrays["A"].storage = dace.StorageType.Default
    assert "cuda" not in str(sdfg)


@pytest.mark.parametrize("how", ["at first", "later"])
def test_a_map_with_a_schedule_of_the_gpu_writes_there(how):
    sdfg = doubled(schedule=GPU[0]) if how == "at first" else doubled()
    if how == "later":
        entry = next(node for node, _ in sdfg.all_nodes_recursive() if isinstance(node, dace.sdfg.nodes.MapEntry))
        entry.map.schedule = GPU[0]
    assert schedules(sdfg) == [GPU[0]]
    sdfg.validate()
    assert storages(sdfg) == {"A": dace.StorageType.Default, "B": dace.StorageType.GPU_Global}
    assert schedules(sdfg) == [GPU[0]]


def test_maps_inside_a_map_of_the_gpu_are_its_threads():
    sdfg = dcml._core.parse("""graph g { symbol N >= 1 input X: f32[N, 4] cuda temp Y: f32[N, 4] cuda outputs Y state s {
      map i in 0:N { map j in 0:4 { Y[i, j] = X[i, j] * X[i, j] } } } }""")
    assert schedules(dace.SDFG(sdfg)) == list(GPU)


def test_nested_sdfgs_come_along():
    outer, inner = dace.SDFG("outer"), doubled()
    for name in "XY":
        outer.add_array(name, (N,), dace.float32)
    state = outer.add_state()
    node = state.add_nested_sdfg(inner, None, {"A"}, {"B"})
    state.add_edge(state.add_read("X"), None, node, "A", dace.Memlet("X[0:N]"))
    state.add_edge(node, "B", state.add_write("Y"), None, dace.Memlet("Y[0:N]"))
    assert outer.apply_gpu_transformations() == 1
    assert set(storages(outer).values()) == {dace.StorageType.GPU_Global}


def test_auto_optimize_for_the_gpu_puts_all_there():
    sdfg = doubled()
    auto_optimize(sdfg, cuda=True)
    assert set(storages(sdfg).values()) == {dace.StorageType.GPU_Global}
    auto_optimize(other := doubled())
    assert set(storages(other).values()) == {dace.StorageType.Default}


def test_what_only_the_host_can_hold_stays_there():
    graph = dcml._core.parse("graph g { input S: string[2] outputs S state s { } }")
    with pytest.raises(dcml.DeviceError, match="'S' is no array of numbers"):
        graph.set_device("S", "cuda")
    with pytest.raises(dcml.DeviceError, match="no device 'tpu'"):
        doubled().graph.set_device("A", "tpu")
    with pytest.raises(dcml.Error, match="only the host can hold it"):
        dcml._core.parse("graph g { input S: string[2] cuda outputs S state s { } }").verify()


def test_an_sdfg_runs_on_either_device(gpu):
    sdfg, a, b = doubled(), np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    if gpu:
        sdfg.apply_gpu_transformations()
    sdfg(A=a, B=b)
    np.testing.assert_array_equal(b, 2 * a)


def test_without_a_gpu_the_error_is_that_of_a_device():
    sdfg, a, b = doubled(), np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    sdfg.apply_gpu_transformations()
    try:
        sdfg(A=a, B=b)
    except dcml.DeviceError as error:
        assert "cuda" in str(error).lower() and not b.any()
    else:
        np.testing.assert_array_equal(b, 2 * a)


def test_a_hook_that_puts_a_module_of_the_processor_on_the_gpu_is_an_error():
    import torch
    from dcml.pytorch import DaceModule
    module = DaceModule(torch.nn.Linear(3, 4))
    module.append_post_onnx_hook("there", lambda one: auto_optimize(one.sdfg, cuda=True))
    with pytest.raises(dcml.DeviceError, match="a hook put arrays of 'dace_model' on the GPU"):
        module(torch.rand(2, 3))


@pytest.mark.gpu
def test_a_transformed_sdfg_takes_tensors_of_the_device():
    import torch
    sdfg, a, b = doubled(), torch.arange(5.0).cuda(), torch.zeros(5).cuda()
    sdfg.apply_gpu_transformations()
    sdfg(A=a, B=b)
    assert torch.equal(b, 2 * a)
