"""Writes the fixtures modelopt_* beside this script with NVIDIA's Model Optimizer, on the CPU.

    pip install torch==2.15.0 transformers==5.23.0 accelerate==1.15.0 torchao==0.18.0 omegaconf==2.4.0 scipy==1.17.1 pulp==3.3.2 requests==2.34.2
    pip install --no-deps nvidia-modelopt==0.47.0
    python make_modelopt.py [name ...]

modelopt quantises with a calibration of random tokens and exports. Its tensor classes dequantise what was written. Two of the
fixtures keep the configuration in hf_quant_config.json only, as older exports do.
"""

import json
import sys

import modelopt.torch.quantization as mtq
import torch
from modelopt.torch.export import export_hf_checkpoint
from modelopt.torch.quantization.qtensor import FP8QTensor, NVFP4QTensor
from safetensors.torch import load_file

from fixture import SMALL, finish, fresh, linears, model

CASES = {
    "modelopt_fp8": (mtq.FP8_DEFAULT_CFG, torch.bfloat16, True),
    "modelopt_fp8_row": (mtq.FP8_PER_CHANNEL_PER_TOKEN_CFG, torch.float16, False),
    "modelopt_nvfp4": (mtq.NVFP4_DEFAULT_CFG, torch.bfloat16, False),
    "modelopt_nvfp4_sharded": (mtq.NVFP4_DEFAULT_CFG, torch.bfloat16, False),
    "modelopt_nvfp4_w4a16": (mtq.W4A16_NVFP4_CFG, torch.float16, True),
}


def write(name, config, dtype, beside):
    sharded = name.endswith("sharded")
    m = model(dtype, SMALL, 9 if sharded else 7, layers=2 if sharded else 1)
    m.config.architectures = [type(m).__name__]
    generator = torch.Generator().manual_seed(8)

    def calibrate(m):
        for _ in range(4):
            m(torch.randint(0, 32, (1, 32), generator=generator))

    m = mtq.quantize(m, config, calibrate)
    path = fresh(name)
    export_hf_checkpoint(m, dtype=dtype, export_dir=path, max_shard_size="16KB" if sharded else "1GB")
    if beside:
        text = json.loads((path / "config.json").read_text())
        del text["quantization_config"]
        (path / "config.json").write_text(json.dumps(text, indent=2) + "\n")
    else:
        (path / "hf_quant_config.json").unlink()
    finish(path, dequantised(path, dtype))


def dequantised(path, dtype):
    state, out = {}, {}
    for file in sorted(path.glob("*.safetensors")):
        state |= load_file(file)
    for name, value in state.items():
        scale = state.get(name + "_scale")
        if not name.endswith(".weight"):
            continue
        elif scale is None:
            out[name] = value
        elif value.dtype == torch.uint8:
            rows, half = value.shape
            out[name] = NVFP4QTensor(torch.Size((rows, 2 * half)), dtype, value).dequantize(
                dtype, scale=scale, double_scale=state[name + "_scale_2"], block_sizes={-1: 16})
        else:
            scale = scale.reshape(-1, 1) if scale.ndim else scale
            out[name] = FP8QTensor(value.shape, dtype, value).dequantize(dtype, scale=scale)
    return out


for case in sys.argv[1:] or CASES:
    write(case, *CASES[case])
