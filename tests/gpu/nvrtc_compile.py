#!/usr/bin/env python3
"""Compiles a .cu with NVRTC, to show that an emitted kernel needs neither nvcc nor headers.

    tests/gpu/nvrtc_compile.py LIBNVRTC FILE.cu [-o OUT.cubin] [--arch sm_90a]

Exit status 0 when it compiles, 1 when it does not (NVRTC's log goes to stderr), 2 for wrong arguments or a missing library.
"""
import argparse
import ctypes
import os
import pathlib
import sys
import tempfile
import time


def check(lib, what, code):
    if code != 0:
        lib.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise SystemExit(f"nvrtc: {what}: {lib.nvrtcGetErrorString(code).decode()}")


def fetch(lib, program, size_of, get):
    """Returns the bytes behind one of NVRTC's (size, get) pairs."""
    size = ctypes.c_size_t()
    check(lib, size_of, getattr(lib, size_of)(program, ctypes.byref(size)))
    data = ctypes.create_string_buffer(size.value)
    check(lib, get, getattr(lib, get)(program, data))
    return data.raw


def main():
    args = argparse.ArgumentParser(description="compile a .cu with NVRTC")
    args.add_argument("nvrtc")
    args.add_argument("source", type=pathlib.Path)
    args.add_argument("-o", dest="out", type=pathlib.Path)
    args.add_argument("--arch", default="sm_90a")
    args = args.parse_args()
    try:
        # NVRTC opens its builtins by bare name: loaded by path first, they are found wherever the library lies.
        for builtins in sorted(pathlib.Path(args.nvrtc).resolve().parent.glob("libnvrtc-builtins.so.*")):
            ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
        lib = ctypes.CDLL(args.nvrtc)
        source = args.source.read_bytes()
    except OSError as err:
        print(f"nvrtc_compile: {err}", file=sys.stderr)
        return 2

    major, minor = ctypes.c_int(), ctypes.c_int()
    check(lib, "nvrtcVersion", lib.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    program = ctypes.c_void_p()
    check(lib, "nvrtcCreateProgram", lib.nvrtcCreateProgram(
        ctypes.byref(program), source, args.source.name.encode(), 0, None, None))
    options = [f"--gpu-architecture={args.arch}".encode(), b"--std=c++17"]
    start = time.monotonic()
    code = lib.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    took = time.monotonic() - start
    log = fetch(lib, program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog").rstrip(b"\0\n").decode(errors="replace")
    if log:
        print(log, file=sys.stderr)
    if code != 0:
        print(f"nvrtc_compile: {args.source} does not compile for {args.arch}", file=sys.stderr)
        return 1
    cubin = fetch(lib, program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")
    if cubin[:4] != b"\x7fELF":
        print(f"nvrtc_compile: {args.source}: NVRTC returned no cubin ({len(cubin)} bytes)", file=sys.stderr)
        return 1
    if args.out:
        handle, beside = tempfile.mkstemp(dir=args.out.parent)
        with os.fdopen(handle, "wb") as f:
            f.write(cubin)
        os.replace(beside, args.out)
    print(f"nvrtc {major.value}.{minor.value}: {args.source.name} for {args.arch}: {len(cubin)} bytes of cubin in {took:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
