"""What a generation came to."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Generation:
    """The fitness of the members that had a finite one, and the step that the weights took."""

    generation: int  # counted from 0
    fitness_mean: float  # over these members
    fitness_max: float  # the best of them
    update_norm: float  # of the change of all weights
    members: int  # of the generation
    missing: int  # members without a finite fitness
    seconds: float  # evaluation and update

    @property
    def members_per_second(self) -> float:
        """Of evaluation and update together."""
        return self.members / self.seconds if self.seconds else float("inf")

    def __str__(self) -> str:
        lost = f", {self.missing} missing" if self.missing else ""
        return (
            f"generation {self.generation}: fitness {self.fitness_mean:.4g} (max {self.fitness_max:.4g}), update "
            f"{self.update_norm:.3g}, {self.members_per_second:.0f} members/s{lost}"
        )
