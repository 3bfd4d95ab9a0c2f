"""Turn the bytes or the tokens of a data set into tensors."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

UNKNOWN = "<unk>"


def idx(content: bytes) -> Tensor:
    """Parse MNIST's format: three bytes for the type, the number of dimensions, each in four bytes, then the values."""
    dimensions = content[3]
    shape = np.frombuffer(content, ">u4", dimensions, offset=4).tolist()
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape).copy())


def records(content: bytes) -> tuple[Tensor, Tensor]:
    """Parse CIFAR-10's binary version: per record one label byte, then 32×32 red, green and blue bytes."""
    rows = np.frombuffer(content, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    x = torch.from_numpy(rows[:, 1:].copy()).view(-1, 3, 32, 32)
    return x, torch.from_numpy(rows[:, 0].astype(np.int64))


def words(content: bytes) -> list[str]:
    return content.decode().replace("\n", " <eos> ").split()


def characters(content: bytes) -> str:
    return content.decode()[::2]


def encode(splits: Sequence[Sequence[str]], rare: int = 1) -> tuple[list[Tensor], tuple[str, ...]]:
    """Return indices and vocabulary. A token that the first split has fewer than `rare` times becomes `<unk>`."""
    if rare > 1:
        known = {token for token, count in Counter(splits[0]).items() if count >= rare}
        splits = [[token if token in known else UNKNOWN for token in split] for split in splits]
    counts = Counter(splits[0])
    vocabulary = tuple(sorted(counts, key=lambda token: (-counts[token], token)))
    index = {token: number for number, token in enumerate(vocabulary)}
    encoded = [np.fromiter(map(index.__getitem__, split), np.int64, len(split)) for split in splits]
    return [torch.from_numpy(split) for split in encoded], vocabulary
