#!/usr/bin/env bash
# On a machine with an NVIDIA GPU of compute capability 9.0: compiles smoke.cu with the nvcc found there and runs the smoke program.
#
#   scripts/build-cuda build -o out/ ./tests/gpu/smoke   # where Go is
#   tests/gpu/smoke.sh [out/smoke]                       # where the GPU is; Go is not needed
#
# nvcc is $NVCC, else the one on PATH, else /usr/local/cuda/bin/nvcc. Set CUBIN to use a cubin compiled elsewhere instead.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
binary=${1:-$here/../../out/smoke}
[ -x "$binary" ] || { echo "smoke.sh: no program $binary: build it first (see the head of this file)" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cubin=${CUBIN:-}
if [ -z "$cubin" ]; then
  nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
  [ -x "$nvcc" ] || { echo "smoke.sh: no nvcc here; set NVCC or CUBIN" >&2; exit 2; }
  "$nvcc" --version | tail -2 | head -1 >&2
  cubin=$work/smoke.cubin
  "$nvcc" -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a -cubin -Xptxas -v -o "$cubin" "$here/smoke/smoke.cu" >&2
fi
"$binary" -cubin "$cubin"
