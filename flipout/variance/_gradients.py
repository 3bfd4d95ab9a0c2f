"""Gradients of many random batches of one size, in bounded memory."""

from collections.abc import Iterator

from torch import Tensor

from .._capture import Captured
from ..errors import InvalidArgument
from ..schemes import Scheme
from ._sampler import DrawnGradients, Sampler

# Bounds of one pass, by device: numbers in its gradients, or in the per-example weights if a scheme forms those; and
# examples in its batches.
_MAX_NUMBERS = {"cpu": 2**26, "cuda": 2**30}
_MAX_EXAMPLES = {"cpu": 2**12, "cuda": 2**16}


class BatchGradients:
    """Gradients of batches of `size` examples, several batches at a time.

    Batches of more than `sub_batch` examples are accumulated over sub-batches. Sub-batches share one base but have
    their own signs. With `bases` > 1, each of that many equal shares of the batch has its own base.

    A scheme that forms per-example weights needs more memory, so fewer batches run together. A scheme that vmap cannot
    see through runs one batch at a time.
    """

    def __init__(self, sampler: Sampler, size: int, scheme: Scheme, bases: int = 1, antithetic: bool = False) -> None:
        if bases < 1 or size % bases:
            raise InvalidArgument(f"bases={bases}: a batch of {size} examples does not split into that many shares.")
        max_numbers, max_examples = (
            table.get(sampler.device.type, table["cpu"]) for table in (_MAX_NUMBERS, _MAX_EXAMPLES)
        )
        self.sampler, self.size, self.bases = sampler, size, bases
        self.images = (False, True) if antithetic else (False,)  # each draw, and its mirror image
        self.sub_batch = min(sampler.sub_batch, size // bases)
        if scheme.own_weights:
            self.sub_batch = max(min(self.sub_batch, max_numbers // sampler.weight_count), 1)
        numbers = sampler.weight_count * (self.sub_batch if scheme.own_weights else 1)
        at_once = sampler.at_once or max_examples if scheme.transformable else 1
        self.at_once = max(1, min(max_numbers // numbers, max_examples // size, at_once))
        self.captured = Captured(self._accumulate)

    def draws(self, count: int, pairs: bool = False) -> Iterator[tuple[DrawnGradients, ...]]:
        """Yield gradients of `count` batches, chunk by chunk. A chunk is valid until the next one is asked for.

        With `pairs`, each item holds two draws on the same batches.
        """
        for chunk in self.chunks(count):
            batches = self.sampler.batches(chunk, self.size)
            gradients = self.captured(batches, self._seeds(chunk))
            if not pairs:
                yield (gradients,)
                continue
            first = {name: gradient.clone() for name, gradient in gradients.items()}
            yield first, self.captured(batches, self._seeds(chunk))

    def chunks(self, count: int) -> list[int]:
        """Split `count` batches into chunks that fit in memory.

        Chunks of equal size are preferred, so that one captured graph serves them all.
        """
        largest = min(self.at_once, count)
        chunk = next((n for n in range(largest, largest // 2, -1) if count % n == 0), largest)
        return [min(chunk, count - done) for done in range(0, count, chunk)]

    def close(self) -> None:
        """Free the memory of the captured graph."""
        self.captured.close()

    def _seeds(self, draws: int) -> Tensor:
        return self.sampler.seeds(self.bases * draws).view(self.bases, draws)

    def _accumulate(self, batches: list[Tensor], seeds: Tensor) -> DrawnGradients:
        """Return the gradient of each batch, accumulated over its sub-batches."""
        share = self.size // self.bases
        total: DrawnGradients = {}
        for base, seed in enumerate(seeds.unbind(0)):
            for start in range(0, share, self.sub_batch):
                rows = slice(base * share + start, base * share + min(start + self.sub_batch, share))
                # `first` numbers the examples through the whole batch, as on data-parallel ranks, so sub-batches have
                # different signs. With Flipout(reuse_signs=True), shares of different bases need it too.
                share_of_batch = (rows.stop - rows.start) / self.size / len(self.images)
                for image in self.images:
                    part = [x[:, rows] for x in batches]
                    gradients = self.sampler.gradients(seed, part, first=rows.start, antithetic=image)
                    for name, gradient in gradients.items():
                        gradient = gradient * share_of_batch
                        total[name] = gradient if name not in total else total[name].add_(gradient)
        return {label: total[name][:, rows] for label, (name, rows) in self.sampler.parts.items()}
