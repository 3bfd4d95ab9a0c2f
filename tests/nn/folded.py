"""A model that folds time into the batch in every way that can be followed."""

from torch import Tensor, nn


class Followed(nn.Module):
    """Every kind of fold that can be followed, and nothing that mixes examples."""

    def __init__(self, *, recurs: bool = True) -> None:
        super().__init__()
        self.flat, self.time_flat, self.time_first = (nn.Linear(4, 4) for _ in range(3))
        self.windows, self.last = nn.Linear(4, 4), nn.Linear(4, 3)
        self.norm, self.conv = nn.LayerNorm(4), nn.Conv1d(4, 4, 3, padding=1)
        self.recurrent = nn.GRU(4, 4) if recurs else None

    def forward(self, x: Tensor) -> Tensor:
        n, t, f = x.shape
        y = self.norm(self.flat(x.reshape(n * t, f))).view(n, t, f).tanh()
        y = self.time_flat(y.transpose(0, 1).reshape(t * n, f)).view(t, n, f).tanh()
        y = self.time_first(y)
        y = (y if self.recurrent is None else self.recurrent(y)[0]).transpose(0, 1)
        windows = y.unflatten(1, (2, t // 2)).flatten(0, 1)
        windows = self.conv(self.windows(windows).mT).mT.tanh()
        return self.last(windows.reshape(n, t, f).mean(1))
