"""Options of `perturb` that differ from layer to layer: the scheme, and the example's dimension."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from operator import attrgetter

from torch import nn

from ._arguments import whole_number
from ._where import Choice
from .errors import InvalidArgument
from .nn.base import Perturbed
from .schemes import Scheme, SchemeName, scheme_of


class Schemes:
    """The scheme of each layer: one for all, or by globs over Parameter names."""

    def __init__(
        self, requested: SchemeName | Scheme | Mapping[str, SchemeName | Scheme], first_names: dict[int, str]
    ) -> None:
        self.requested, self.first_names = requested, first_names
        self.globs = {g: scheme_of(s) for g, s in requested.items()} if isinstance(requested, Mapping) else {}
        self.single = None if isinstance(requested, Mapping) else scheme_of(requested)

    def __call__(self, choice: Choice) -> Scheme:
        """Return the scheme of a layer."""
        if self.single is not None:
            return self.single
        schemes = {}
        for local in choice.parameters:
            name = self.first_names[id(attrgetter(local)(choice.layer))]
            glob = next((glob for glob in self.globs if fnmatchcase(name, glob)), None)
            if glob is None:
                raise InvalidArgument(
                    f"scheme={self.requested!r} names none for {name}. Add one for the rest: {{…, '*': 'flipout'}}."
                )
            schemes[local] = self.globs[glob]
        if len(set(schemes.values())) > 1:
            raise InvalidArgument(
                f"scheme={self.requested!r} gives {choice.label or 'the model'} several schemes, {schemes}; a "
                f"layer has one. Name the whole layer: '{choice.label}.*'."
            )
        return next(iter(schemes.values()))

    def check_patterns(self) -> None:
        """Refuse a glob that matches no Parameter of the model, which is probably a typo."""
        for glob in self.globs:
            if not any(fnmatchcase(name, glob) for name in self.first_names.values()):
                raise InvalidArgument(f"scheme={self.requested!r}: {glob!r} matches none of the model's Parameters.")


def checked_batch_dim(model: nn.Module, requested: int | Mapping[str, int] | None) -> int | dict[str, int] | None:
    """Return the example's dimension, for all layers or by layer glob, or refuse it."""
    if requested is None:
        return None
    labels = [label for label, _ in model.named_modules()]
    dims = dict(requested) if isinstance(requested, Mapping) else {"*": requested}
    for pattern, dim in dims.items():
        if dim is not None:
            dims[pattern] = whole_number("batch_dim", dim, 0, means="a dimension", more=", or {layer glob: dimension}.")
        if not any(fnmatchcase(label, pattern) for label in labels):
            raise InvalidArgument(
                f"batch_dim={requested!r}: {pattern!r} matches no layer of {type(model).__name__}, which has "
                f"{', '.join(map(repr, labels[1:6])) or 'none inside'}{', …' if labels[6:] else ''}."
            )
    return dims if isinstance(requested, Mapping) else dims["*"]


def requested_dim(layer_type: type[Perturbed], label: str, requested: int | Mapping[str, int] | None) -> int | None:
    """Return the example's dimension that was requested for a layer, None for the usual one."""
    if not isinstance(requested, Mapping):
        return requested
    for pattern, dim in requested.items():
        if fnmatchcase(label, pattern):
            if dim and layer_type._declared.fixed_layout:
                raise InvalidArgument(
                    f"batch_dim={dict(requested)!r}: {pattern!r} names {label}, a {layer_type.__name__}, whose layout "
                    f"is {layer_type._declared.fixed_layout}. Leave it out."
                )
            return dim
    return None
