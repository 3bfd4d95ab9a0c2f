"""Language models of the paper's tables: LSTM layers with dropout around them, regularised as a row says."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from flipout import regularizers as rival
from flipout.errors import InvalidArgument

from ..running.experiment import check_least

State = tuple[tuple[Tensor, Tensor], ...]  # (h, c) of each layer: (1, N, width)


@dataclass(frozen=True)
class Shape:
    """The widths of a model. If the decoder is tied, the last layer is as wide as the embedding."""

    embedding: int = 650  # 0: one-hot
    hidden: int = 650
    layers: int = 2
    orthogonal: bool = False  # initial weights of each gate; else U(±1/√fan_in)
    stacked: bool = False  # the four gates of a weight are one orthogonal matrix, instead of four
    forget_bias: float = 0.0  # initial bias of the forget gate
    output_bias: Literal["zero", "uniform", "none"] = "zero"  # of the decoder, initially

    def __post_init__(self) -> None:
        check_least(self, "shape.", embedding=0, hidden=1, layers=1)


@dataclass(frozen=True)
class DropoutRates:
    """Probabilities of dropout. Masks are locked over the time steps of a window, or drawn for each step."""

    words: float = 0.0  # whole rows of the embedding
    inputs: float = 0.0
    between: float = 0.0  # between layers
    outputs: float = 0.0
    locked: bool = True
    words_of: Literal["batch", "example"] = "batch"  # who shares the words that are dropped

    def module(self, p: float) -> nn.Module:
        return rival.LockedDropout(p, batch_first=True) if self.locked else nn.Dropout(p)


class ModelOutput(NamedTuple):
    logits: Tensor  # (N, time, tokens)
    state: State
    raw: Tensor  # (N, time, width): the output of the last layer
    output: Tensor  # raw, under dropout: the input of the decoder


class Decoder(nn.Linear):
    """A linear layer that pads its input features with zeros on a GPU, where rows of other than 16 bytes are slow."""

    _LARGE = 2**18  # numbers: below it, padding costs more than it saves

    def forward(self, input: Tensor) -> Tensor:
        weight = self.weight.to(input.dtype)
        bias = None if self.bias is None else self.bias.to(input.dtype)
        missing = -self.in_features % (16 // input.itemsize)
        if missing and input.is_cuda and input.numel() > self._LARGE:
            input, weight = F.pad(input, (0, missing)), F.pad(weight, (0, missing))
        return F.linear(input.contiguous(), weight, bias)


class RegularizedModel(nn.Module):
    """Embedding or one-hot input, LSTM layers, decoder. One call takes one window: tokens (N, time)."""

    def __init__(
        self,
        tokens: int,
        shape: Shape,
        drop: DropoutRates,
        lstm: Callable[..., nn.LSTM] = nn.LSTM,
        tied: bool = False,
        eval_factor: float = 1.0,
    ) -> None:
        super().__init__()
        self.eval_factor = eval_factor  # of the hidden-to-hidden weights, in eval mode
        if tied and not shape.embedding:
            raise InvalidArgument("a tied decoder needs an embedding, not one-hot input: give shape.embedding ≥ 1.")
        self.drop = drop
        self.embedding = nn.Embedding(tokens, shape.embedding) if shape.embedding else None
        self.register_buffer("one_hot", None if shape.embedding else torch.eye(tokens), persistent=False)
        widths = [shape.embedding or tokens, *[shape.hidden] * (shape.layers - 1), shape.hidden]
        widths[-1] = shape.embedding if tied else shape.hidden
        self.layers = nn.ModuleList(lstm(before, after, batch_first=True) for before, after in pairwise(widths))
        self.widths = widths[1:]
        self.inputs, self.between, self.outputs = map(drop.module, (drop.inputs, drop.between, drop.outputs))
        self.decoder = Decoder(widths[-1], tokens, bias=shape.output_bias != "none")
        self._initialise(shape)
        if tied:
            assert self.embedding is not None
            self.decoder.weight = self.embedding.weight

    def forward(self, tokens: Tensor, state: State) -> ModelOutput:
        x, last = self.inputs(self._encoded(tokens)), []
        for i, layer in enumerate(self.layers):
            x, layer_state = self._layer(layer, self.between(x) if i else x, state[i])
            last.append(layer_state)
        output = self.outputs(x)
        return ModelOutput(self.decoder(output), tuple(last), x, output)

    def start(self, count: int) -> State:
        """Return a zero state for `count` streams."""
        like = self.decoder.weight
        return tuple((like.new_zeros(1, count, width), like.new_zeros(1, count, width)) for width in self.widths)

    @property
    def size(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def _layer(self, layer: nn.Module, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        if self.training or self.eval_factor == 1.0:
            return layer(x, state)
        weights = {name: weight for name, weight in layer.named_parameters() if name.startswith("weight_hh")}
        scaled = {name: self.eval_factor * weight for name, weight in weights.items()}
        return functional_call(layer, scaled, (x, state))

    def _encoded(self, tokens: Tensor) -> Tensor:
        if self.embedding is None:
            return F.embedding(tokens, self.get_buffer("one_hot"))
        if self.drop.words_of == "batch":
            return rival.embedding_dropout(self.embedding, tokens, self.drop.words, self.training)
        x = self.embedding(tokens)
        if not (self.training and self.drop.words):
            return x
        kept = torch.full((len(tokens), self.embedding.num_embeddings), 1 - self.drop.words, device=x.device)
        factors = torch.bernoulli(kept).gather(1, tokens) / (1 - self.drop.words)
        return x * factors.unsqueeze(2).to(x.dtype)

    @torch.no_grad()
    def _initialise(self, shape: Shape) -> None:
        if self.embedding is not None:
            nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        bound = 0.1 if self.embedding is not None else 1 / math.sqrt(self.decoder.in_features)
        nn.init.uniform_(self.decoder.weight, -bound, bound)
        if shape.output_bias == "zero":
            nn.init.zeros_(self.decoder.bias)
        elif shape.output_bias == "uniform":
            nn.init.uniform_(self.decoder.bias, -bound, bound)
        for layer, width in zip(self.layers, self.widths, strict=True):
            for name, parameter in layer.named_parameters():
                fan_in = parameter.shape[1] if parameter.dim() > 1 else width
                nn.init.uniform_(parameter, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))
                gates = parameter.chunk(4)
                if parameter.dim() == 1 and (shape.orthogonal or shape.forget_bias):
                    nn.init.zeros_(parameter)
                    gates[1].fill_(shape.forget_bias if name.startswith("bias_ih") else 0.0)
                elif shape.orthogonal:
                    for matrix in (parameter,) if shape.stacked else gates:
                        nn.init.orthogonal_(matrix)
