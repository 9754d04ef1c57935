"""Writes the fixtures awq_* beside this script with AutoAWQ's own packing code, on the CPU.

    pip install torch==2.15.0 transformers==5.23.0 accelerate==1.15.0 zstandard==0.25.0 datasets==5.2.0 wheel==0.48.0
    pip install --no-deps --no-build-isolation autoawq==0.2.9
    python make_awq.py [name ...]

AutoAWQ's walk over a model is written for transformers 4, so its parts are called alone: the quantiser's choice of scales and
zero points, WQLinear_GEMM.from_linear, which packs, the configuration's to_transformers_dict, and dequantize_gemm, which gives
the weights. transformers saves.
"""

import sys
import types

import torch
from awq.models._config import AwqConfig
from awq.modules.linear.gemm import WQLinear_GEMM
from awq.quantize.quantizer import AwqQuantizer
from awq.utils.packing_utils import dequantize_gemm
from safetensors.torch import load_file

from fixture import MIDDLE, WIDE, finish, fresh, linears, model


def pseudo_quantize(w, group):
    """Calls the quantiser's method on an object that has what the method reads."""
    return AwqQuantizer.pseudo_quantize_tensor(types.SimpleNamespace(group_size=group, zero_point=True, w_bit=4), w)


def write(name, sizes, group, skip=None, **options):
    m = model(torch.float16, sizes, 5)
    for module_name, linear in list(linears(m)):
        if skip and skip in module_name:
            continue
        linear.weight.data, scales, zeros = pseudo_quantize(linear.weight.data, group)
        size = group if group > 0 else linear.in_features
        packed = WQLinear_GEMM.from_linear(linear, 4, size, False, scales.t().contiguous(), zeros.t().contiguous())
        parent, child = module_name.rsplit(".", 1)
        setattr(m.get_submodule(parent), child, packed)
    config = AwqConfig(q_group_size=group, modules_to_not_convert=[skip] if skip else None)
    m.config.quantization_config = config.to_transformers_dict()
    path = fresh(name)
    m.save_pretrained(path, **options)
    finish(path, dequantised(path, group))


def dequantised(path, group):
    state = {}
    for file in sorted(path.glob("*.safetensors")):
        state |= load_file(file)
    out = {}
    for name, value in state.items():
        if name.endswith(".qweight"):
            module = name.removesuffix(".qweight")
            out[module + ".weight"] = dequantize_gemm(
                value, state[module + ".qzeros"], state[module + ".scales"], 4, group if group > 0 else value.shape[0]).T
        elif name.endswith(".weight"):
            out[name] = value
    return out


LEAST = {"hidden_size": 32, "intermediate_size": 64, "head_dim": 16}  # its packing loses the last of fewer than 32 rows
CASES = {
    "awq_i4g32": lambda name: write(name, LEAST, 32),
    "awq_i4g64_skipped_sharded": lambda name: write(name, MIDDLE, 64, skip="k_proj", max_shard_size="16KB"),
    "awq_i4_row": lambda name: write(name, LEAST, -1),
    "awq_i4g128": lambda name: write(name, WIDE | {"head_dim": 16, "tie_word_embeddings": True}, 128, skip="o_proj"),
}
for name in sys.argv[1:] or CASES:
    CASES[name](name)
