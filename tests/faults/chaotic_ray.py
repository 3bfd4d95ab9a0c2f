"""A stand-in for Ray whose workers answer, dawdle, hang, die or fail late, by fates that are drawn."""

import random
from collections import Counter
from collections.abc import Callable

from tests.es.fake_ray import ActorError, Call, FakeRay

FATES = {"answers": 83, "is slow": 8, "hangs": 2, "dies": 4, "fails late": 3}


class ChaoticRay(FakeRay):
    """`generation` tells which generation the driver is in: an error is late when that is over."""

    def __init__(self, seed: int, generation: Callable[[], int]) -> None:
        super().__init__()
        self.draw, self.generation = random.Random(seed), generation
        self.fates: dict[Call, str] = {}
        self.polls: Counter[Call] = Counter()
        self.held = self._is_held

    def get(self, call: Call) -> object:
        fate = self._fate(call)
        if fate == "dies":
            raise ActorError("killed")
        if fate == "fails late":
            raise ZeroDivisionError("too late")
        return super().get(call)

    def _is_held(self, call: Call) -> bool:
        self.polls[call] += 1
        fate = self._fate(call)
        if fate == "is slow":
            return self.polls[call] < 10
        if fate == "fails late":
            return call.generation >= self.generation()
        return fate == "hangs"

    def _fate(self, call: Call) -> str:
        """Draw what becomes of a call. Starting and joining may fail by death alone."""
        if call not in self.fates:
            (fate,) = self.draw.choices(list(FATES), list(FATES.values()))
            self.fates[call] = fate if call.name == "evaluate" or fate in ("answers", "dies") else "answers"
        return self.fates[call]
