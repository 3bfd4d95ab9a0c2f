"""Colours are of methods, and shades of samples."""

from flipout.experiments.es.figures import by_method


def test_colours_are_of_methods_and_shades_of_samples():
    colours = by_method(["FlipES 1,600", "FlipES 5,000", "IdealES 1,600", "backprop"])
    assert len(set(colours.values())) == 4
