"""The colour of each scheme, as in the figures of `flipout.variance`."""

COLOURS = {"shared": "#c1442e", "flipout": "#1f5fa8", "local_reparam": "#2e8b57", "independent": "#7a7a7a"}
