"""Writes the models of the onnx package's backend cases into a folder: what the fuzz target starts from.

    python tests/fuzz/seeds.py FOLDER [LARGEST_BYTES]
"""
import pathlib
import sys
import warnings


def models():
    """(name, bytes) of every case: those that code generates, and those that the package ships as files."""
    import onnx
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases
        for case in collect_testcases(None):
            yield case.name, case.model.SerializeToString()
    data = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data"
    for path in sorted(data.rglob("*.onnx")):
        yield path.parent.name if path.stem == "model" else path.stem, path.read_bytes()


def main(folder, largest=1 << 20):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in models():
        if len(data) <= int(largest):
            (folder / f"{name}.onnx").write_bytes(data)


if __name__ == "__main__":
    main(*sys.argv[1:])
