"""Writes the fixtures gptq_* beside this script with gptqmodel, on the CPU.

    pip install torch==2.15.0 transformers==5.23.0 tokenizers==0.23.3 gptqmodel==7.7.0
    CUDA_VISIBLE_DEVICES= python make_gptq.py [name ...]

gptqmodel quantises with a calibration of random tokens, saves, loads what it saved, and its torch kernel dequantises. It wants
more threads than two processors give it, so the script claims eight. It leaves a directory logs where it is run.
"""

import os

os.cpu_count = lambda: 8

import sys
import tempfile

import torch
from gptqmodel import BACKEND, GPTQModel, QuantizeConfig
from gptqmodel.nn_modules.qlinear import BaseQuantLinear
from safetensors.torch import load_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from fixture import DEEP, SMALL, finish, fresh, model

CASES = {
    "gptq_i4g32": {"bits": 4, "group_size": 32, "desc_act": False, "act_group_aware": False},
    "gptq_i4g32_act_order_sharded": {"bits": 4, "group_size": 32, "desc_act": True},
    "gptq_i4g32_zero": {"bits": 4, "group_size": 32, "desc_act": False, "act_group_aware": False, "sym": False},
    "gptq_i8g32_act_order": {"bits": 8, "group_size": 32, "desc_act": True},
    "gptq_v2_i4g32_zero": {"bits": 4, "group_size": 32, "desc_act": True, "sym": False, "format": "gptq_v2"},
    "gptq_v2_i4g32_zero_in_order": {
        "bits": 4, "group_size": 32, "desc_act": False, "act_group_aware": False, "sym": False, "format": "gptq_v2"},
    "gptq_v2_i8g32_zero": {
        "bits": 8, "group_size": 32, "desc_act": False, "act_group_aware": False, "sym": False, "format": "gptq_v2"},
    "gptq_i8_row": {"bits": 8, "group_size": -1, "desc_act": False, "act_group_aware": False},
    "gptq_i8g32_zero": {"bits": 8, "group_size": 32, "desc_act": False, "act_group_aware": False, "sym": False},
    "gptq_dynamic": {"bits": 4, "group_size": 32, "desc_act": False, "act_group_aware": False, "dynamic": {
        r"-:.*\.k_proj": {}, r"+:.*\.(gate|up)_proj": {"bits": 8, "group_size": 64}, r".*\.o_proj": {"group_size": 16}}},
    "gptq_i4g128": {"bits": 4, "group_size": 128, "desc_act": False, "act_group_aware": False, "dynamic": {
        r"+:.*\.(q|k|v|o|gate|up)_proj": {"group_size": 32}}, "pack_impl": "original"},
}
SIZES = {"gptq_i4g128": DEEP}


def base(path, sizes):
    """Saves the model that is to be quantised, with the tokenizer that the package demands."""
    words = WordLevel({f"t{i}": i for i in range(32)}, unk_token="t0")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(words), unk_token="t0", bos_token="t1", eos_token="t2", pad_token="t3")
    tokenizer.save_pretrained(path)
    model(torch.float16, sizes, 3).save_pretrained(path)


def calibration():
    generator = torch.Generator().manual_seed(4)
    return [{"input_ids": torch.randint(0, 32, (48,), generator=generator).tolist(), "attention_mask": [1] * 48}
            for _ in range(16)]


def dequantised(path):
    """Returns the weights as the package's torch kernel computes them from the written files, in the type of the scales."""
    out = {}
    for file in sorted(path.glob("*.safetensors")):
        out |= {name: value for name, value in load_file(file).items() if name.endswith(".weight")}
    m = GPTQModel.load(str(path), backend=BACKEND.GPTQ_TORCH, device="cpu", dtype=torch.float16).model
    for name, module in m.named_modules():
        if isinstance(module, BaseQuantLinear):
            out[name + ".weight"] = module.dequantize_weight().T
    return out


def main():
    for name in sys.argv[1:] or CASES:
        with tempfile.TemporaryDirectory() as directory:
            base(directory, SIZES.get(name, SMALL))
            config = QuantizeConfig(device="cpu", offload_to_disk=False, **CASES[name])
            m = GPTQModel.load(directory, config)
            m.quantize(calibration(), batch_size=1)
            path = fresh(name)
            m.save(str(path), max_shard_size="16KB" if name.endswith("sharded") else "1GB")
            expected = dequantised(path)
            for file in path.iterdir():
                if file.name.startswith(("tokenizer", "quant_log")):
                    file.unlink()
            finish(path, expected)


main()
