"""A sharded training run in pieces, one of whose ranks may be killed: python -m tests.scaling.restarted FOLDER [kill]

The first rank keeps the run: a piece for each epoch, written once the ranks have saved their distributed checkpoint.
"""

import os
import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from flipout.experiments.running.folder import open_run
from flipout.experiments.running.progress import Progress
from tests.ranks import leave
from tests.scaling.models import elbo_of, optimizer_of, reader, train
from tests.scaling.torchrun import joined
from tests.scaling.two_ranks import shard, whole

EPOCHS = 4
SETTINGS = {"seed": 3, "device": "cpu"}


class Training:
    def __init__(self, folder: Path, rank: int, killed: bool) -> None:
        self.folder, self.rank, self.killed = folder, rank, killed
        self.model = shard(reader())
        self.elbo, self.optimizer = elbo_of(self.model), optimizer_of(self.model)
        self.epoch = 0  # that the model stands at the beginning of

    def go(self, epoch: int, seed: int) -> list[float]:
        """An epoch, from where the last one ended; its losses."""
        if self.epoch != epoch:
            self.load(self.folder / f"checkpoint {epoch - 1}")
        torch.manual_seed(seed)
        losses = []
        for step in range(2):
            if self.killed and (self.rank, epoch, step) == (1, 2, 1):
                os.kill(os.getpid(), signal.SIGKILL)
            here = slice(4 * self.rank, 4 * self.rank + 4)
            losses += [loss.item() for loss, _ in train(self.elbo, self.optimizer, here, 1)]
        self.epoch = epoch + 1
        dcp.save(self.state(), checkpoint_id=self.folder / f"checkpoint {epoch}")
        return losses

    def state(self) -> dict[str, Any]:
        parameters, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": parameters, "optimizer": optimizer}

    def load(self, checkpoint: Path) -> None:
        state = self.state()
        dcp.load(state, checkpoint_id=checkpoint)
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


def told(order: tuple[int, int] | None) -> tuple[int, int] | None:
    """What the first rank says: the epoch to go through and its seed, or that there are no more."""
    box = [order]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def main(folder: Path, killed: bool) -> None:
    rank, first = joined(), os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    training = Training(folder, rank, killed and first)
    keeping = open_run(folder / "run", SETTINGS, resume=True, progress=Progress()) if rank == 0 else nullcontext()
    losses, made = [], []
    with keeping as run:
        if run is None:
            while (order := told(None)) is not None:
                training.go(*order)
        else:
            for epoch in range(EPOCHS):

                def make(epoch: int = epoch) -> list[float]:
                    made.append(epoch)
                    order = told((epoch, run.seed_of(f"epoch {epoch}")))
                    assert order is not None
                    return training.go(*order)

                losses.append(run.piece(f"epoch {epoch}", make))
            told(None)
    numbers = whole(training.model)
    if rank == 0:
        torch.save({"losses": losses, "numbers": numbers, "made": made}, folder / "0.pt")
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] == ["kill"])
