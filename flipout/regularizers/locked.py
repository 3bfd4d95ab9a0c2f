"""Locked dropout: one mask per sequence, the same at every time step."""

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..errors import InvalidInput
from ..ops.sequences import Sequences
from .masks import mask, probabilities


class LockedDropout(nn.Module):
    """Each feature of a sequence is dropped with probability p, over all its time steps: of (time, N, features),
    (N, time, features) with `batch_first`, (time, features), or a PackedSequence."""

    def __init__(self, p: float, batch_first: bool = False) -> None:
        super().__init__()
        (self.p,) = probabilities(self, p=p)
        self.batch_first = batch_first

    def forward(self, input: Tensor | PackedSequence) -> Tensor | PackedSequence:
        data, dims = (input.data, (2,)) if isinstance(input, PackedSequence) else (input, (2, 3))
        if data.dim() not in dims or not data.is_floating_point():
            layout = "(N, time, features)" if self.batch_first else "(time, N, features)"
            raise InvalidInput(
                f"LockedDropout: input of shape {tuple(data.shape)} and dtype {data.dtype}; expected floating-point "
                f"{layout}, (time, features) for one sequence, or a PackedSequence of such."
            )
        if not (self.training and self.p):
            return input
        sequences = Sequences.of(input, self.batch_first)
        x = sequences.x
        return sequences.outputs(x * mask(self.p, x, (len(x), 1, x.shape[-1])))

    def extra_repr(self) -> str:
        return f"p={self.p}, batch_first={self.batch_first}"
