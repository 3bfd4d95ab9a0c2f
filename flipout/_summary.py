"""A table of a model's Parameters: which are perturbed, and how."""

from dataclasses import Field, dataclass, fields, is_dataclass
from numbers import Real
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from ._left import share_perturbed
from .distributions import Distribution, MeanField
from .distributions.prior import Prior
from .nn.base import Perturbed
from .nn.checks import check_module
from .nn.companions import companion_names, prior_changes
from .nn.kinds import class_path
from .nn.rooting import roots_on
from .nn.structure import follow_all


@dataclass(frozen=True)
class Row:
    """One Parameter of a model."""

    parameter: str
    shape: tuple[int, ...]
    layer: str  # the type of its layer: with its module, if it is neither torch's nor of this library
    noise: str  # the distribution, or "" where the Parameter has no noise
    scheme: str
    kl: str = ""  # how its KL to the prior is computed, where there is one
    beside: str = ""  # the Parameter whose noise it is learned for
    unread: bool = False  # perturbed, but no noisy pass has read it so far


@dataclass(frozen=True)
class Summary:
    """One row per Parameter; printed, a table."""

    rows: tuple[Row, ...]  # in the order of the model's Parameters
    share: float = 0.0  # of the numbers in weights (Parameters of two or more dimensions) that are perturbed

    def __str__(self) -> str:
        head = ("parameter", "shape", "layer", "noise", "scheme", "KL")
        cells = [
            (r.parameter, "×".join(map(str, r.shape)), r.layer, r.noise or _beside(r), r.scheme or "–", r.kl or "–")
            for r in self.rows
        ]
        shown = len(head) if any(row.kl for row in self.rows) else len(head) - 1
        widths = [max(len(row[i]) for row in [head, *cells]) for i in range(shown)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)) for row in [head, *cells]
        ]
        noisy, beside = (sum(bool(getattr(row, what)) for row in self.rows) for what in ("noise", "beside"))
        unread = [row.parameter for row in self.rows if row.unread]
        if unread:
            lines.append(f"The first noisy pass did not read {', '.join(unread)}. Their KL is counted all the same.")
        if noisy:
            lines.append(f"{self.share:.1%} of the weights (vectors do not count) are perturbed.")
        learned = f", with {beside} beside them that are learned" if beside else ""
        lines.append(f"{noisy} of {len(self.rows) - beside} Parameters are perturbed{learned}.")
        return "\n".join(line.rstrip() for line in lines)

    __repr__ = __str__


def _beside(row: Row) -> str:
    return f"of {row.beside}" if row.beside else "–"


def _is_default(value: Any, default: Any) -> bool:
    return type(value) is type(default) and not isinstance(value, Tensor) and value == default


def _is_shown(value: Any, field: Field) -> bool:
    """Return True for what was changed, and for the numbers that say how large a noise is."""
    setting = getattr(value, field.name)
    is_size = isinstance(value, Distribution) and field.name in ("std", "p") and isinstance(setting, Real)
    return is_size or not _is_default(setting, field.default)


def _said(value: Any) -> str:
    """Return the repr of a distribution, prior or scheme, without options that have their defaults."""
    if not is_dataclass(value) or isinstance(value, type):
        return repr(value)
    shown = [f"{field.name}={_said(getattr(value, field.name))}" for field in fields(value) if _is_shown(value, field)]
    if isinstance(value, MeanField) and value.std is None and value.relative is None:
        start = softplus(value.initial(torch.zeros(1))["rho"]).item()
        shown.insert(0, f"std={start:.3g}")
    return f"{type(value).__name__}({', '.join(shown)})"


def _layer_name(module: nn.Module) -> str:
    """Return the name of a module's type, with its path where it is of another library."""
    kind = module._plain_type if isinstance(module, Perturbed) else type(module)
    is_familiar = kind.__module__.partition(".")[0] in ("torch", "flipout")
    return kind.__name__ if is_familiar else class_path(kind)


def summary(model: nn.Module) -> Summary:
    """Tell what each Parameter of a model does.

    Args:
        model: Any module, perturbed or not.

    Returns:
        A table with one row per Parameter: its shape, its layer, its noise, who shares the noise, and how its KL is
        computed. Below it stand the share of the weights that are perturbed and, after a noisy pass, the perturbed
        Parameters that the pass did not read.

    Example:
        ```python
        print(flipout.summary(model))
        ```
    """
    check_module(model)
    follow_all(model, [layer for layer in model.modules() if isinstance(layer, Perturbed)])
    noise: dict[int, tuple[str, str, str, str]] = {}
    beside: dict[int, str] = {}
    for module in model.modules():
        if isinstance(module, Perturbed):
            plan, layer = module.flipout, _layer_name(module)
            for name, distribution in plan.distributions.items():
                prior = getattr(distribution, "prior", None)
                how = prior.how if isinstance(prior, Prior) else ""
                said = _said(distribution) + prior_changes(module, name)
                noise[id(attrgetter(name)(module))] = (layer, said, _said(plan.scheme), how)
                for learned in companion_names(module, name):
                    noise.setdefault(id(attrgetter(learned)(module)), (layer, "", "", ""))
                    beside.setdefault(id(attrgetter(learned)(module)), name)
    unread = {label for root in roots_on(model) for label in root.unread}
    rows = []
    for name, parameter in model.named_parameters():
        layer = _layer_name(model.get_submodule(name.rpartition(".")[0]))
        layer, what, scheme, how = noise.get(id(parameter), (layer, "", "", ""))
        of = beside.get(id(parameter), "")
        rows.append(Row(name, tuple(parameter.shape), layer, what, scheme, how, of, name in unread))
    return Summary(tuple(rows), share_perturbed(model))
