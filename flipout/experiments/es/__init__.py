"""Figures 2b to 2d: evolution strategies."""
