"""A table of a model's Parameters: which are perturbed, and how."""

from dataclasses import Field, dataclass, fields, is_dataclass
from numbers import Real
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from ._html import html_table
from ._left import share_perturbed
from ._reprs import short_repr
from .distributions import Distribution, MeanField
from .distributions.prior import PREFIX, Prior
from .nn.base import Perturbed
from .nn.checks import check_module
from .nn.companions import companion_names, initial_companions, learned_companions, prior_changes
from .nn.kinds import class_path
from .nn.rooting import roots_on
from .nn.structure import follow_all


@dataclass(frozen=True)
class SummaryRow:
    """One Parameter of a model."""

    parameter: str
    shape: tuple[int, ...]
    layer: str  # the type of its layer: with its module, if it is neither torch's nor of this library
    noise: str  # the distribution, or "" where the Parameter has no noise
    scheme: str
    kl: str = ""  # how its KL to the prior is computed, where there is one
    learned_for: str = ""  # the Parameter whose noise it is learned for
    unread: bool = False  # perturbed, but no noisy pass has read it so far


@dataclass(frozen=True)
class Summary:
    """One row per Parameter; printed, a table."""

    rows: tuple[SummaryRow, ...]  # in the order of the model's Parameters
    share: float = 0.0  # of the numbers in weights (Parameters of two or more dimensions) that are perturbed

    def __str__(self) -> str:
        columns = self._columns()
        widths = [max(map(len, (name, *cells))) for name, cells in columns.items()]
        rows = [tuple(columns), *zip(*columns.values(), strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        return "\n".join(line.rstrip() for line in [*lines, *self._notes()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table("Parameters", self._columns(), self._notes())

    def _columns(self) -> dict[str, list[str]]:
        columns = {
            "parameter": [row.parameter for row in self.rows],
            "shape": ["×".join(map(str, row.shape)) for row in self.rows],
            "layer": [row.layer for row in self.rows],
            "noise": [row.noise or _purpose(row) for row in self.rows],
            "scheme": [row.scheme or "–" for row in self.rows],
        }
        return columns | ({"KL": [row.kl or "–" for row in self.rows]} if any(row.kl for row in self.rows) else {})

    def _notes(self) -> list[str]:
        """Return what stands below the table."""
        lines = []
        noisy = sum(bool(row.noise) for row in self.rows)
        of_priors = sum(_is_of_prior(row) for row in self.rows if row.learned_for)
        spreads = sum(bool(row.learned_for) for row in self.rows) - of_priors
        unread = [row.parameter for row in self.rows if row.unread]
        if unread:
            lines.append(f"The first noisy pass did not read {', '.join(unread)}. Their KL is counted all the same.")
        if noisy:
            lines.append(f"{self.share:.1%} of the weights (vectors do not count) are perturbed.")
        added = []
        if spreads:
            added.append("1 learned spread" if spreads == 1 else f"{spreads} learned spreads")
        if of_priors:
            added.append("1 learned number of a prior" if of_priors == 1 else f"{of_priors} learned numbers of priors")
        learned = f"; perturb added {' and '.join(added)}" if added else ""
        lines.append(f"{noisy} of {len(self.rows) - spreads - of_priors} Parameters are perturbed{learned}.")
        return lines


def _is_of_prior(row: SummaryRow) -> bool:
    return f"{row.learned_for}_{PREFIX}" in row.parameter


def _purpose(row: SummaryRow) -> str:
    """Say what a Parameter without noise is learned for."""
    if not row.learned_for:
        return "–"
    return f"{'prior' if _is_of_prior(row) else 'spread'} of {row.learned_for}"


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
        return short_repr(value)
    shown = [f"{field.name}={_said(getattr(value, field.name))}" for field in fields(value) if _is_shown(value, field)]
    if isinstance(value, MeanField) and value.std is None and value.relative is None:
        start = softplus(value.initial(torch.zeros(1))["rho"]).item()
        shown.insert(0, f"std={start:.3g}")
    return f"{type(value).__name__}({', '.join(shown)})"


def _spread_change(layer: Perturbed, name: str) -> str:
    """Say how large a learned spread is now, if that is not what it began with: " (now 0.03 on average)"."""
    mean, learned = attrgetter(name)(layer), learned_companions(layer, name)
    is_plain = all(type(value) is nn.Parameter and not value.is_meta for value in (mean, *learned.values()))
    # The initial values of other distributions may be random.
    if not isinstance(layer.flipout.distributions[name], MeanField) or not is_plain or layer.flipout.pending:
        return ""
    initial = initial_companions(layer, name, mean)
    if all(torch.allclose(value, initial[f"{name}_{suffix}"], rtol=1e-3) for suffix, value in learned.items()):
        return ""
    with torch.no_grad():
        spread = layer.flipout.distributions[name].spread(mean, **learned)
    return f" (now {spread.float().mean().item():.3g} on average)"


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
    follow_all(model.modules(), [layer for layer in model.modules() if isinstance(layer, Perturbed)])
    noise: dict[int, tuple[str, str, str, str]] = {}
    companions: dict[int, str] = {}
    for module in model.modules():
        if isinstance(module, Perturbed):
            plan, layer = module.flipout, _layer_name(module)
            for name, distribution in plan.distributions.items():
                prior = getattr(distribution, "prior", None)
                how = prior.how if isinstance(prior, Prior) else ""
                said = _said(distribution) + _spread_change(module, name) + prior_changes(module, name)
                noise[id(attrgetter(name)(module))] = (layer, said, _said(plan.scheme), how)
                for learned in companion_names(module, name):
                    noise.setdefault(id(attrgetter(learned)(module)), (layer, "", "", ""))
                    companions.setdefault(id(attrgetter(learned)(module)), name)
    unread = {label for root in roots_on(model) for label in root.unread}
    rows = []
    for name, parameter in model.named_parameters():
        layer = _layer_name(model.get_submodule(name.rpartition(".")[0]))
        layer, what, scheme, how = noise.get(id(parameter), (layer, "", "", ""))
        learned_for = companions.get(id(parameter), "")
        rows.append(SummaryRow(name, tuple(parameter.shape), layer, what, scheme, how, learned_for, name in unread))
    return Summary(tuple(rows), share_perturbed(model))
