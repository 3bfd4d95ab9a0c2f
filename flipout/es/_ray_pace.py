"""How long workers usually take, and how long they have been silent."""

import time
from collections import deque
from statistics import median

from ._ray_work import Worker


class WorkerPace:
    """Times of answers."""

    tick = 0.1  # seconds between checks for slow workers
    hung = 10  # a worker may take this many times as long as usual, however short the timeout

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=101)  # for one chunk
        self._last = 0.0  # when a worker last answered
        self._start = 0.0  # seconds that the slowest worker took to start

    def heard(self) -> None:
        """A worker has answered, or an evaluation begins."""
        self._last = time.monotonic()

    def silence(self) -> float:
        """Return the seconds since a worker last answered."""
        return time.monotonic() - self._last

    def note(self, worker: Worker) -> None:
        """Note how long a worker took for its chunks."""
        self._seconds.append((self._last - worker.since) / len(worker.chunks))

    def note_start(self, worker: Worker) -> None:
        """Note how long a worker took to start."""
        self._start = max(self._start, self._last - worker.hired)

    def has_no_start(self, timeout: float) -> bool:
        """Return True if no worker has answered for more than `timeout` seconds, and far longer than starting takes."""
        return self.silence() > max(timeout, self.hung * self._start)

    def is_slow(self, worker: Worker, patience: float) -> bool:
        """Return True if a worker takes more than `patience` times as long as usual."""
        return bool(self._seconds) and self._elapsed(worker) > patience * self._usual(worker)

    def is_hung(self, worker: Worker, timeout: float) -> bool:
        """Return True if a worker owes an answer for more than `timeout` seconds, and for far longer than is usual.

        To receive the strategy it imports the same packages as to start, so that may take as long.
        """
        is_asked = worker.call is not None and worker.since > 0
        usual = self._usual(worker) if worker.chunks else self._start
        return is_asked and self._elapsed(worker) > max(timeout, self.hung * usual)

    def _usual(self, worker: Worker) -> float:
        """Return the seconds that as many chunks usually take."""
        return max(median(self._seconds) * len(worker.chunks), self.tick) if self._seconds else 0.0

    def _elapsed(self, worker: Worker) -> float:
        return time.monotonic() - worker.since
