"""The data sets of the experiments. `source` says which data is in use: the published data, or an embedded default.

Images are uint8 from 0 to 255, of shape (examples, channels, height, width); labels are int64. Texts are int64 indices
into a vocabulary that is sorted from the most to the least frequent token of the training text.
"""

import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from flipout.errors import InvalidArgument

from ..extras import import_extra
from . import checksums, files, formats
from .files import Contents

DIGITS = tuple("0123456789")
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
DIGITS_TRAIN = 1437  # of 1,797, in the order of scikit-learn
RARE = 3  # a token that the embedded training text has less often is <unk>


@dataclass(frozen=True, eq=False)
class Images:
    """A data set of images: x (N, C, H, W) uint8, y (N,) int64. `source` says which data it is."""

    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    classes: tuple[str, ...]
    source: str


@dataclass(frozen=True, eq=False)
class Text:
    """A text: tokens (length,) int64, indices into `vocabulary`. `source` says which data it is."""

    train: Tensor
    valid: Tensor
    test: Tensor
    vocabulary: tuple[str, ...]
    source: str


def images(name: str, *, embedded: bool = False) -> Images:
    """Load a data set of images.

    Args:
        name: `mnist`, `cifar10` or `digits`.
        embedded: Download nothing. If the files are not on this machine, use `digits` instead.

    Returns:
        The images, whose `source` says which data was found.

    Raises:
        InvalidArgument: There is no data set of this name.
        DataError: A file is broken, or could not be downloaded.

    Example:
        >>> from flipout.experiments import data
        >>> images = data.images("digits")
        >>> x = data.standardised(images.x_train)
    """
    if name == "digits":
        return digits()
    known = {"mnist": (checksums.MNIST, _mnist), "cifar10": (checksums.CIFAR10, _cifar10)}
    if name not in known:
        raise InvalidArgument(f"There are no images called {name!r}: use one of {', '.join([*known, 'digits'])}.")
    data_set, parse = known[name]
    contents = files.local(data_set) if embedded else files.resolve(data_set)
    if contents is None:
        default = digits()
        return replace(default, source=f"{default.source}, in place of {data_set.title}")
    return parse(contents)


def text(name: str, *, embedded: bool = False) -> Text:
    """Load a text.

    Args:
        name: `ptb_words`, `ptb_characters`, `embedded_words` or `embedded_characters`.
        embedded: Download nothing. If the files are not on this machine, use the embedded text instead.

    Returns:
        The text, whose `source` says which data was found.

    Raises:
        InvalidArgument: There is no text of this name.
        DataError: A file is broken, or could not be downloaded.

    Example:
        >>> from flipout.experiments import data
        >>> text = data.text("embedded_words")
        >>> words = [text.vocabulary[token] for token in text.train[:5]]
    """
    defaults = {"embedded_words": embedded_words, "embedded_characters": embedded_characters}
    if name in defaults:
        return defaults[name]()
    known = {
        "ptb_words": (checksums.PTB_WORDS, _ptb_words, embedded_words),
        "ptb_characters": (checksums.PTB_CHARACTERS, _ptb_characters, embedded_characters),
    }
    if name not in known:
        raise InvalidArgument(f"There is no text called {name!r}: use one of {', '.join([*known, *defaults])}.")
    data_set, parse, stand_in = known[name]
    contents = files.local(data_set) if embedded else files.resolve(data_set)
    if contents is None:
        default = stand_in()
        return replace(default, source=f"{default.source}, in place of {data_set.title}")
    return parse(contents)


def mnist() -> Images:
    """Load MNIST: 60,000 + 10,000 handwritten digits, 1×28×28."""
    return images("mnist")


def cifar10() -> Images:
    """Load CIFAR-10: 50,000 + 10,000 photographs, 3×32×32."""
    return images("cifar10")


def digits() -> Images:
    """Load scikit-learn's handwritten digits, 1×8×8, with 17 grey levels from 0 to 255 and a test set of 360."""
    grey, labels = import_extra("sklearn.datasets", "data.digits", "experiments").load_digits(return_X_y=True)
    x = torch.from_numpy(np.rint(np.asarray(grey) * (255 / 16)).astype(np.uint8)).view(-1, 1, 8, 8)
    y = torch.from_numpy(np.asarray(labels, np.int64))
    source = "scikit-learn's digits (embedded default: 8×8 pictures, neither MNIST nor CIFAR-10)"
    train, test = slice(DIGITS_TRAIN), slice(DIGITS_TRAIN, None)
    return Images(x[train], y[train], x[test], y[test], DIGITS, source)


def ptb_words() -> Text:
    """Load Mikolov's Penn Treebank by words; the end of a line is the word `<eos>`."""
    return text("ptb_words")


def ptb_characters() -> Text:
    """Load Mikolov's Penn Treebank by characters; a blank is `_`, the end of a line `\\n`, `<unk>` five characters."""
    return text("ptb_characters")


def embedded_words() -> Text:
    """Load the manual pages of Python's `help`: words in lower case, punctuation, and `<eos>` for the end of a line."""
    marked = (part.lower().replace("\n", " <eos> ") for part in _topics())
    return _text([re.findall(r"<eos>|\w+|[^\w\s]", part) for part in marked], _topics_source(), RARE)


def embedded_characters() -> Text:
    """Load the manual pages of Python's `help` by characters."""
    return _text(_topics(), _topics_source(), RARE)


def standardised(x: Tensor, by: Tensor | None = None) -> Tensor:
    """Standardise images per channel.

    Args:
        x: Images (N, C, H, W).
        by: The images whose mean and standard deviation are used; x itself unless given.

    Returns:
        Floating-point images (N, C, H, W).
    """
    reference, over = (x if by is None else by).float(), (0, 2, 3)
    return (x.float() - reference.mean(over, keepdim=True)) / reference.std(over, keepdim=True)


def _mnist(contents: Contents) -> Images:
    x_train, y_train, x_test, y_test = map(formats.idx, contents.files)
    return Images(x_train[:, None], y_train.long(), x_test[:, None], y_test.long(), DIGITS, contents.source)


def _cifar10(contents: Contents) -> Images:
    x, y = zip(*map(formats.records, contents.files), strict=True)
    return Images(torch.cat(x[:-1]), torch.cat(y[:-1]), x[-1], y[-1], CIFAR10, contents.source)


def _ptb_words(contents: Contents) -> Text:
    return _text([formats.words(part) for part in contents.files], contents.source)


def _ptb_characters(contents: Contents) -> Text:
    return _text([formats.characters(part) for part in contents.files], contents.source)


def _text(splits: Sequence[Sequence[str]], source: str, rare: int = 1) -> Text:
    (train, valid, test), vocabulary = formats.encode(splits, rare)
    return Text(train, valid, test, vocabulary, source)


def _topics() -> list[str]:
    """Return training, validation and test text. The pages repeat one another, so distinct paragraphs are dealt out."""
    from pydoc_data.topics import topics

    paragraphs = dict.fromkeys(part for page in topics.values() for part in page.strip("\n").split("\n\n"))
    dealt: list[list[str]] = [[], [], []]
    for number, paragraph in enumerate(paragraphs):
        dealt[{9: 1, 19: 2}.get(number % 20, 0)].append(paragraph + "\n\n")
    return ["".join(part) for part in dealt]


def _topics_source() -> str:
    return f"pydoc_data.topics of Python {platform.python_version()} (embedded default: not the Penn Treebank)"
