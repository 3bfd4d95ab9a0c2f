"""Nine small regressions of the UCI repository, by seven methods."""
