"""Registration of classes with the registry that one of their bases is, as DaCe's users write it."""
__all__ = ["autoregister_params"]


def autoregister_params(**params):
    """Decorator: registers a class with its base.

    params: what the base's ``register(cls, **params)`` takes, as ``op=`` and ``name=``.
    Raises TypeError for a class without such a base.

    >>> class Codec:
    ...     known = {}
    ...     @staticmethod
    ...     def register(cls, name):
    ...         Codec.known[name] = cls
    >>> @autoregister_params(name="gzip")
    ... class Gzip(Codec):
    ...     pass
    >>> Codec.known["gzip"] is Gzip
    True
    """
    def decorate(cls):
        base = next((b for b in cls.__mro__[1:] if isinstance(vars(b).get("register"), (staticmethod, classmethod))), None)
        if base is None:
            raise TypeError(f"{cls.__name__} has no base that it could be registered with")
        base.register(cls, **params)
        return cls
    return decorate
