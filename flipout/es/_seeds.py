"""Seeds that every process derives alike from the seed of a strategy."""

from hashlib import blake2b


def seed_of(seed: int, generation: int, purpose: str = "noise") -> int:
    """Return a seed of 63 bits for one generation and one purpose."""
    digest = blake2b(f"{purpose} {seed} {generation}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
