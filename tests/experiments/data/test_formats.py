"""Bytes and tokens of data sets become tensors."""

import struct

import torch

from flipout.experiments.data.formats import UNKNOWN, characters, encode, idx, records, words


def test_idx_has_its_shape_in_front() -> None:
    content = bytes([0, 0, 8, 2]) + struct.pack(">II", 2, 3) + bytes(range(6))
    assert torch.equal(idx(content), torch.arange(6, dtype=torch.uint8).view(2, 3))


def test_records_are_a_label_and_three_colours() -> None:
    colours = bytes([1]) * 1024 + bytes([2]) * 1024 + bytes([3]) * 1024
    x, y = records(bytes([7]) + colours + bytes([9]) + colours)
    assert y.tolist() == [7, 9]
    assert x.shape == (2, 3, 32, 32)
    assert x[1].flatten(1).unique(dim=1).flatten().tolist() == [1, 2, 3]


def test_words_and_characters() -> None:
    assert words(b" a b\n c\n") == ["a", "b", "<eos>", "c", "<eos>"]
    assert characters(b"a _ b ") == "a_b"


def test_tokens_are_numbered_by_how_often_they_occur() -> None:
    (train, test), vocabulary = encode([["b", "a", "b"], ["a", "b"]])
    assert vocabulary == ("b", "a")
    assert (train.tolist(), test.tolist()) == ([0, 1, 0], [1, 0])
    (train, test), vocabulary = encode([["b", "a", "b"], ["c", "b"]], rare=2)
    assert vocabulary == ("b", UNKNOWN)
    assert (train.tolist(), test.tolist()) == ([0, 1, 0], [1, 0])
