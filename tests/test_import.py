"""Import is cheap, and lazy where it must be."""
import subprocess
import sys


def loaded_by(code):
    result = subprocess.run([sys.executable, "-c", code + "; import sys; print(*sys.modules)"], capture_output=True,
                            text=True, check=True)
    return set(result.stdout.split())


def test_import_loads_neither_torch_nor_onnx():
    modules = loaded_by("import dcml")
    assert not {"torch", "onnx", "numpy", "dcml._core"} & modules


def test_every_public_name_can_be_had():
    import dcml
    for name in dcml.__all__:
        assert getattr(dcml, name) is not None


def test_unknown_name_is_an_attribute_error():
    import dcml
    assert not hasattr(dcml, "no_such_name")
