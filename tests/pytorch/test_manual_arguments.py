"""The arguments, attributes and hooks of the manual and of DaCeML's later versions: each does what it says."""
import numpy as np
import onnx
import pytest
import torch
from torch import nn

import dcml
from dcml.onnx import ONNXModel
from dcml.pytorch import DaceModule, dace_module


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)

    def forward(self, x, y):
        return torch.tanh(self.fc(x)) * y + torch.ones(2) .sum() * 2


def arguments():
    return torch.randn(5, 3, requires_grad=True), torch.randn(5, 4, requires_grad=True)


def test_only_modules_are_compiled():
    with pytest.raises(dcml.Error, match="expected an nn.Module to compile, got function"):
        DaceModule(arguments)


def test_inputs_to_skip_get_no_gradient():
    x, y = arguments()
    module = DaceModule(Net(), backward=True, inputs_to_skip=["y"])
    module(x, y).sum().backward()
    assert x.grad is not None and y.grad is None and module.fc.weight.grad is not None
    assert [t for t in module.backward_sdfg.graph.outputs if "y" in t.split("_")] == []
    for position in (1, "1"):
        assert DaceModule(Net(), backward=True, inputs_to_skip=[position])(x, y).grad_fn is not None
    with pytest.raises(dcml.Error, match="inputs_to_skip names 'z'"):
        DaceModule(Net(), inputs_to_skip=["z"])(x, y)


class Trimmed(nn.Module):
    def forward(self, x):
        return torch.native_dropout(x, 0.5, False)[0] + 0  # whose mask nobody reads


@pytest.mark.parametrize("options, fewer", [({}, True), ({"apply_strict": False}, True),
                                            ({"simplify": False, "onnx_simplify": False}, False)])
def test_simplification_before_the_hooks(options, fewer):
    module, counts = DaceModule(Trimmed(), backward=True, **options), []
    module.append_post_onnx_hook("count", lambda m: counts.append(len(m.sdfg.node(0).nodes())))
    x = torch.randn(3, 4, requires_grad=True)
    module(x).square().sum().backward()
    torch.testing.assert_close(x.grad, 2 * x)
    assert (counts[0] < len(module.sdfg.node(0).nodes())) == fewer


def test_auto_optimize_fuses():
    x, y = arguments()
    kernels = []
    for wanted in (True, False):
        module = DaceModule(Net(), auto_optimize=wanted, backward=True)
        torch.testing.assert_close(module(x, y), module.model(x, y), rtol=1e-5, atol=1e-5)
        kernels.append(len(module.forward_sdfg.node(0).nodes()))
    assert kernels[0] < kernels[1]


def test_compile_torch_extension_chooses_the_autograd_node():
    x, y = arguments()
    names = {}
    for wanted in (True, False):
        module = DaceModule(Net(), backward=True, compile_torch_extension=wanted)
        for _ in range(3):
            result = module(x, y)
        names[wanted] = type(result.grad_fn).__name__
        result.sum().backward()
    assert names[False] == "_NodeBackward"


def test_cuda_none_follows_the_parameters_and_true_needs_a_gpu():
    module = DaceModule(Net(), cuda=None)
    assert module.cuda_enabled is None
    if not torch.cuda.is_available():
        with pytest.raises(dcml.DeviceError, match="no GPU"):
            DaceModule(Net(), cuda=True)


def test_training_debug_transients_names_and_dummy_inputs():
    module = DaceModule(Net(), dummy_inputs=arguments(), training=False, debug_transients=True, sdfg_name="net")
    assert not module.model.training and module.sdfg.name == "net"
    result, *rest = module(*arguments())
    assert len(rest) == len(module.transients) > 1 and all(isinstance(t, torch.Tensor) for t in rest)


def test_the_decorator_takes_all_arguments():
    @dace_module(backward=True, inputs_to_skip=["y"], simplify=False, auto_optimize=False, sdfg_name="decorated")
    class Decorated(Net):
        pass
    x, y = arguments()
    module = Decorated()
    module(x, y).sum().backward()
    assert module.sdfg.name == "decorated" and y.grad is None and x.grad is not None and not module.apply_strict


def test_hooks_of_all_kinds_in_the_documented_order():
    module, seen = DaceModule(Net(), backward=True), []
    for kind in ("post_onnx", "post_autodiff", "post_compile"):
        for name in ("b", "c"):
            getattr(module, f"append_{kind}_hook")(name, lambda *given, n=f"{kind} {name}": seen.append((n, given)))
        getattr(module, f"prepend_{kind}_hook")("a", lambda *given, n=f"{kind} a": seen.append((n, given)))
        assert list(getattr(module, f"{kind}_hooks")) == ["a", "b", "c"]
    module(*arguments())
    order = [name for name, _ in seen]
    assert order == [f"{kind} {n}" for kind in ("post_onnx", "post_autodiff", "post_compile") for n in "abc"]
    given = dict(seen)
    assert given["post_onnx a"] == (module,)
    assert [type(g).__name__ for g in given["post_autodiff a"]] == ["SDFG", "SDFG"]
    assert [type(g).__name__ for g in given["post_compile a"]] == ["CompiledSDFG"]
    module(*arguments())
    assert len(seen) == 9
    module.reset_sdfg()
    del module.post_onnx_hooks["a"]
    module(*arguments())
    assert len(seen) == 17


def test_a_hook_that_raises_is_heard_and_the_module_recovers():
    module = DaceModule(Net(), backward=True)
    module.append_post_autodiff_hook("bad", lambda f, b: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        module(*arguments())
    del module.post_autodiff_hooks["bad"]
    module.reset_sdfg()
    assert module(*arguments()).shape == (5, 4)


def test_graphs_of_the_module():
    module = DaceModule(Net(), backward=True)
    for attribute in ("sdfg", "dace_model", "forward_sdfg", "backward_sdfg"):
        with pytest.raises(dcml.Error, match="call the module once"):
            getattr(module, attribute)
    module(*arguments())
    assert module.dace_model.inputs == ["x", "y"] and module.dace_model.weights.keys() == {"fc.weight", "fc.bias"}
    assert module.forward_sdfg.arrays and module.backward_sdfg.arrays
    assert "Tanh" in str(module.sdfg)


# -- ONNXModel -------------------------------------------------------------------------------------
def model():
    helper = onnx.helper
    weight = onnx.numpy_helper.from_array(np.full((3, 2), 2, np.float32), "w")
    nodes = [helper.make_node("Identity", ["x"], ["i"]), helper.make_node("MatMul", ["i", "w"], ["m"], name="mm"),
             helper.make_node("Relu", ["m"], ["y"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, ["n", 3])],
                              [helper.make_tensor_value_info("y", 1, ["n", 2])], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_arguments_of_onnx_model():
    x = np.ones((4, 3), np.float32)
    want = np.full((4, 2), 6, np.float32)
    for options in ({}, {"auto_optimize": False}, {"apply_strict": True}, {"simplify": True}, {"onnx_simplify": True},
                    {"auto_merge": True}, {"infer_shapes": False}, {"storage": "CPU_Heap"}, {"fold_constants": False}):
        made = ONNXModel("net", model(), **options)
        np.testing.assert_array_equal(made(x), want)
        identities = [n for n in made.sdfg.node(0).nodes() if n.kind == "library" and n.op == "Identity"]
        assert bool(identities) != bool(options.keys() & {"apply_strict", "simplify", "onnx_simplify"})


def test_save_transients_receives_intermediate_values():
    kept = {}
    made = ONNXModel("net", model(), save_transients=kept)
    made(np.ones((4, 3), np.float32))
    np.testing.assert_array_equal(kept["m"], np.full((4, 2), 6))


def test_weights_of_a_parent_module():
    class Parent(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(3, 2))
    parent = Parent()
    made = ONNXModel("net", model(), parent_pytorch_module=parent)
    assert (made(np.ones((1, 3), np.float32)) == 3).all() and made.weights["w"] is parent.w
    made(torch.ones(1, 3)).sum().backward()
    assert parent.w.grad is not None


def test_what_cannot_be_had_says_why():
    with pytest.raises(NotImplementedError, match="FPGA_Global"):
        ONNXModel("net", model(), storage="FPGA_Global")


def test_a_storage_on_the_gpu_says_where_the_model_runs():
    assert ONNXModel("net", model(), storage=dcml.StorageType.GPU_Global).cuda
    assert not ONNXModel("net", model(), storage="CPU_Heap").cuda


def test_attributes_of_onnx_model():
    made = ONNXModel("net", model())
    assert made.inputs == ["x"] and made.outputs == ["y"] and made.sdfg.name
    assert [n.op for n in made.state.nodes() if n.kind == "library"] == ["Identity", "MatMul", "Relu"]
    assert list(made.weights) == ["w"] and callable(made.compile_and_init())
