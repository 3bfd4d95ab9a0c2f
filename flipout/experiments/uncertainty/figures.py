"""Figures of known and unknown pictures."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ..evidence.statistics import Z90
from .claims import MEASURES, Predicted, auroc

_COLOURS = {"total": "#1f5fa8", "epistemic": "#c1442e"}


def pictures_figure(shown: Mapping[str, tuple[Tensor, Tensor]]):
    """Draw a row of pictures with their entropies for each kind."""
    from matplotlib.figure import Figure

    columns = max(len(pictures) for pictures, _ in shown.values())
    figure = Figure(figsize=(0.85 * columns + 1.6, 1.05 * len(shown)), layout="constrained")
    grid = figure.subplots(len(shown), columns, squeeze=False)
    for (name, (pictures, entropies)), line in zip(shown.items(), grid, strict=True):
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
        for axes, picture, entropy in zip(line, pictures, entropies.tolist(), strict=True):
            axes.imshow(picture[0].numpy(), cmap="gray", vmin=0, vmax=255)
            axes.set_title(f"{entropy:.2f}", fontsize=7, pad=2)
            axes.set(xticks=[], yticks=[])
    return figure


def separation_figure(inside: Predicted, outside: Mapping[str, Predicted]):
    """Draw the AUROC of each kind of unknown picture."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 0.5 * len(outside) + 1.2), layout="constrained")
    axes = figure.subplots()
    for i, (measure, named) in enumerate(MEASURES.items()):
        found = [auroc(inside[measure], unknown[measure]) for unknown in outside.values()]
        at = [j + (i - 0.5) * 0.2 for j in range(len(found))]
        values, errors = [estimate.value for estimate in found], [Z90 * estimate.error for estimate in found]
        axes.errorbar(values, at, xerr=errors, fmt="o", ms=4, capsize=2, color=_COLOURS[measure], label=named)
    axes.axvline(0.5, color="#7a7a7a", lw=1, ls="--")
    axes.set(xlabel="AUROC against known pictures", xlim=(None, 1.01))
    axes.set_yticks(range(len(outside)), list(outside))
    axes.invert_yaxis()
    axes.legend(fontsize=8)
    return figure


def rotation_figure(turned: Mapping[float, Predicted], labels: Tensor):
    """Draw uncertainty and error against the angle."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.6), layout="constrained")
    axes = figure.subplots()
    angles = list(turned)
    for measure, named in MEASURES.items():
        values = torch.stack([predicted[measure] for predicted in turned.values()])
        means, errors = values.mean(1).numpy(), (values.std(1) * Z90 / len(labels) ** 0.5).numpy()
        axes.fill_between(angles, means - errors, means + errors, color=_COLOURS[measure], alpha=0.2, lw=0)
        axes.plot(angles, means, "o-", ms=3, color=_COLOURS[measure], label=named)
    wrong = [float((predicted["mean"].argmax(1) != labels).float().mean()) for predicted in turned.values()]
    right = axes.twinx()
    right.plot(angles, wrong, "--", color="#444444", label="error")
    axes.set(xlabel="degrees", ylabel="nats", ylim=(0, None))
    right.set(ylabel="error", ylim=(0, 1))
    axes.set_xticks(range(0, round(max(angles)) + 1, 45))
    figure.legend(fontsize=8, loc="outside upper center", ncols=3)
    return figure
