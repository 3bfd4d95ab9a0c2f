"""The paper's variance decomposition: α, β and γ of each Parameter, and the variances that they predict."""

import math
from dataclasses import dataclass

from ..errors import InvalidArgument


@dataclass(frozen=True)
class Term:
    """An estimate with its standard error."""

    value: float  # the estimate
    error: float  # its standard error
    freedom: float = math.inf  # degrees of freedom of the error

    def __repr__(self) -> str:
        return f"Term({self.value:.4g} ± {self.error:.2g})"


@dataclass(frozen=True)
class Decomposition:
    """The three terms of a Parameter's gradient variance, averaged over its entries.

    α is the variance of one example's gradient. β is the covariance between two examples that shared signs cause;
    flipout removes it. γ is the covariance that a shared ΔŴ causes and that flipout keeps.
    """

    parameter: str  # name of the Parameter, with the gate of an LSTM's weights in brackets
    alpha: Term  # α
    beta: Term  # β
    gamma: Term  # γ
    both: Term  # β + γ, estimated directly because the errors of β and γ are not independent

    def __repr__(self) -> str:
        terms = {"α": self.alpha, "β": self.beta, "γ": self.gamma}
        text = ", ".join(f"{symbol} = {term.value:.4g} ± {term.error:.2g}" for symbol, term in terms.items())
        return f"Decomposition({self.parameter}: {text})"

    def predict(self, scheme: str, batch_size: int, bases: int = 1) -> Term:
        """Predict the variance of a batch's mean gradient.

        Args:
            scheme: "independent", "shared" or "flipout".
            batch_size: Number of examples in the batch.
            bases: Number of base perturbations, each for an equal share of the batch.

        Returns:
            The variance and its standard error.

        Raises:
            InvalidArgument: The theorem does not cover the scheme, or a number is below 1.

        Example:
            >>> shared, flipped = (found.predict(s, 1024) for s in ("shared", "flipout"))
        """
        if batch_size < 1 or bases < 1:
            raise InvalidArgument(f"predict: batch_size={batch_size}, bases={bases}: expected at least 1 of each.")
        covariances = {"independent": Term(0.0, 0.0), "shared": self.both, "flipout": self.gamma}
        if scheme not in covariances:
            raise InvalidArgument(f"predict({scheme!r}): the theorem covers only {', '.join(covariances)}.")
        covariance = covariances[scheme]
        share = (batch_size / bases - 1) / batch_size
        value = self.alpha.value / batch_size + share * covariance.value
        squares = [(self.alpha.error / batch_size) ** 2, (share * covariance.error) ** 2]
        # Degrees of freedom of a sum of squared errors, after Welch and Satterthwaite.
        lost = squares[0] ** 2 / self.alpha.freedom + squares[1] ** 2 / covariance.freedom
        return Term(value, sum(squares) ** 0.5, sum(squares) ** 2 / lost if lost else math.inf)

    @property
    def knee(self) -> float:
        """The batch size at which shared perturbations stop paying: α / (β + γ)."""
        return self.alpha.value / self.both.value
