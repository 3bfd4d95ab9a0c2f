"""An NVIDIA device that is not there: Triton compiles for it and launches on it, and nothing is computed.

So what the host does for a step can be timed, and what a launch hands over be looked at, on any machine with a C
compiler. Tensors are those of the CPU; kernels leave them as they are.
"""

import ctypes
import os
import subprocess
import tempfile
from importlib import import_module
from pathlib import Path

import triton.backends.nvidia
from triton.backends.compiler import GPUTarget

import flipout.backend

_SOURCE = """
#include "cuda.h"
#include <string.h>
long launches;
unsigned handed, grid[3];
unsigned long long values[32];  /* of the first `handed` arguments, 8 bytes each, whatever they mean */
CUresult cuCtxGetCurrent(CUcontext *c) { *c = (CUcontext)1; return 0; }
CUresult cuCtxGetLimit(size_t *v, CUlimit l) { *v = 0; return 0; }
CUresult cuCtxSetCurrent(CUcontext c) { return 0; }
CUresult cuCtxSetLimit(CUlimit l, size_t v) { return 0; }
CUresult cuDeviceGet(CUdevice *d, int i) { *d = 0; return 0; }
CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d) { *v = 232448; return 0; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) { *c = (CUcontext)1; return 0; }
CUresult cuFuncGetAttribute(int *v, CUfunction_attribute a, CUfunction f) { *v = 1024; return 0; }
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v) { return 0; }
CUresult cuFuncSetCacheConfig(CUfunction f, CUfunc_cache c) { return 0; }
CUresult cuGetErrorString(CUresult e, const char **s) { *s = "there is no device"; return 0; }
CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name) { *f = (CUfunction)1; return 0; }
CUresult cuModuleLoadData(CUmodule *m, const void *image) { *m = (CUmodule)1; return 0; }
CUresult cuPointerGetAttribute(void *v, CUpointer_attribute a, CUdeviceptr p) { memcpy(v, &p, 8); return 0; }
CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **given, void **extra) {
  launches++;
  grid[0] = c->gridDimX; grid[1] = c->gridDimY; grid[2] = c->gridDimZ;
  for (unsigned i = 0; i < handed; i++) memcpy(values + i, given[i], 8);
  return 0;
}
"""


class _Driver:
    """What Triton asks of one, for a Hopper; compiled kernels are loaded and launched by its own code."""

    def __init__(self) -> None:
        nvidia = import_module("triton.backends.nvidia.driver")
        self.utils, self.launcher_cls = nvidia.CudaUtils(), nvidia.CudaLauncher

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


def use() -> ctypes.CDLL:
    """From here on, in this process, kernels serve tensors of the CPU, and are launched on no device. The library that
    stands in for the driver counts the `launches`, and keeps what the last one was `handed`."""
    folder = tempfile.mkdtemp(prefix="no-device-")
    library, include = Path(folder) / "libcuda.so.1", Path(triton.backends.nvidia.__path__[0]) / "include"
    compile = ["gcc", "-x", "c", "-", "-shared", "-fPIC", "-O2", f"-I{include}", "-Wl,-soname,libcuda.so.1"]
    subprocess.run([*compile, "-o", str(library)], input=_SOURCE, text=True, check=True)
    os.environ |= {"TRITON_LIBCUDA_PATH": folder, "TRITON_CACHE_DIR": f"{folder}/cache"}
    loaded = ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    import_module("triton.runtime").driver.set_active(_Driver())
    flipout.backend._INTERPRETED = True
    flipout.backend.kernels()
    base, twice, launch = (import_module(f"flipout.ops.triton.{name}") for name in ("base", "twice", "launch"))
    for module in (base, twice):
        vars(module)["INTERPRETED"] = True  # what they ask by that: may it be on a CPU?
    vars(launch).update(_device=lambda: -1, _stream=lambda device: 0)
    return loaded
