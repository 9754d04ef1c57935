"""Writes the fixtures fp8_* beside this script with transformers, on the CPU.

    pip install torch==2.15.0 transformers==5.23.0 accelerate==1.15.0
    python make_fp8.py

transformers' conversion quantises each linear layer (Fp8Quantize, what from_pretrained does with a FineGrainedFP8Config), saves,
and loads what was saved with dequantize set. from_pretrained itself quantises on a GPU only, so the conversion is called alone.
"""

import json
import types

import torch
from safetensors.torch import load_file
from transformers import FineGrainedFP8Config
from transformers.integrations.finegrained_fp8 import Fp8Dequantize, Fp8Quantize
from transformers.quantizers.quantizers_utils import should_convert_module

from fixture import BROAD, SMALL, TINY, finish, fresh, linears, model


def write(name, dtype, sizes, skip, scale_fmt="float", block=(128, 128), **options):
    config = FineGrainedFP8Config(weight_block_size=block, modules_to_not_convert=skip, scale_fmt=scale_fmt)
    quantizer = types.SimpleNamespace(quantization_config=config)
    quantize, dequantize = Fp8Quantize(quantizer), Fp8Dequantize(quantizer)
    m = model(dtype, sizes, 6)
    state = m.state_dict()
    for module, _ in linears(m):
        if should_convert_module(module, skip):
            state |= quantize.convert({module + ".weight": state[module + ".weight"]})
    path = fresh(name)
    m.save_pretrained(path, state_dict=state, **options)
    text = json.loads((path / "config.json").read_text())
    text["quantization_config"] = config.to_dict()
    (path / "config.json").write_text(json.dumps(text, indent=2) + "\n")
    finish(path, dequantised(path, dequantize, m))


def dequantised(path, dequantize, m):
    """Returns what transformers makes of the written files, in the type of m's parameters."""
    state = {}
    for file in sorted(path.glob("*.safetensors")):
        state |= load_file(file)
    out = {}
    for name, value in state.items():
        if name + "_scale_inv" in state:
            out |= dequantize.convert({"weight": value, "weight_scale_inv": state[name + "_scale_inv"]}, full_layer_name=name, model=m)
        elif not name.endswith("_scale_inv"):
            out[name] = value
    return out


write("fp8_block_sharded", torch.bfloat16, BROAD, ["lm_head"], max_shard_size="60KB")
write("fp8_block_exponents", torch.float16, SMALL, ["lm_head", "model.layers.0.self_attn.q_proj", "k_proj", ".*\\.(v|o)_proj"], scale_fmt="ue8m0", block=(32, 32))
write("fp8_tensor", torch.bfloat16, TINY, ["lm_head"], block=None)
