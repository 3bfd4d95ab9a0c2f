"""The record of one generation."""

from dataclasses import dataclass, fields


@dataclass(frozen=True, repr=False)
class Generation:
    """Summary of one generation: the fitness of its members and the step that the weights took."""

    generation: int  # Index of the generation, from 0.
    fitness_mean: float  # Mean over the members with a finite fitness.
    fitness_max: float  # Largest finite fitness.
    update_norm: float  # Norm of the change of all weights.
    members: int  # Number of members evaluated.
    missing: int  # Number of members without a finite fitness.
    seconds: float  # Duration of evaluation and update.

    @property
    def members_per_second(self) -> float:
        """Members divided by the duration of evaluation and update."""
        return self.members / self.seconds if self.seconds else float("inf")

    def __str__(self) -> str:
        missing = f", {self.missing} missing" if self.missing else ""
        return (
            f"generation {self.generation}: fitness {self.fitness_mean:.4g} (max {self.fitness_max:.4g}), update "
            f"{self.update_norm:.3g}, {self.members_per_second:.0f} members/s{missing}"
        )

    def __repr__(self) -> str:
        return f"Generation({', '.join(f'{field.name}={getattr(self, field.name):.4g}' for field in fields(self))})"
