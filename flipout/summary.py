"""What each Parameter of a model does."""

from dataclasses import dataclass

from torch import nn

from .nn.base import Perturbed


@dataclass(frozen=True)
class Row:
    parameter: str
    shape: tuple[int, ...]
    layer: str
    noise: str  # the distribution, or "" where the Parameter is used as it is
    scheme: str


@dataclass(frozen=True)
class Summary:
    """One row per Parameter; printed, a table."""

    rows: tuple[Row, ...]

    def __str__(self) -> str:
        head = ("parameter", "shape", "layer", "noise", "scheme")
        cells = [
            (r.parameter, "×".join(map(str, r.shape)), r.layer, r.noise or "–", r.scheme or "–") for r in self.rows
        ]
        widths = [max(len(row[i]) for row in [head, *cells]) for i in range(len(head))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *cells]
        ]
        noisy = [row for row in self.rows if row.noise]
        lines.append(f"{len(noisy)} of {len(self.rows)} Parameters are perturbed.")
        return "\n".join(line.rstrip() for line in lines)

    __repr__ = __str__


def summary(model: nn.Module) -> Summary:
    """Per Parameter: its shape, its layer, its noise and who shares it."""
    noise: dict[int, tuple[str, str, str]] = {}
    for module in model.modules():
        if isinstance(module, Perturbed):
            plan = module.plan
            for name, distribution in plan.distributions.items():
                owner, _, local = name.rpartition(".")
                parameter = getattr(module.get_submodule(owner), local)
                noise[id(parameter)] = (type(module).__name__, repr(distribution), repr(plan.scheme))
                for own in module.learned_names(name):
                    spread = getattr(module.get_submodule(owner), own.rpartition(".")[2])
                    noise.setdefault(id(spread), (type(module).__name__, "", ""))
    rows = []
    for name, parameter in model.named_parameters():
        layer = type(model.get_submodule(name.rpartition(".")[0])).__name__
        layer, what, scheme = noise.get(id(parameter), (layer, "", ""))
        rows.append(Row(name, tuple(parameter.shape), layer, what, scheme))
    return Summary(tuple(rows))
