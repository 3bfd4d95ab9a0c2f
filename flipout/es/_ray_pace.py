"""How long workers usually take, and how long they have been silent."""

import time
from collections import deque
from statistics import median

from ._ray_work import Worker


class Pace:
    """Times of answers."""

    tick = 0.1  # seconds between two looks at which worker is slow

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=101)  # for one chunk
        self._last = 0.0  # when a worker last answered

    def heard(self) -> None:
        """A worker has answered, or an evaluation begins."""
        self._last = time.monotonic()

    def silence(self) -> float:
        """Return the seconds since a worker last answered."""
        return time.monotonic() - self._last

    def note(self, worker: Worker) -> None:
        """Note how long a worker took for its chunks."""
        self._seconds.append((self._last - worker.since) / len(worker.chunks))

    def is_slow(self, worker: Worker, patience: float) -> bool:
        """Return True if a worker takes more than `patience` times as long as usual."""
        if not self._seconds:
            return False
        usual = max(median(self._seconds) * len(worker.chunks), self.tick)
        return time.monotonic() - worker.since > patience * usual
