"""How long the rest of a loop will take, from what its first items took."""

import math
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Pace(Generic[Item]):
    """Predict the time of items that are not done.

    Items of one kind take time in proportion to their weights. Kinds have different speeds, which are learned: recent
    items count most, since machines become busy and cost is never quite proportional. A kind without a finished item
    has the speed of the loop so far.

    Args:
        items: What the loop goes over.
        weight: The relative time of an item among those of its kind.
        kind: The kind of an item.
    """

    def __init__(
        self, items: Iterable[Item], weight: Callable[[Item], float], kind: Callable[[Item], Hashable] = lambda _: None
    ) -> None:
        self.waiting = [(kind(item), weight(item)) for item in items]
        self.waiting.reverse()  # the next item is the last
        self.passed = 0.0
        self._weights: dict[Hashable, float] = {}  # of waiting items, by kind: loops have thousands of items
        for item_kind, item_weight in self.waiting:
            self._weights[item_kind] = self._weights.get(item_kind, 0.0) + item_weight
        self._speeds: dict[Hashable, _Speed] = {}
        self._all = _Speed()

    def done(self, seconds: float) -> None:
        """Note that the next item is done, and took so many seconds."""
        kind, weight = self.waiting.pop()
        self.passed += seconds
        self._weights[kind] = max(0.0, self._weights[kind] - weight)
        for speed in (self._speeds.setdefault(kind, _Speed()), self._all):
            speed.learn(weight, seconds)

    @property
    def left(self) -> float:
        """The seconds that the waiting items will take."""
        if not self.waiting:
            return 0.0
        return math.fsum(
            weight * self._speeds.get(kind, self._all).per_weight for kind, weight in self._weights.items()
        )

    def left_within(self, elapsed: float, rest: float) -> float:
        """Return the seconds left in the middle of an item.

        Args:
            elapsed: The seconds since the next item began.
            rest: The seconds that it still takes, as far as a loop inside of it knows. An item may hold several loops,
                so it is not taken to end before its kind usually does.
        """
        if not self.waiting:
            return 0.0
        item_kind, weight = self.waiting[-1]
        known = self._speeds.get(item_kind)
        if known is None:  # the first of its kind: what it takes is all that there is to learn from
            speed = (elapsed + rest) / weight if weight else 0.0
        else:
            speed = known.per_weight
            rest = max(rest, weight * speed - elapsed)
        others = self._all.per_weight if self._speeds else speed
        after = (
            (total - weight) * speed if kind == item_kind else total * self._per_weight(kind, others)
            for kind, total in self._weights.items()
        )
        return rest + max(0.0, math.fsum(after))

    def _per_weight(self, kind: Hashable, otherwise: float) -> float:
        return self._speeds[kind].per_weight if kind in self._speeds else otherwise

    @property
    def share(self) -> float:
        """The share of the time that has passed, from 0 to 1."""
        total = self.passed + self.left
        return self.passed / total if total else float(not self.waiting)


class _Speed:
    """Seconds per weight. Older items count less and less: their weight decays over half of the time seen so far."""

    def __init__(self) -> None:
        self.seen = self.weight = self.seconds = 0.0

    def learn(self, weight: float, seconds: float) -> None:
        self.seen += seconds
        kept = math.exp(-2 * seconds / self.seen) if self.seen else 1.0
        self.weight = kept * self.weight + weight
        self.seconds = kept * self.seconds + seconds

    @property
    def per_weight(self) -> float:
        return self.seconds / self.weight if self.weight else 0.0
