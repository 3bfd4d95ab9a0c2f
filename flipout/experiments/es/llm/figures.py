"""The figure of held-out accuracies."""

from typing import Any

from flipout._drawing import COLOURS, legend_outside, panels, styled

from .claims import Table
from .settings import TITLES, Method

_COLOURS: dict[Method, str] = {
    "rank_one": COLOURS["rank_one"],
    "low_rank": COLOURS["low_rank"],
    "one_by_one": COLOURS["independent"],
    "lora": COLOURS["flipout"],
}


@styled
def accuracy_figure(table: Table) -> Any:
    """Draw held-out accuracy against seconds of training, a line for each seed."""
    tasks = list(dict.fromkeys(task for task, _ in table))
    figure, grid = panels(1, len(tasks), height=3.4)
    for axes, name in zip(grid[0], tasks, strict=True):
        for (task, method), curves in table.items():
            for i, curve in enumerate(curves if task == name else []):
                label = TITLES[method] if i == 0 else None
                axes.plot(curve.seconds, curve.accuracy, ".-", ms=4, lw=1.2, color=_COLOURS[method], label=label)
        axes.set(title=name, xlabel="seconds of training")
    grid[0, 0].set_ylabel("held-out accuracy")
    legend_outside(figure, columns=2)
    return figure
