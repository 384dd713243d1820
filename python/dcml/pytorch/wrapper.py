"""A module around another one that users cannot tell from it.

The one idea: wrapper and wrapped share the dictionaries of parameters, buffers and children, so that names, state_dict,
to() and optimisers see one module; what the wrapper lacks is the wrapped module's.
Must not know: that anything is compiled.
"""
import torch

_STATE_HOOKS = ("_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")


class Wrapper(torch.nn.Module):
    """``model`` is the wrapped module.  Once ``_ready`` is set, attributes that are not the wrapper's go to it."""

    def _wrap(self, module):
        state = self.__dict__
        for shared in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", *_STATE_HOOKS):
            state[shared] = getattr(module, shared)
        state["model"] = module  # not registered: names stay those of the wrapped module
        self.training = module.training

    def train(self, mode=True):
        """Sets the mode of the wrapped module and all inside it."""
        self.model.train(mode)
        self.training = mode
        return self

    def state_dict(self, *args, **kwargs):
        return self.model.state_dict(*args, **kwargs)

    def load_state_dict(self, *args, **kwargs):
        return self.model.load_state_dict(*args, **kwargs)

    def _load_from_state_dict(self, *args, **kwargs):
        return self.model._load_from_state_dict(*args, **kwargs)

    def __setattr__(self, name, value):
        """Attributes that are none of the wrapper's own are those of the wrapped module."""
        held = self.__dict__
        if "_ready" in held and name not in held and not any(name in vars(base) for base in type(self).__mro__):
            setattr(held["model"], name, value)
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name):
        if name in self.__dict__:
            super().__delattr__(name)
        else:
            delattr(self.model, name)

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            if "model" not in self.__dict__:
                raise
            return getattr(self.__dict__["model"], name)

    def __getitem__(self, key):
        return self.model[key]

    def __setitem__(self, key, value):
        self.model[key] = value

    def __delitem__(self, key):
        del self.model[key]

    def __len__(self):
        return len(self.model)

    def __iter__(self):
        return iter(self.model)

    def __contains__(self, item):
        return item in self.model

    def __bool__(self):
        return bool(self.model)  # not by a length, which not all modules have

    def __getstate__(self):
        state = dict(self.__dict__)
        if type(self.model) is getattr(type(self), "moduleclass", None):  # whose name is that of the decorated class
            state["model"] = _Undecorated(vars(self.model))
        return state

    def __setstate__(self, state):
        if isinstance(held := state["model"], _Undecorated):
            model = state["model"] = type(self).moduleclass.__new__(type(self).moduleclass)
            model.__setstate__(held.attributes)
        super().__setstate__(state)


class _Undecorated:
    """Stands for an instance of a class that a decorator hides, in pickles and copies."""

    def __init__(self, attributes):
        self.attributes = attributes
