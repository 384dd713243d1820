"""Adam, AdamW and SGD.

The one idea: they are torch's classes, with torch's arguments, parameter groups and state, and only the arithmetic of a step
is ours.  They must not know how a rule becomes code.
"""
import operator

import torch

from .. import _core
from .fused import Rule, apply


class _Compiled:
    """What the classes share.  _rule(group) -> Rule; _calls(group, params) -> {(type, key): tensors of the rule's
    arrays, one parameter after the other}; _scalars(group, key) -> numbers; _finish(group, params, calls).  A call is what of a
    group has one type, and one key: whatever else scalars depend on."""
    _counted = {}  # steps of a group's parameters: the vector, and its elements

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._step_supports_amp_scaling = False  # GradScaler divides gradients itself

    def add_param_group(self, param_group):
        """Adds a group of parameters, as torch does.

        Raises dcml.UnsupportedOpError for capturable=True or differentiable=True.
        """
        super().add_param_group(param_group)
        self._check(self.param_groups[-1])

    def _check(self, group):
        for option in "capturable", "differentiable":
            if group.get(option):
                raise _core.UnsupportedOpError(f"{type(self).__name__} with {option}=True: a compiled step is neither; torch.optim's is")

    @torch.no_grad()
    def step(self, closure=None):
        """Changes the parameters that have a gradient, and returns what closure does.

        Raises dcml.UnsupportedOpError for a sparse gradient; dcml.DTypeError, DeviceError and ShapeError for a parameter that is
        no floating-point tensor on the CPU or a GPU or whose gradient or state is elsewhere or of another type or size;
        dcml.ValueError_ where memory of two of them overlaps.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self._check(group)
            params = [p for p in group["params"] if p.grad is not None]
            if params:
                self._step_group(group, params)
        return loss

    def _step_group(self, group, params):
        try:
            calls = self._calls(group, params)
        except KeyError:  # a parameter's first step
            self._start(group, params)
            calls = self._calls(group, params)
        rule = self._rule(group)
        for (dtype, key), tensors in calls.items():
            scalars = self._scalars(group, key)
            try:
                apply(rule, dtype, scalars, tensors)
            except _core.Error:
                width = len(rule.arrays)
                _apply_copies(rule, scalars, [tensors[k:k + width] for k in range(0, len(tensors), width)])
            changed = tensors[:]
            del changed[1::len(rule.arrays)]  # gradients are read
            torch.autograd.graph.increment_version(changed)
        self._finish(group, params, calls)


def _check_tensors(tensors):
    p, g = tensors[:2]
    what = f"a parameter of shape {list(p.shape)}"
    if g.layout is not torch.strided:
        raise _core.UnsupportedOpError(f"{what} has a sparse gradient: torch.optim.SparseAdam and torch.optim.SGD take those")
    for t in tensors:
        if t.device != p.device or t.device.type not in ("cpu", "cuda"):
            raise _core.DeviceError(f"{what} is on {p.device}, its gradient or state on {t.device}; expected the CPU or one GPU")
        if t.dtype != p.dtype:
            raise _core.DTypeError(f"{what} and type {p.dtype} has a gradient or state of type {t.dtype}")
        if t.shape != p.shape:
            raise _core.ShapeError(f"{what} has a gradient or state of shape {list(t.shape)}")


def _apply_copies(rule, scalars, slots):
    """For tensors that cannot be taken as they are: views of complex numbers, and copies of those that lie otherwise than
    the parameter would without gaps."""
    back, devices = [], {}
    for tensors in slots:
        flat = devices.setdefault(tensors[0].device, [])
        _check_tensors(tensors)
        tensors = [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in tensors]
        like = torch.empty_like(tensors[0])
        for t in tensors:
            same = t.stride() == like.stride() and not t.is_neg()
            flat.append(t if same else torch.empty_like(like).copy_(t))
            if not same:
                back.append((t, flat[-1]))
    for flat in devices.values():
        apply(rule, flat[0].dtype, scalars, flat)
    for t, copy in back:
        t.copy_(copy)


class _AdamStep(_Compiled):
    def _rule(self, group):
        return _adam_rule(group["amsgrad"], group["maximize"], _decay(group))

    def _start(self, group, params):
        self._init_group(group, [], [], [], [], [], [])

    def _calls(self, group, params):
        names = ("exp_avg", "exp_avg_sq") + ("max_exp_avg_sq",) * bool(group["amsgrad"])
        states = [self.state[p] for p in params]
        calls = {}
        for p, state, step in zip(params, states, self._steps(group, states).tolist()):
            calls.setdefault((p.dtype, step), []).extend([p, p.grad, *[state[n] for n in names]])
        return calls

    def _steps(self, group, states):
        """The numbers of steps, as a vector whose elements the states hold: one addition for all."""
        steps = [state["step"] for state in states]
        vector, elements = self._counted.get(id(group), (None, ()))
        if len(steps) == len(elements) and all(map(operator.is_, steps, elements)):
            return vector
        vector = torch.stack([torch.as_tensor(s) for s in steps])
        elements = list(vector)
        for state, element in zip(states, elements):
            state["step"] = element
        self._counted = {**self._counted, id(group): (vector, elements)}
        return vector

    def _finish(self, group, params, calls):
        self._counted[id(group)][0].add_(1)  # which _calls has just found to be that of the states

    def _scalars(self, group, step):
        (beta1, beta2), lr = map(float, group["betas"]), float(group["lr"])
        root = (1 - beta2 ** (step + 1)) ** 0.5  # the root of the corrected second moment is that of the moment, over this
        rate = lr / (1 - beta1 ** (step + 1)) * root
        decay = float(group["weight_decay"])
        return 1 - beta1, beta2, 1 - beta2, float(group["eps"]) * root, rate, 1 - lr * decay if group["decoupled_weight_decay"] else decay


def _decay(group):
    return "" if group["weight_decay"] == 0 else "decoupled" if group.get("decoupled_weight_decay") else "added"


def _gradient(maximize, decay):
    return "g = " + ("-G" if maximize else "G") + (" + P * decay" if decay == "added" else "")


def _adam_rule(amsgrad, maximize, decay):
    moment = "X" if amsgrad else "V"
    body = [_gradient(maximize, decay), "M = M + (g - M) * first", "V = V * keep + g * g * second", *["X = max(X, V)"] * amsgrad,
            f"P = P{' * decay' * (decay == 'decoupled')} - M / (sqrt({moment}) + eps) * rate"]
    return Rule("adam", "PGMVX" if amsgrad else "PGMV", ("first", "keep", "second", "eps", "rate", "decay"), tuple(body))


class Adam(_AdamStep, torch.optim.Adam):
    """torch.optim.Adam with a compiled step: the same arguments, groups and state.

    foreach and fused have no effect.  Source: Kingma and Ba, Adam: a method for stochastic optimization (2015); amsgrad of Reddi
    et al. (2018).
    Raises dcml.UnsupportedOpError for capturable or differentiable.
    """


class AdamW(_AdamStep, torch.optim.AdamW):
    """torch.optim.AdamW with a compiled step: the same arguments, groups and state.

    foreach and fused have no effect.  Source: Loshchilov and Hutter, Decoupled weight decay regularization (2019).
    Raises dcml.UnsupportedOpError for capturable or differentiable.
    """


def _sgd_rule(momentum, nesterov, maximize, decay):
    body = [_gradient(maximize, decay), *["M = M * momentum + g * share"] * momentum,
            "P = P - " + ("(g + M * momentum)" if nesterov else "M" if momentum else "g") + " * rate"]
    return Rule("sgd", "PGM" if momentum else "PG", ("rate", "momentum", "share", "decay"), tuple(body))


class SGD(_Compiled, torch.optim.SGD):
    """torch.optim.SGD with a compiled step: the same arguments, groups and state.

    foreach and fused have no effect.  Source: Sutskever et al., On the importance of initialization and momentum (2013).
    Raises dcml.UnsupportedOpError for differentiable.
    """

    def _rule(self, group):
        return _sgd_rule(group["momentum"] != 0, bool(group["nesterov"]), group["maximize"], _decay(group))

    def _calls(self, group, params):
        calls = {}
        for p in params:
            tensors, first = [p, p.grad], False
            if group["momentum"] != 0:
                buffer = self.state[p].get("momentum_buffer")
                first = buffer is None
                tensors.append(torch.zeros_like(p, memory_format=torch.preserve_format) if first else buffer)
            calls.setdefault((p.dtype, first), []).extend(tensors)
        return calls

    def _finish(self, group, params, calls):
        for (_, first), tensors in calls.items():
            for p, buffer in zip(tensors[::3], tensors[2::3]) if first else ():
                self.state[p]["momentum_buffer"] = buffer

    def _scalars(self, group, first):
        """The first step's momentum is the gradient, without dampening."""
        share = 1.0 if first else 1 - float(group["dampening"])
        return float(group["lr"]), float(group["momentum"]), share, float(group["weight_decay"])
