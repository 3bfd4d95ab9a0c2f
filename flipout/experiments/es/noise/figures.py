"""The figure of errors under every kind of noise."""

import math
from collections.abc import Mapping

from flipout._drawing import COLOURS, REFERENCE, legend_outside, panels, styled

from .claims import Errors, at_equal_time
from .errors import NoiseMethod
from .tasks import LINEAR

_MARKERS = {False: "o", True: "D"}  # without and with antithetic pairs


@styled
def errors_figure(found: Errors, methods: Mapping[str, NoiseMethod], members: int):
    """Draw the error of an update at equal members and at equal time, and on a linear fitness beside theory."""
    figure, grid = panels(2, len(found), height=0.5 * len(methods) + 1.6, sharey=True)
    for column, (task, by_method) in enumerate(found.items()):
        above, below = grid[:, column]
        times = [at_equal_time(lists) for lists in by_method.values()]
        for place, ((name, lists), seconds) in enumerate(zip(by_method.items(), times, strict=True)):
            method = methods[name]
            style = {"marker": _MARKERS[method.antithetic], "ms": 5, "color": COLOURS[method.scheme.name]}
            above.plot(math.fsum(lists["error"]) / len(lists["error"]), place, **style)
            below.plot(seconds / min(times), place, **style)
        if task == LINEAR:
            theory = [method.theory(members) for method in methods.values()]
            above.plot(theory, range(len(methods)), "|", color="black", ms=12, label="theory")
        above.set(title=task)
        for axes in (above, below):
            axes.margins(x=0.15)
            axes.set_xlim(left=0)
            axes.grid(axis="x", lw=0.4)
            axes.axhline(len(methods) / 2 - 0.5, color=REFERENCE, lw=0.6)
    for axes in grid[:, 0]:
        axes.set_yticks(range(len(methods)), list(methods))
    grid[0, 0].invert_yaxis()  # shared by all
    grid[0, 0].set_ylabel("equal members:\nsquared error /\nsquared gradient")
    grid[1, 0].set_ylabel("equal time:\nleast = 1")
    legend_outside(figure)
    return figure
