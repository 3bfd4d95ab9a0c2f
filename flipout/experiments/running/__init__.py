"""Running an experiment: settings, the folder of a run, its pieces, progress and results."""
