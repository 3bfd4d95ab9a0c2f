"""Networks and data by name, for titles that say what a run really trained."""

from typing import Protocol

_DATA = {"mnist": "MNIST", "cifar10": "CIFAR-10", "digits": "scikit-learn's digits"}
_INPUTS = {"mnist": 784, "cifar10": 3072, "digits": 64}
_NETWORKS = {"convle": "ConvLe", "convgg": "ConVGG (VGG16 without batch-norm)"}
_TEXTS = {
    "ptb_words": "the words of the Penn Treebank",
    "ptb_characters": "the characters of the Penn Treebank",
    "embedded_words": "the words of Python's help",
    "embedded_characters": "the characters of Python's help",
}


class Pictures(Protocol):
    """Settings that choose a network and the pictures that it learns."""

    @property
    def network(self) -> str: ...
    @property
    def hidden(self) -> tuple[int, ...]: ...
    @property
    def width(self) -> float: ...
    @property
    def data(self) -> str: ...
    @property
    def embedded(self) -> bool: ...


def network_name(settings: Pictures) -> str:
    """Return the network that these settings choose: "a 784-512-512-10 network", "ConvLe at 1/4 of its width"."""
    if settings.network == "fc":
        inputs = "…" if _is_open(settings) else _INPUTS[settings.data]
        return f"a {'-'.join(map(str, (inputs, *settings.hidden, 10)))} network"
    scale = "" if settings.width == 1 else f" at {_fraction(settings.width)} of its width"
    return _NETWORKS[settings.network] + scale


def data_name(settings: Pictures) -> str:
    """Return the name of the pictures."""
    return _DATA[settings.data] + (" or digits" if _is_open(settings) else "")


def text_name(text: str) -> str:
    """Return the name of a text of language models."""
    return _TEXTS[text]


def _is_open(settings: Pictures) -> bool:
    """Tell whether the run takes digits if the data is not on the machine."""
    return settings.embedded and settings.data != "digits"


def _fraction(width: float) -> str:
    return f"1/{1 / width:g}" if width < 1 else f"{width:g}"
