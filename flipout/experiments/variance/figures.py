"""Figures of α, β and γ, and of several devices."""

from flipout._drawing import BLUE, COLOURS, GREY, RED, legend_outside, panels, styled
from flipout.variance import Decomposition, Measurements

from ..evidence.statistics import Z90

_TERMS = {  # field of a decomposition → colour, marker and label
    "alpha": (GREY, "D", "α: between examples"),
    "beta": (RED, "s", "β: shared noise"),
    "gamma": (BLUE, "o", "γ: flipout's noise"),
}


@styled
def terms_figure(terms: list[Decomposition]):
    """Draw α, β and γ of every layer."""
    figure, grid = panels(height=3.4, width=5.2)
    axes = grid[0, 0]
    for i, (name, (colour, marker, label)) in enumerate(_TERMS.items()):
        named = [getattr(decomposition, name) for decomposition in terms]
        at = [j + (i - 1) * 0.12 for j in range(len(terms))]
        low = [min(Z90 * term.error, 0.999 * abs(term.value)) for term in named]
        high = [Z90 * term.error for term in named]
        values = [term.value for term in named]
        axes.errorbar(at, values, [low, high], fmt=marker, color=colour, capsize=2, ms=5, label=label)
    axes.set(yscale="log", ylabel="per entry of the gradient", xlim=(-0.5, len(terms) - 0.5))
    axes.set_xticks(range(len(terms)), [decomposition.parameter.removesuffix(".weight") for decomposition in terms])
    legend_outside(figure)
    return figure


@styled
def devices_figure(measured: Measurements):
    """Draw the variances with one base for the batch, and with one per device, a panel for each scheme."""
    layers = list(dict.fromkeys(r.parameter for r in measured))
    schemes = list(dict.fromkeys(r.scheme for r in measured))
    largest = max(r.batch_size for r in measured)
    figure, grid = panels(len(schemes), 1, height=2.4 * len(schemes) + 0.7, sharex=True)
    for axes, scheme in zip(grid[:, 0], schemes, strict=True):
        cases = list(dict.fromkeys((r.batch_size, r.bases) for r in measured.select(scheme=scheme)))
        for i, (size, bases) in enumerate(cases):
            records = [
                next(iter(measured.select(parameter=p, scheme=scheme, batch_size=size, bases=bases))) for p in layers
            ]
            low = [r.variance - max(r.low, 1e-3 * r.variance) for r in records]
            high = [r.high - r.variance for r in records]
            axes.errorbar(
                [j + (i - (len(cases) - 1) / 2) * 0.17 for j in range(len(layers))],
                [r.variance for r in records],
                [low, high],
                fmt="o" if size == largest else "s",
                mfc="none" if bases > 1 else COLOURS[scheme],
                color=COLOURS[scheme],
                ms=4,
                capsize=0,
                label=f"N = {size:,}, {bases} base{'s' if bases > 1 else ''}",
            )
        axes.set(yscale="log", ylabel="gradient variance", title=scheme)
        axes.legend(ncols=2)
    grid[-1, 0].set_xticks(
        range(len(layers)), [name.removesuffix(".weight") for name in layers], rotation=45, ha="right"
    )
    return figure
