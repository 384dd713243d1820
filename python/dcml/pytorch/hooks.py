"""Hooks of users into the compilation of a module, and the order in which they run.

Must not know: how a module is captured or called.
"""
import collections


class Hooks:
    """The part of a DaceModule that users hook into.  ``hooked``: the graph that a post_onnx hook is looking at."""
    post_onnx_hooks: collections.OrderedDict  # {name: func(module)}
    post_autodiff_hooks: collections.OrderedDict  # {name: func(forward_sdfg, backward_sdfg)}
    post_compile_hooks: collections.OrderedDict  # {name: func(sdfg)}

    def _without_hooks(self):
        self.post_onnx_hooks = collections.OrderedDict()
        self.post_autodiff_hooks = collections.OrderedDict()
        self.post_compile_hooks = collections.OrderedDict()

    def append_post_onnx_hook(self, name, func):
        """Adds func(module), run after capture, when ``module.sdfg`` holds operators; last of its kind."""
        self.post_onnx_hooks[name] = func

    def prepend_post_onnx_hook(self, name, func):
        """As append_post_onnx_hook, but first of its kind."""
        _prepend(self.post_onnx_hooks, name, func)

    def append_post_autodiff_hook(self, name, func):
        """Adds func(forward_sdfg, backward_sdfg), run after differentiation; last of its kind."""
        self.post_autodiff_hooks[name] = func

    def prepend_post_autodiff_hook(self, name, func):
        """As append_post_autodiff_hook, but first of its kind."""
        _prepend(self.post_autodiff_hooks, name, func)

    def append_post_compile_hook(self, name, func):
        """Adds func(compiled), run with the compiled forward graph, a CompiledSDFG; last of its kind."""
        self.post_compile_hooks[name] = func

    def prepend_post_compile_hook(self, name, func):
        """As append_post_compile_hook, but first of its kind."""
        _prepend(self.post_compile_hooks, name, func)

    def hooks_of_core(self):
        """As keywords of _core.Function."""
        return {"post_onnx": self._run_post_onnx if self.post_onnx_hooks else None,
                "post_autodiff": self._run_post_autodiff if self.post_autodiff_hooks else None,
                "post_compile": self._run_post_compile if self.post_compile_hooks else None}

    def _run_post_onnx(self, graph):
        from ..sdfg import SDFG
        if self.apply_strict or self.onnx_simplify:
            graph.run_pass("tidy")
        self._hooked, sdfg = graph, SDFG(graph)
        try:
            for hook in self.post_onnx_hooks.values():
                hook(self)
                sdfg.build()
        finally:
            self._hooked = None

    def _run_post_autodiff(self, forward, backward):
        from ..sdfg import SDFG
        forward, backward = SDFG(forward), SDFG(backward)
        for hook in self.post_autodiff_hooks.values():
            hook(forward, backward)
            forward.build(), backward.build()

    def _run_post_compile(self, forward, backward=None):
        from ..sdfg import SDFG
        from ..sdfg.compiled import CompiledSDFG
        compiled = CompiledSDFG(SDFG(forward))
        for hook in self.post_compile_hooks.values():
            hook(compiled)


def _prepend(hooks, name, func):
    hooks[name] = func
    hooks.move_to_end(name, last=False)
