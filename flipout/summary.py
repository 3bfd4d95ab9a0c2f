"""What each Parameter of a model does."""

from dataclasses import dataclass
from operator import attrgetter

from torch import nn

from ._reprs import short_repr
from .distributions.prior import Prior
from .nn.base import Perturbed
from .nn.checks import check_module
from .nn.companions import companion_names, prior_changes
from .nn.structure import follow_all


@dataclass(frozen=True)
class Row:
    parameter: str
    shape: tuple[int, ...]
    layer: str
    noise: str  # the distribution, or "" where the Parameter is used as it is
    scheme: str
    kl: str = ""  # how that to its prior is had, where there is one
    beside: str = ""  # the Parameter whose noise it is learned for


@dataclass(frozen=True)
class Summary:
    """One row per Parameter; printed, a table."""

    rows: tuple[Row, ...]  # in the order of the Parameters

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
        learned = f", with {beside} beside them that are learned" if beside else ""
        lines.append(f"{noisy} of {len(self.rows) - beside} Parameters are perturbed{learned}.")
        return "\n".join(line.rstrip() for line in lines)

    __repr__ = __str__


def _beside(row: Row) -> str:
    return f"of {row.beside}" if row.beside else "–"


def summary(model: nn.Module) -> Summary:
    """Per Parameter: its shape, its layer, its noise, who shares it, and how its KL is had."""
    check_module(model)
    follow_all(model, [layer for layer in model.modules() if isinstance(layer, Perturbed)])
    noise: dict[int, tuple[str, str, str, str]] = {}
    beside: dict[int, str] = {}
    for module in model.modules():
        if isinstance(module, Perturbed):
            plan, layer = module.flipout, type(module).__name__
            for name, distribution in plan.distributions.items():
                prior = getattr(distribution, "prior", None)
                how = prior.how if isinstance(prior, Prior) else ""
                said = short_repr(distribution) + prior_changes(module, name)
                noise[id(attrgetter(name)(module))] = (layer, said, short_repr(plan.scheme), how)
                for own in companion_names(module, name):
                    noise.setdefault(id(attrgetter(own)(module)), (layer, "", "", ""))
                    beside.setdefault(id(attrgetter(own)(module)), name)
    rows = []
    for name, parameter in model.named_parameters():
        layer = type(model.get_submodule(name.rpartition(".")[0])).__name__
        layer, what, scheme, how = noise.get(id(parameter), (layer, "", "", ""))
        rows.append(Row(name, tuple(parameter.shape), layer, what, scheme, how, beside.get(id(parameter), "")))
    return Summary(tuple(rows))
