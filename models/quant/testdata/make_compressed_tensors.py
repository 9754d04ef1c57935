"""Writes the fixtures ct_* beside this script with compressed-tensors and transformers, on the CPU.

    pip install torch==2.15.0 transformers==5.23.0 compressed-tensors==0.20.0 accelerate==1.15.0
    python make_compressed_tensors.py [name ...]

compressed-tensors quantises and packs, transformers saves, and compressed-tensors decompresses what was saved.
"""

import sys

import torch
from compressed_tensors import ModelCompressor
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import (
    QuantizationArgs, QuantizationConfig, QuantizationScheme, apply_quantization_config, preset_name_to_scheme)
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from safetensors.torch import load_file

from fixture import PARTIAL, SMALL, TINY, WIDE, finish, fresh, model

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


def extrema(w, args):
    """Returns minimum and maximum of each group of weights that shares a scale, in the shape of the scales."""
    rows, columns = w.shape
    if args.strategy == "tensor":
        return w.min().reshape(1), w.max().reshape(1)
    if args.strategy == "channel":
        return w.amin(1, keepdim=True), w.amax(1, keepdim=True)
    height, width = (1, args.group_size) if args.block_structure is None else args.block_structure
    down, across = -(-rows // height), -(-columns // width)
    padded = torch.nn.functional.pad(w, (0, across * width - columns, 0, down * height - rows))
    blocks = padded.reshape(down, height, across, width)
    return blocks.amin((1, 3)), blocks.amax((1, 3))


def calibrate(module):
    """Sets the scales of a module's weight as the package's observers do: from the extrema of each group."""
    args = module.quantization_scheme.weights
    w = module.weight.data
    low, high = extrema(w, args)
    factor = None
    if args.strategy == "tensor_group":
        factor = generate_gparam(w.min(), w.max())
        module.weight_global_scale.data = factor
    scale, zero = calculate_qparams(low, high, args, factor)
    module.weight_scale.data = scale.to(module.weight_scale.dtype)
    if hasattr(module, "weight_zero_point"):
        module.weight_zero_point.data = zero
    for name in ("input_scale", "input_global_scale"):  # nothing reads them, but they are uninitialised
        if hasattr(module, name):
            getattr(module, name).data.fill_(0.125)


def write(name, *arguments, **options):
    if not sys.argv[1:] or name in sys.argv[1:]:
        write_one(name, *arguments, **options)


def write_one(name, dtype, sizes, groups, ignore=("lm_head",), seed=1, layers=1, **options):
    m = model(dtype, sizes, seed, layers)
    apply_quantization_config(m, QuantizationConfig(config_groups=groups, ignore=list(ignore)))
    for _, module in m.named_modules():
        if getattr(module, "quantization_scheme", None) is not None:
            calibrate(module)
    compressor = ModelCompressor.from_pretrained_model(m)
    compressor.compress_model(m)
    schemes = {n: mod.quantization_scheme for n, mod in m.named_modules() if hasattr(mod, "quantization_scheme")}
    path = fresh(name)
    m.save_pretrained(path, **options)
    compressor.update_config(path)
    finish(path, decompressed(path, schemes))


def decompressed(path, schemes):
    """Returns what compressed-tensors makes of the written files: its decompressor, module by module."""
    state = {}
    for file in sorted(path.glob("*.safetensors")):
        state |= load_file(file)
    out = {}
    for module, scheme in schemes.items():
        own = {n.removeprefix(module + "."): state.pop(n) for n in sorted(state) if n.startswith(module + ".")}
        compressor = BaseCompressor.get_value_from_registry(name=scheme.format)
        out[module + ".weight"] = compressor.decompress(own, scheme)["weight"]
    return out | state


def integers(bits, group=None, targets=("Linear",), **more):
    strategy = {"strategy": "channel"} if group is None else {"strategy": "group", "group_size": group}
    return QuantizationScheme(targets=list(targets), weights=QuantizationArgs(num_bits=bits, type="int", **strategy, **more))


def naive(targets, **weights):
    """Returns a scheme of the format that neither integers nor floats have of their own."""
    return QuantizationScheme(targets=targets, weights=QuantizationArgs(**weights), format="naive-quantized")


def stored_as_bytes(targets, **weights):
    """Returns a scheme of the format int-quantized: integers of 4 or 8 bits in a byte each."""
    return QuantizationScheme(targets=targets, weights=QuantizationArgs(type="int", **weights),
                              input_activations=QuantizationArgs(num_bits=8, strategy="token", dynamic=True))


def preset(name):
    return {"group_0": QuantizationScheme(targets=["Linear"], **preset_name_to_scheme(name, ["Linear"]).model_dump(exclude={"targets"}))}


def main():
    write("ct_i4g32", BF16, SMALL, {"group_0": integers(4, 32, actorder="weight")})
    write("ct_i4g32_zero_f16_sharded", F16, SMALL, {"group_0": integers(4, 32, symmetric=False)}, layers=2, max_shard_size="20KB")
    write("ct_i4g128", BF16, WIDE, {"group_0": integers(4, 128)}, ignore=["lm_head", "re:.*o_proj"])
    write("ct_i4_row_i8_mixed", F32, TINY, {
        "group_0": integers(4, targets=["re:.*self_attn.*"]),
        "group_1": integers(8, symmetric=False, targets=["re:.*(gate|up)_proj$"]),
        "group_2": integers(8, 16, targets=["model.layers.0.mlp.down_proj"])}, ignore=["lm_head", "re:.*k_proj$"])
    write("ct_i8_row", BF16, SMALL, preset("W8A8"))
    write("ct_naive", BF16, TINY, {
        "group_0": naive(["re:.*self_attn.*"], num_bits=8, type="int", strategy="channel"),
        "group_1": naive(["Linear"], num_bits=8, type="float", strategy="tensor")})
    write("ct_i8_int4_zero", F16, TINY, {
        "group_0": stored_as_bytes(num_bits=8, strategy="tensor", symmetric=False, targets=["re:.*self_attn.*"]),
        "group_1": stored_as_bytes(num_bits=8, strategy="channel", symmetric=False, targets=["re:.*(gate|up)_proj$"]),
        "group_2": stored_as_bytes(num_bits=4, strategy="group", group_size=16, symmetric=False, targets=["Linear"])})
    write("ct_e4m3_tensor", F16, SMALL, preset("FP8"))
    write("ct_e4m3_row", BF16, SMALL, preset("FP8_DYNAMIC"))
    write("ct_e4m3_block", BF16, PARTIAL, preset("FP8_BLOCK"))
    write("ct_nvfp4", BF16, SMALL, preset("NVFP4A16"))
    write("ct_nvfp4_f16", F16, TINY, preset("NVFP4"), seed=2)
    write("ct_nvfp4_sharded", BF16, SMALL, preset("NVFP4A16"), seed=3, layers=2, max_shard_size="20KB")
    write("ct_mxfp4", BF16, SMALL, preset("MXFP4A16"))


main()
