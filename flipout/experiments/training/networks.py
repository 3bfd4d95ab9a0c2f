"""The networks of the paper's appendix, with layers named as in its figures."""

from collections import OrderedDict
from itertools import pairwise

import torch
from torch import nn

from flipout.errors import InvalidArgument

VGG16 = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


class Binary(nn.Module):
    """Hard units, 0 or 1. Their gradient is 0 almost everywhere, so backpropagation cannot train the layers below."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x > 0).to(x.dtype)


def fc(inputs: int, hidden: tuple[int, ...], classes: int, unit: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Return a fully connected network, with ReLU or other units between its layers fc1, fc2, …"""
    layers: dict[str, nn.Module] = {"flatten": nn.Flatten()}
    for i, (width, following) in enumerate(pairwise((inputs, *hidden, classes)), 1):
        if i > 1:
            layers[f"{unit.__name__.lower()}{i - 1}"] = unit()
        layers[f"fc{i}"] = nn.Linear(width, following)
    return nn.Sequential(OrderedDict(layers))


def convle(
    image: tuple[int, int, int], classes: int, width: float = 1.0, unit: type[nn.Module] = nn.ReLU
) -> nn.Sequential:
    """Return ConvLe, after LeNet: conv1 (5×5×32), pool, conv2 (5×5×64), pool, fc1 (1024), fc2.

    Only the pools shrink the images. `width` scales every layer but the last, for networks that a CPU can train.
    """
    channels, height, breadth = image
    first, second, hidden = (max(int(full * width), 1) for full in (32, 64, 1024))
    layers: dict[str, nn.Module] = {}
    for i, (inputs, out) in enumerate(pairwise((channels, first, second)), 1):
        layers[f"conv{i}"] = nn.Conv2d(inputs, out, 5, padding=2)
        layers[f"{unit.__name__.lower()}{i}"] = unit()
        layers[f"pool{i}"] = nn.MaxPool2d(2)
    layers["flatten"] = nn.Flatten()
    layers["fc1"] = nn.Linear(second * (height // 4) * (breadth // 4), hidden)
    layers[f"{unit.__name__.lower()}3"] = unit()
    layers["fc2"] = nn.Linear(hidden, classes)
    return nn.Sequential(OrderedDict(layers))


def convgg(classes: int, width: float = 1.0, channels: int = 3) -> nn.Sequential:
    """Return VGG16 for 32×32 images, without batch-norm and dropout: conv1 … conv13, fc1 (512 → 4096), fc2, fc3.

    `width` scales every layer but the last, for networks that a CPU can train.
    """
    layers: dict[str, nn.Module] = {}
    number = 0
    for block, widths in enumerate(VGG16, 1):
        for full in widths:
            number += 1
            out = max(int(full * width), 1)
            layers[f"conv{number}"] = nn.Conv2d(channels, out, 3, padding=1)
            layers[f"relu{number}"] = nn.ReLU()
            channels = out
        layers[f"pool{block}"] = nn.MaxPool2d(2, ceil_mode=True)
    layers["flatten"] = nn.Flatten()
    hidden = max(int(4096 * width), 1)
    for i, (size, following) in enumerate(pairwise((channels, hidden, hidden, classes)), 1):
        layers[f"fc{i}"] = nn.Linear(size, following)
        if i < 3:
            layers[f"relu{13 + i}"] = nn.ReLU()
    network = nn.Sequential(OrderedDict(layers))
    for layer in network:
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)
    return network


@torch.no_grad()
def truncated_normal(model: nn.Module, std: float = 0.1, bias: float = 0.1) -> None:
    """Initialise layers as the tutorials of 2017 did: N(0, std²), cut off at two of std, and constant biases."""
    for layer in model.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
            if layer.bias is not None:
                nn.init.constant_(layer.bias, bias)


def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor, batch: int = 2000) -> float:
    """Return the share of right answers."""
    with torch.no_grad():
        right = sum(int((model(a).argmax(1) == b).sum()) for a, b in zip(x.split(batch), y.split(batch), strict=True))
    return right / len(x)


class LanguageModel(nn.Module):
    """Embedding, LSTM and decoder. Tied, the LSTM is as wide as the embedding."""

    def __init__(self, words: int, embedding: int, hidden: int, layers: int, tied: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.decoder = nn.Linear(hidden, words)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
        if tied:
            if embedding != hidden:
                raise InvalidArgument(
                    f"tied embeddings of width {embedding} on {hidden} units: give both one width, or do not tie them."
                )
            self.decoder.weight = self.embedding.weight

    def run(
        self, words: torch.Tensor, state: tuple[torch.Tensor, ...] | None
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Return logits (N, time, vocabulary) for words (N, time), and the last state."""
        hidden, last = self.lstm(self.embedding(words), state)
        return self.decoder(hidden), last

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.run(words, None)[0]
