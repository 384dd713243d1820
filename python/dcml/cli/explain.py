"""Prints what the compiler made of a model: its steps, who serves each, their
operations and bytes, and the memory plan.
"""
from . import model, sizes

HELP = "steps, who serves them, operations, bytes, memory plan"
EXAMPLES = """examples:
  dcml explain net.onnx
  dcml explain net.onnx --dim batch=32 --libraries none
"""
_WIDTH = 80


def add_arguments(parser):
    model.add_arguments(parser)


def run(args):
    from ..report import table
    loaded = model.Loaded(args)
    loaded()
    if loaded.extents:
        print(f"with {sizes.text(loaded.extents)}")
    for title, function in loaded.functions():
        print(table.explain(f"{loaded.name}, {title}" if title else loaded.name, function, _WIDTH))
    for where in loaded.host_operators():
        print(f"on the host: {where}")
    return 0
