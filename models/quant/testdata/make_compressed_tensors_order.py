"""Writes the fixture ct_i4g32_order beside this script with an old compressed-tensors, on the CPU: newer ones no longer write
weight_g_idx (activation order "group").

    pip install torch==2.15.0 transformers==5.23.0 compressed-tensors==0.9.4
    python make_compressed_tensors_order.py

compressed-tensors quantises, packs and decompresses; transformers saves. Which column is of which group is random.
"""

import torch
from compressed_tensors import ModelCompressor
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme, apply_quantization_config
from compressed_tensors.quantization.utils import calculate_qparams
from safetensors.torch import load_file

from fixture import SMALL, finish, fresh, linears, model


def main():
    args = QuantizationArgs(num_bits=4, type="int", strategy="group", group_size=32, actorder="group")
    m = model(torch.bfloat16, SMALL, 9)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    apply_quantization_config(m, QuantizationConfig(config_groups={"group_0": scheme}, ignore=["lm_head"]))
    generator = torch.Generator().manual_seed(10)
    for _, module in linears(m):
        columns = module.in_features
        order = torch.randperm(columns, generator=generator) // args.group_size
        sorted_weight = module.weight.data[:, torch.argsort(order, stable=True)].unflatten(1, (-1, args.group_size))
        scale, _ = calculate_qparams(sorted_weight.amin(2), sorted_weight.amax(2), args)
        module.weight_scale.data = scale.to(module.weight.dtype)
        module.weight_g_idx.data = order.to(module.weight_g_idx.dtype)
    compressor = ModelCompressor.from_pretrained_model(m, quantization_format="pack-quantized")
    state = compressor.compress(m)
    path = fresh("ct_i4g32_order")
    m.save_pretrained(path, state_dict=state)
    compressor.update_config(path)
    state = load_file(path / "model.safetensors")
    packer = BaseCompressor.load_from_registry("pack-quantized", config=compressor.quantization_config)
    expected = {name: value for name, value in state.items() if name.endswith(".weight")}
    for name, _ in linears(m):
        own = {n.removeprefix(name + "."): v for n, v in state.items() if n.startswith(name + ".")}
        expected[name + ".weight"] = packer.decompress_weight(own, args)
    finish(path, expected)


main()
