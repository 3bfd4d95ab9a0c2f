"""A stand-in for an NVIDIA device: Triton compiles for Hopper and launches, and nothing is computed.

With it the host's work can be timed, and the arguments of a launch inspected, on any machine with a C compiler. Tensors
are on the CPU, and kernels leave them unchanged.
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
unsigned long long values[32];  /* the first `handed` arguments, 8 bytes each */
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
    """The part of a driver that Triton asks for, describing a Hopper. Triton's own code loads and launches kernels."""

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
    """Let kernels serve CPU tensors, and launch them on no device, for the rest of this process.

    Returns the library that stands in for the driver. It counts `launches`, and keeps the `grid` of the last one and
    the `values` of its first `handed` arguments.
    """
    folder = tempfile.mkdtemp(prefix="no-device-")
    library, include = Path(folder) / "libcuda.so.1", Path(triton.backends.nvidia.__path__[0]) / "include"
    compile = ["gcc", "-x", "c", "-", "-shared", "-fPIC", "-O2", f"-I{include}", "-Wl,-soname,libcuda.so.1"]
    subprocess.run([*compile, "-o", str(library)], input=_SOURCE, text=True, check=True)
    os.environ |= {"TRITON_LIBCUDA_PATH": folder, "TRITON_CACHE_DIR": f"{folder}/cache"}
    loaded = ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)
    import_module("triton.runtime").driver.set_active(_Driver())
    flipout.backend._INTERPRETED = True
    flipout.backend.kernels()
    names = ("base", "fused_linear", "internals", "launching")
    base, fused_linear, internals, launching = (import_module(f"flipout.ops.triton.{name}") for name in names)
    for module in (base, fused_linear):
        vars(module)["INTERPRETED"] = True  # they ask by it whether a tensor may be on a CPU
    vars(launching)["current_device"] = lambda: -1
    vars(internals)["raw_stream"] = lambda device: 0
    return loaded
