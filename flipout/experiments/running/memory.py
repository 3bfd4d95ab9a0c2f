"""Settings of the memory allocator, for runs on a CPU."""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_LARGE = 2**30


def keep_large_blocks() -> bool:
    """Let glibc keep freed blocks of up to 1 GiB for the next tensor, instead of returning them to the system.

    Large tensors are otherwise mapped, zeroed and unmapped again at every operation. In variance-fc that was more than
    half of the processor's time. Evolution strategies keep blocks of up to 32 MiB without being asked.

    Returns:
        True if the setting was accepted, False if the allocator is not glibc's.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # musl has no mallopt
        return False
    return all([set_option(_MMAP_THRESHOLD, _LARGE), set_option(_TRIM_THRESHOLD, _LARGE)])
