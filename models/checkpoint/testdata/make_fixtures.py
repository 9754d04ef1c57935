"""Writes the fixtures beside this script with Hugging Face safetensors and transformers, on the CPU:

single_bf16/    one file, LM head of its own
sharded_f16/    several shards and an index
single_f32/     one file; norms in bf16, a layer in f16, rotary_emb.inv_freq as old versions saved it
tied_bf16/      tied embeddings, no lm_head.weight
tied_head_f32/  tied embeddings, lm_head.weight in the file all the same
golden.json     SHA-256 of every tensor's bf16 bits, as torch rounds them
headers.json    malformed and odd files, and whether safetensors.deserialize refuses them

    pip install torch transformers safetensors && python make_fixtures.py

The committed files come from transformers 5.23.0, safetensors 0.8.0 and torch 2.11.0 on x86-64.
"""

import base64
import hashlib
import json
import pathlib
import shutil
import struct

import safetensors
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

HERE = pathlib.Path(__file__).parent


def config(tied):
    return LlamaConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=8, vocab_size=40, max_position_embeddings=64, tie_word_embeddings=tied)


def any_bits(shape, dtype, generator):
    """Finite numbers of every magnitude: ties, subnormals and zeros among them."""
    integer, bits = {torch.float32: (torch.int32, 32)}.get(dtype, (torch.int16, 16))
    raw = torch.randint(-2**(bits - 1), 2**(bits - 1), shape, generator=generator, dtype=torch.int64)
    flat = raw.flatten()
    if dtype == torch.float32:
        flat[::3] = flat[::3] & ~0xFFFF | 0x8000  # halfway between two bf16
        flat[::7] &= ~0x7F800000  # subnormal
    if dtype == torch.float16:
        flat[::5] &= ~0x7C00  # subnormal
    values = flat.reshape(shape).to(integer).view(dtype)
    # What rounds to an infinity is no weight, see TestFiniteNumbersThatRoundToInfinityAreNamed.
    return torch.where(values.to(torch.bfloat16).isfinite(), values, torch.ones_like(values))


def model(dtype, tied, seed):
    generator = torch.Generator().manual_seed(seed)
    m = LlamaForCausalLM(config(tied)).to(dtype)
    with torch.no_grad():
        for p in m.parameters():
            p.copy_(any_bits(p.shape, dtype, generator))
    return m


def save(name, m, **options):
    path = HERE / name
    shutil.rmtree(path, ignore_errors=True)
    m.save_pretrained(path, **options)
    (path / "generation_config.json").unlink(missing_ok=True)
    return path


def digests(path):
    out = {}
    for f in sorted(path.glob("*.safetensors")):
        for name, t in load_file(f).items():
            bits = t.to(torch.bfloat16).contiguous().view(torch.int16).numpy().tobytes()
            out[name] = hashlib.sha256(bits).hexdigest()
    return dict(sorted(out.items()))


def fixtures():
    paths = [
        save("single_bf16", model(torch.bfloat16, False, 1)),
        save("sharded_f16", model(torch.float16, False, 2), max_shard_size="5KB"),
        save("single_f32", model(torch.float32, False, 3)),
        save("tied_bf16", model(torch.bfloat16, True, 4)),
        save("tied_head_f32", model(torch.float32, True, 5)),
    ]
    mixed = load_file(paths[2] / "model.safetensors")
    for name in mixed:
        if "norm" in name:
            mixed[name] = mixed[name].to(torch.bfloat16)
        elif "layers.1" in name:
            generator = torch.Generator().manual_seed(len(name))
            mixed[name] = any_bits(mixed[name].shape, torch.float16, generator)
    mixed["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.tensor([1.0, 0.1, 0.01, 0.001])
    save_file(mixed, paths[2] / "model.safetensors", metadata={"format": "pt"})
    headed = load_file(paths[4] / "model.safetensors")
    headed["lm_head.weight"] = headed["model.embed_tokens.weight"].clone()
    save_file(headed, paths[4] / "model.safetensors", metadata={"format": "pt"})
    golden = {p.name: digests(p) for p in paths}
    (HERE / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")


def tensor(dtype="F32", shape="[2]", offsets="[0,8]", more=""):
    return f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}{more}}}'


def header_cases():
    """Names, header texts, and the number of bytes of data after them."""
    a = tensor()
    yield "empty", "{}", 0
    yield "one tensor", f'{{"a":{a}}}', 8
    yield "spaces after", f'{{"a":{a}}}   ', 8
    yield "newline after", f'{{"a":{a}}}\n', 8
    yield "space before", f' {{"a":{a}}}', 8
    yield "escaped name", f'{{"\\u0061":{a}}}', 8
    yield "same name twice", f'{{"a":{a},"a":{tensor(offsets="[8,16]")}}}', 16
    yield "same name, escaped", f'{{"a":{a},"\\u0061":{tensor(offsets="[8,16]")}}}', 16
    yield "identical twice", f'{{"a":{a},"a":{a}}}', 8
    yield "metadata", f'{{"__metadata__":{{"format":"pt"}},"a":{a}}}', 8
    yield "metadata number", f'{{"__metadata__":{{"x":1}},"a":{a}}}', 8
    yield "metadata list", f'{{"__metadata__":[],"a":{a}}}', 8
    yield "metadata null", f'{{"__metadata__":null,"a":{a}}}', 8
    yield "truncated", f'{{"a":{a}}}', 7
    yield "trailing data", f'{{"a":{a}}}', 9
    yield "any order", f'{{"b":{tensor(offsets="[8,16]")},"a":{a}}}', 16
    yield "overlap", f'{{"a":{a},"b":{tensor(offsets="[4,12]")}}}', 12
    yield "same place", f'{{"a":{a},"b":{a}}}', 8
    yield "hole", f'{{"a":{a},"b":{tensor(offsets="[12,20]")}}}', 20
    yield "hole before", f'{{"a":{tensor(offsets="[4,12]")}}}', 12
    yield "backwards", f'{{"a":{tensor(offsets="[8,0]")}}}', 8
    yield "negative", f'{{"a":{tensor(offsets="[-8,0]")}}}', 8
    yield "minus zero", f'{{"a":{tensor(offsets="[-0,8]")}}}', 8
    yield "fraction", f'{{"a":{tensor(offsets="[0,8.0]")}}}', 8
    yield "exponent", f'{{"a":{tensor(offsets="[0,8e0]")}}}', 8
    yield "text offsets", f'{{"a":{tensor(offsets=chr(34) + "0,8" + chr(34))}}}', 8
    yield "one offset", f'{{"a":{tensor(offsets="[8]")}}}', 8
    yield "three offsets", f'{{"a":{tensor(offsets="[0,8,8]")}}}', 8
    yield "huge offsets", f'{{"a":{tensor(offsets="[0,18446744073709551616]")}}}', 8
    yield "wrong size", f'{{"a":{tensor(shape="[3]")}}}', 8
    yield "scalar", f'{{"a":{tensor("F64", "[]")}}}', 8
    yield "zero elements", f'{{"a":{tensor(shape="[0,4]", offsets="[0,0]")},"b":{a}}}', 8
    yield "zero elements between", f'{{"a":{a},"b":{tensor(shape="[0]", offsets="[8,8]")},"c":{tensor(offsets="[8,16]")}}}', 16
    yield "zero elements inside", f'{{"a":{a},"b":{tensor(shape="[0]", offsets="[4,4]")}}}', 8
    yield "zero elements beyond", f'{{"a":{a},"b":{tensor(shape="[0]", offsets="[9,9]")}}}', 8
    yield "negative dimension", f'{{"a":{tensor(shape="[-2]")}}}', 8
    yield "overflowing shape", f'{{"a":{tensor(shape="[4294967296,4294967296]", offsets="[0,0]")}}}', 0
    yield "overflow to size", f'{{"a":{tensor(shape="[4611686018427387906,4]", offsets="[0,32]")}}}', 32
    yield "unknown dtype", f'{{"a":{tensor("F31")}}}', 8
    yield "small dtype", f'{{"a":{tensor("bf16", "[4]")}}}', 8
    yield "four bits", f'{{"a":{tensor("F4", "[16]")}}}', 8
    yield "half a byte", f'{{"a":{tensor("F4", "[15]")}}}', 8
    yield "six bits", f'{{"a":{tensor("F6_E2M3", "[8]", "[0,6]")}}}', 6
    yield "eight bits", f'{{"a":{tensor("F8_E4M3FNUZ", "[8]")}}}', 8
    yield "complex", f'{{"a":{tensor("C64", "[1]")}}}', 8
    yield "no dtype", '{"a":{"shape":[2],"data_offsets":[0,8]}}', 8
    yield "no shape", '{"a":{"dtype":"F32","data_offsets":[0,8]}}', 8
    yield "no offsets", '{"a":{"dtype":"F32","shape":[2]}}', 8
    yield "another field", f'{{"a":{tensor(more=",%sx%s:1" % (chr(34), chr(34)))}}}', 8
    yield "field twice", f'{{"a":{tensor(more=",%sshape%s:[2]" % (chr(34), chr(34)))}}}', 8
    yield "list", f'[{a}]', 8
    yield "null", "null", 0
    yield "nothing", "", 0
    yield "only spaces", "    ", 0
    yield "tensor is a list", '{"a":["F32",[2],[0,8]]}', 8
    yield "tensor is null", '{"a":null}', 8
    yield "single quotes", "{'a':1}", 8
    yield "comma at the end", f'{{"a":{a},}}', 8
    yield "text after", f'{{"a":{a}}}x', 8
    yield "second object", f'{{"a":{a}}}{{}}', 8
    yield "nested deeply", '{"a":' + "[" * 300 + "]" * 300 + "}", 8
    yield "empty name", f'{{"":{a}}}', 8


def headers():
    cases = []

    def add(name, content):
        try:
            safetensors.deserialize(content)
            refused = False
        except safetensors.SafetensorError:  # whose text is not the same in every run
            refused = True
        cases.append({"name": name, "base64": base64.b64encode(content).decode(), "refused": refused})

    for name, text, data in header_cases():
        add(name, struct.pack("<Q", len(text)) + text.encode() + bytes(data))
    a = f'{{"a":{tensor()}}}'.encode()
    add("no bytes", b"")
    add("seven bytes", b"\0" * 7)
    add("header beyond the file", struct.pack("<Q", 1000) + a + bytes(8))
    add("huge header", struct.pack("<Q", 2**63 + 1) + a + bytes(8))
    add("greatest header", struct.pack("<Q", 2**64 - 1) + a + bytes(8))
    add("length big-endian", struct.pack(">Q", len(a)) + a + bytes(8))
    add("not UTF-8", struct.pack("<Q", len(a)) + a.replace(b'"a"', b'"\xff"') + bytes(8))
    add("Git LFS pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 8\n")
    (HERE / "headers.json").write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    fixtures()
    headers()
