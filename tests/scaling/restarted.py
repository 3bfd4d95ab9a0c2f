"""A sharded training run in pieces, in which a rank may be killed.

python -m tests.scaling.restarted FOLDER [RANK EPOCH STEP]: the rank dies in this epoch, before this step.

The first rank keeps the run. Each epoch is a piece, written after the ranks have saved their distributed checkpoint.
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
from flipout.experiments.running.progress import RunProgress
from tests.ranks import leave
from tests.scaling.models import elbo_of, optimizer_of, reader, train
from tests.scaling.torchrun import joined
from tests.scaling.two_ranks import full_state, shard

EPOCHS = 4
SETTINGS = {"seed": 3, "device": "cpu"}


class Training:
    def __init__(self, folder: Path, rank: int, killed: tuple[int, ...]) -> None:
        self.folder, self.rank, self.killed = folder, rank, killed
        self.model = shard(reader())
        self.elbo, self.optimizer = elbo_of(self.model), optimizer_of(self.model)
        self.epoch = 0  # the next epoch of the model

    def train_epoch(self, epoch: int, seed: int) -> list[float]:
        """Train for an epoch, from the end of the last one. Return its losses."""
        if self.epoch != epoch:
            self.load(self.folder / f"checkpoint {epoch - 1}")
        torch.manual_seed(seed)
        losses = []
        for step in range(2):
            if (self.rank, epoch, step) == self.killed:
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


def broadcast(order: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return the order of the first rank on all ranks: an epoch and its seed, or None at the end."""
    box = [order]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def main(folder: Path, killed: tuple[int, ...]) -> None:
    rank, is_first_attempt = joined(), os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    training = Training(folder, rank, killed if is_first_attempt else ())
    keeping = open_run(folder / "run", SETTINGS, resume=True, progress=RunProgress()) if rank == 0 else nullcontext()
    losses, trained_epochs = [], []
    with keeping as run:
        if run is None:
            while (order := broadcast(None)) is not None:
                training.train_epoch(*order)
        else:
            for epoch in range(EPOCHS):

                def train_one(epoch: int = epoch) -> list[float]:
                    trained_epochs.append(epoch)
                    order = broadcast((epoch, run.seed_of(f"epoch {epoch}")))
                    assert order is not None
                    return training.train_epoch(*order)

                losses.append(run.piece(f"epoch {epoch}", train_one))
            broadcast(None)
    state = full_state(training.model)
    if rank == 0:
        torch.save({"losses": losses, "state": state, "epochs": trained_epochs}, folder / "0.pt")
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), tuple(map(int, sys.argv[2:])))
