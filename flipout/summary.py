"""What each Parameter of a model does."""

from dataclasses import dataclass
from operator import attrgetter

from torch import nn

from .distributions.prior import Prior
from .nn.base import Perturbed


@dataclass(frozen=True)
class Row:
    parameter: str
    shape: tuple[int, ...]
    layer: str
    noise: str  # the distribution, or "" where the Parameter is used as it is
    scheme: str
    kl: str = ""  # how that to its prior is had, where there is one


@dataclass(frozen=True)
class Summary:
    """One row per Parameter; printed, a table."""

    rows: tuple[Row, ...]

    def __str__(self) -> str:
        head = ("parameter", "shape", "layer", "noise", "scheme", "KL")
        cells = [
            (r.parameter, "×".join(map(str, r.shape)), r.layer, r.noise or "–", r.scheme or "–", r.kl or "–")
            for r in self.rows
        ]
        shown = len(head) if any(row.kl for row in self.rows) else len(head) - 1
        widths = [max(len(row[i]) for row in [head, *cells]) for i in range(shown)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)) for row in [head, *cells]
        ]
        noisy = [row for row in self.rows if row.noise]
        lines.append(f"{len(noisy)} of {len(self.rows)} Parameters are perturbed.")
        return "\n".join(line.rstrip() for line in lines)

    __repr__ = __str__


def summary(model: nn.Module) -> Summary:
    """Per Parameter: its shape, its layer, its noise, who shares it, and how its KL is had."""
    noise: dict[int, tuple[str, str, str, str]] = {}
    for module in model.modules():
        if isinstance(module, Perturbed):
            plan, layer = module.plan, type(module).__name__
            for name, distribution in plan.distributions.items():
                prior = getattr(distribution, "prior", None)
                how = prior.how if isinstance(prior, Prior) else ""
                noise[id(attrgetter(name)(module))] = (layer, repr(distribution), repr(plan.scheme), how)
                for own in module.names_beside(name):
                    noise.setdefault(id(attrgetter(own)(module)), (layer, "", "", ""))
    rows = []
    for name, parameter in model.named_parameters():
        layer = type(model.get_submodule(name.rpartition(".")[0])).__name__
        layer, what, scheme, how = noise.get(id(parameter), (layer, "", "", ""))
        rows.append(Row(name, tuple(parameter.shape), layer, what, scheme, how))
    return Summary(tuple(rows))
