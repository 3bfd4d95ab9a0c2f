"""Figures of α, β and γ, and of several devices."""

from flipout.variance import Decomposition, Measurements

from ..evidence.colours import COLOURS
from ..evidence.statistics import Z90


def terms_figure(terms: list[Decomposition]):
    """Draw α, β and γ of every layer."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(5.0, 0.6 * len(terms) + 2), 3.8), layout="constrained")
    axes = figure.subplots()
    for i, (name, colour) in enumerate((("alpha", "#444444"), ("beta", "#c1442e"), ("gamma", "#1f5fa8"))):
        named = [getattr(decomposition, name) for decomposition in terms]
        at = [j + (i - 1) * 0.12 for j in range(len(terms))]
        low = [min(Z90 * term.error, 0.999 * abs(term.value)) for term in named]
        high = [Z90 * term.error for term in named]
        axes.errorbar(
            at, [term.value for term in named], [low, high], fmt="o", color=colour, capsize=2, ms=4, label="αβγ"[i]
        )
    axes.set(yscale="log", ylabel="per entry of the gradient")
    axes.set_xticks(range(len(terms)), [decomposition.parameter.removesuffix(".weight") for decomposition in terms])
    axes.legend()
    return figure


def devices_figure(measured: Measurements):
    """Draw the variances with one base for the batch, and with one per device."""
    from matplotlib.figure import Figure

    layers = list(dict.fromkeys(r.parameter for r in measured))
    cases = list(dict.fromkeys((r.scheme, r.batch_size, r.bases) for r in measured))
    figure = Figure(figsize=(max(6.0, 0.75 * len(layers) + 2), 4.2), layout="constrained")
    axes = figure.subplots()
    for i, (scheme, size, bases) in enumerate(cases):
        records = [
            next(iter(measured.select(parameter=p, scheme=scheme, batch_size=size, bases=bases))) for p in layers
        ]
        at = [j + (i - (len(cases) - 1) / 2) * 0.09 for j in range(len(layers))]
        axes.errorbar(
            at,
            [r.variance for r in records],
            [[r.variance - max(r.low, 1e-3 * r.variance) for r in records], [r.high - r.variance for r in records]],
            fmt="o" if bases == 1 else "D",
            mfc="white" if bases > 1 else COLOURS[scheme],
            color=COLOURS[scheme],
            ms=4,
            capsize=2,
            alpha=1 if size == max(r.batch_size for r in measured) else 0.55,
            label=f"{scheme}, N = {size}, {bases} base{'s' if bases > 1 else ''}",
        )
    axes.set(yscale="log", ylabel="gradient variance")
    axes.set_xticks(range(len(layers)), [name.removesuffix(".weight") for name in layers])
    axes.legend(fontsize=7, ncols=2)
    return figure
