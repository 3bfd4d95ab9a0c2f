"""The data sets of the experiments: loaded, checked against their checksums, or replaced by an embedded default."""

from .regressions import Regression, diabetes, regression
from .sets import (
    Images,
    Text,
    cifar10,
    digits,
    embedded_characters,
    embedded_words,
    images,
    mnist,
    ptb_characters,
    ptb_words,
    standardised,
    text,
)

__all__ = [
    "Images",
    "Regression",
    "Text",
    "cifar10",
    "diabetes",
    "digits",
    "embedded_characters",
    "embedded_words",
    "images",
    "mnist",
    "ptb_characters",
    "ptb_words",
    "regression",
    "standardised",
    "text",
]
