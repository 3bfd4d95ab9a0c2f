"""An LSTM over characters, plain and with weight noise: python examples/weight_noise_text.py --noise dropconnect"""

import argparse
import math

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import flipout
from flipout.experiments import data

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--noise", choices=["none", "gaussian", "dropconnect"], default="gaussian")
parser.add_argument("--scheme", default="flipout")
parser.add_argument("--characters", type=int, default=20_000, help="length of the training text")
parser.add_argument("--units", type=int, default=128)
parser.add_argument("--epochs", type=int, default=20)
NOISE = {"none": None, "gaussian": flipout.MultiplicativeGaussian(0.5), "dropconnect": flipout.DropConnect(0.5)}
WINDOW = 50


class Characters(nn.Module):
    def __init__(self, characters: int, units: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, 32)
        self.lstm = nn.LSTM(32, units, batch_first=True)
        self.decoder = nn.Linear(units, characters)

    def forward(self, tokens: Tensor) -> Tensor:  # (N, time) → (N, time, characters)
        return self.decoder(self.lstm(self.embedding(tokens))[0])


def windows(text: Tensor) -> tuple[Tensor, Tensor]:
    count = (len(text) - 1) // WINDOW
    return text[: count * WINDOW].view(-1, WINDOW), text[1 : count * WINDOW + 1].view(-1, WINDOW)


def bits(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the loss per character, at the mean weights."""
    model.eval()
    with torch.no_grad():
        return cross_entropy(model(x).flatten(0, 1), y.flatten()).item() / math.log(2)


def main() -> None:
    options = parser.parse_args()
    torch.manual_seed(0)
    text = data.embedded_characters()
    model = Characters(len(text.vocabulary), options.units)
    if (noise := NOISE[options.noise]) is not None:
        flipout.perturb(model, noise, scheme=options.scheme, where="lstm.weight_hh*")
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    x, y = windows(text.train[: options.characters])
    held_out = windows(text.valid[:10_000])
    for epoch in range(options.epochs):
        model.train()
        for batch in torch.randperm(len(x)).split(32):
            optimizer.zero_grad()
            cross_entropy(model(x[batch]).flatten(0, 1), y[batch].flatten()).backward()
            optimizer.step()
        train, valid = bits(model, x, y), bits(model, *held_out)
        print(f"epoch {epoch}: {train:.3f} bits per character in training, {valid:.3f} held out")


if __name__ == "__main__":
    main()
