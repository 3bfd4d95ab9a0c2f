"""The data sets have the published counts. Embedded defaults replace them, and say so."""

import pytest
import torch
from torch import Tensor

from flipout.errors import DataError, InvalidArgument
from flipout.experiments import data
from flipout.experiments.data import files, formats, sets
from flipout.experiments.data.checksums import CIFAR10


def counts(labels: Tensor) -> list[int]:
    return labels.bincount(minlength=10).tolist()


def decoded(text: data.Text, part: Tensor) -> list[str]:
    return [text.vocabulary[token] for token in part.tolist()]


def check_images(images: data.Images, shape: tuple[int, int, int], train: int, test: int) -> None:
    assert (images.x_train.shape, images.x_test.shape) == ((train, *shape), (test, *shape))
    assert images.x_train.dtype == images.x_test.dtype == torch.uint8
    assert images.y_train.dtype == images.y_test.dtype == torch.int64
    assert (len(images.y_train), len(images.y_test)) == (train, test)
    assert (int(images.x_train.min()), int(images.x_train.max())) == (0, 255)
    assert len(images.classes) == 10


def check_text(text: data.Text) -> None:
    for part in (text.train, text.valid, text.test):
        assert part.dtype == torch.int64
        assert 0 <= int(part.min()) <= int(part.max()) < len(text.vocabulary)
    frequency = text.train.bincount(minlength=len(text.vocabulary))
    assert frequency.min() > 0
    assert (frequency.diff() <= 0).all()


@pytest.mark.usefixtures("real_data")
def test_mnist():
    images = data.mnist()
    check_images(images, (1, 28, 28), 60_000, 10_000)
    assert counts(images.y_train) == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert counts(images.y_test) == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert images.x_train.double().mean() / 255 == pytest.approx(0.1307, abs=1e-4)
    assert images.source == "MNIST: the folder in FLIPOUT_DATA, checksums verified"


def test_one_batch_of_cifar10(real_data):
    content = files.read(real_data, CIFAR10.files[-1], "")
    x, y = formats.records(content)
    assert (x.shape, x.dtype, y.dtype) == ((10_000, 3, 32, 32), torch.uint8, torch.int64)
    assert counts(y) == [1000] * 10
    for n, c, i, j in [(0, 0, 0, 0), (7, 0, 3, 5), (7, 1, 31, 0), (9_999, 2, 31, 31)]:
        assert y[n] == content[3073 * n]
        assert x[n, c, i, j] == content[3073 * n + 1 + 1024 * c + 32 * i + j]


@pytest.mark.slow
@pytest.mark.usefixtures("real_data")
def test_cifar10():
    images = data.cifar10()
    check_images(images, (3, 32, 32), 50_000, 10_000)
    assert counts(images.y_train) == [5000] * 10
    assert counts(images.y_test) == [1000] * 10
    scaled = images.x_train.double() / 255
    torch.testing.assert_close(
        scaled.mean((0, 2, 3)), torch.tensor([0.49140, 0.48216, 0.44653]).double(), atol=1e-5, rtol=0
    )
    torch.testing.assert_close(
        scaled.std((0, 2, 3)), torch.tensor([0.24703, 0.24349, 0.26159]).double(), atol=1e-5, rtol=0
    )


@pytest.mark.usefixtures("real_data")
def test_ptb_words():
    text = data.ptb_words()
    check_text(text)
    assert [len(part) for part in (text.train, text.valid, text.test)] == [929_589, 73_760, 82_430]
    assert len(text.vocabulary) == 10_000
    ends = text.vocabulary.index("<eos>")
    assert [int((part == ends).sum()) for part in (text.train, text.valid, text.test)] == [42_068, 3_370, 3_761]
    assert decoded(text, text.valid[:8]) == ["consumers", "may", "want", "to", "move", "their", "telephones", "a"]
    assert text.source == "Penn Treebank, words: the folder in FLIPOUT_DATA, checksums verified"


@pytest.mark.usefixtures("real_data")
def test_ptb_characters():
    text = data.ptb_characters()
    check_text(text)
    parts = [text.train, text.valid, text.test]
    assert [len(part) for part in parts] == [5_017_482, 393_042, 442_423]
    assert [len(part.unique()) for part in parts] == [50, 50, 48]
    ends = text.vocabulary.index("\n")
    assert [int((part != ends).sum()) for part in parts] == [4_975_414, 389_672, 438_662]
    assert "".join(decoded(text, text.valid[:24])) == "consumers_may_want_to_mo"
    assert "<unk>" not in text.vocabulary
    assert "_<unk>_" in "".join(decoded(text, text.valid[:1000]))


def test_digits():
    images = data.digits()
    check_images(images, (1, 8, 8), 1437, 360)
    assert min(counts(images.y_test)) >= 33
    assert len(images.x_train.unique()) == 17
    assert "embedded" in images.source


@pytest.mark.parametrize("load", [data.embedded_words, data.embedded_characters])
def test_embedded_text(load):
    text = load()
    check_text(text)
    assert len(text.train) > 10 * len(text.valid) > 0
    assert len(text.train) > 10 * len(text.test) > 0
    assert (text.test == text.vocabulary.index("<unk>")).double().mean() < 0.1
    assert "pydoc_data.topics" in text.source
    assert "embedded" in text.source


def test_embedded_text_reads_as_text():
    characters, words = data.embedded_characters(), data.embedded_words()
    assert "the following" in "".join(decoded(characters, characters.train))
    assert " the following " in (train := " ".join(decoded(words, words.train)))
    assert " . <eos> " in train


def test_no_paragraph_is_in_two_parts():
    parts = [set(part.split("\n\n")) - {""} for part in sets._topics()]
    assert len(set.union(*parts)) == sum(map(len, parts))


def test_defaults_stand_in_for_what_is_not_here():
    assert data.images("mnist", embedded=True).source.endswith("in place of MNIST")
    assert data.images("cifar10", embedded=True).x_train.shape == (1437, 1, 8, 8)
    assert data.text("ptb_words", embedded=True).source.endswith("in place of Penn Treebank, words")
    assert "<eos>" not in data.text("ptb_characters", embedded=True).vocabulary


@pytest.mark.usefixtures("real_data")
def test_real_data_comes_before_a_default():
    assert data.images("mnist", embedded=True).x_train.shape == (60_000, 1, 28, 28)
    assert len(data.text("ptb_words", embedded=True).vocabulary) == 10_000


def test_a_default_does_not_hide_an_incomplete_folder(tmp_path, monkeypatch):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(b"")
    monkeypatch.setenv(files.VARIABLE, str(tmp_path))
    with pytest.raises(DataError, match="train-images-idx3-ubyte is missing"):
        data.images("mnist", embedded=True)


def test_names():
    assert data.images("digits").classes == sets.DIGITS
    assert "<eos>" in data.text("embedded_words").vocabulary
    assert "<eos>" not in data.text("embedded_characters").vocabulary
    with pytest.raises(InvalidArgument, match="mnist, cifar10, digits"):
        data.images("imagenet")
    with pytest.raises(InvalidArgument, match="ptb_words, ptb_characters, embedded_words"):
        data.text("wikitext")
