"""The torch half of package models/synth: the same weights, bit for bit. The formulas are in models/synth/doc.go.

`python synth.py golden` prints bit patterns that models/synth's test compares with Go's.
"""

import hashlib
import json
import math
import sys

import torch

MASK32 = (1 << 32) - 1
MASK64 = (1 << 64) - 1
SLICE = 1 << 25  # elements made at a time, to bound the memory of intermediate values
SAMPLE = 1 << 16


def _signed(x):
    """The int32 scalar with the bits of the uint32 x."""
    return x - (1 << 32) if x >= 1 << 31 else x


def keys(seed, name):
    z = 0xCBF29CE484222325
    for byte in name.encode():
        z = ((z ^ byte) * 0x100000001B3) & MASK64
    z = (z + seed * 0x9E3779B97F4A7C15) & MASK64
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK64
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK64
    z ^= z >> 31
    return z & MASK32, z >> 32


def _fmix(x):
    """murmur3's finaliser on an int32 tensor, in place; torch's >> is arithmetic, so the sign's copies are masked off."""
    x ^= (x >> 16) & 0xFFFF
    x *= _signed(0x85EBCA6B)
    x ^= (x >> 13) & 0x7FFFF
    x *= _signed(0xC2B2AE35)
    x ^= (x >> 16) & 0xFFFF
    return x


def counter(seed, name, start, count, device):
    """r(start), …, r(start + count - 1) as int32 bit patterns."""
    k0, k1 = keys(seed, name)
    x = torch.arange(count, dtype=torch.int32, device=device)
    x += start
    x ^= _signed(k0)
    _fmix(x)
    x += _signed(k1)
    return _fmix(x)


def normal(std):
    """The recipe (kind, mantissa, exponent) with that standard deviation to within 0.4 %."""
    frac, exp = math.frexp(std / math.sqrt(21845))
    return ("normal", math.floor(frac * 256 + 0.5), exp - 8)


GAIN = ("gain", 0, 0)


def values(seed, name, recipe, start, count, device="cpu"):
    """Elements start … start + count - 1 of a tensor as bfloat16."""
    r = counter(seed, name, start, count, device)
    kind, mantissa, exponent, *shift = recipe
    if kind == "gain":
        u = (r >> 16) & 0xFFFF
        return ((2 * u + 65537).to(torch.float32) / 131072).to(torch.bfloat16)
    s = (r & 255) + ((r >> 8) & 255) + ((r >> 16) & 255) + ((r >> 24) & 255) - 510
    return ((s * mantissa).to(torch.float32) * 2.0**exponent + sum(shift)).to(torch.bfloat16)


def fill(tensor, seed, name, recipe):
    """Overwrites a contiguous tensor of any float type with the bf16 values of its name."""
    flat = tensor.view(-1)
    assert flat.numel() <= 1 << 31, name
    for start in range(0, flat.numel(), SLICE):
        count = min(SLICE, flat.numel() - start)
        flat[start : start + count] = values(seed, name, recipe, start, count, tensor.device).to(tensor.dtype)


def tokens(seed, sequence, count, vocab):
    r = counter(seed, f"tokens.{sequence}", 0, count, "cpu").to(torch.int64) & MASK32
    return (r * vocab) >> 32


def _branch_rms(layers, tied, layer):
    if not tied:
        return math.sqrt(5.0 / (2 * layers))
    if layers == 1:
        return math.sqrt(9.0 / 2)
    return math.sqrt(4.0 / 2) if layer == 0 else math.sqrt(5.0 / (2 * (layers - 1)))


def llama(layers, hidden, intermediate, heads, kv_heads, head_dim, vocab, tied):
    """The list of (name, shape, recipe) that Go's synth.Llama returns."""
    fan_in = math.sqrt(hidden * (13.0 / 12))
    head = normal(math.sqrt(1.25 * vocab.bit_length()) / fan_in)
    q, kv = heads * head_dim, kv_heads * head_dim
    out = [("model.embed_tokens.weight", (vocab, hidden), head if tied else normal(2.0))]
    for layer in range(layers):
        p = f"model.layers.{layer}."
        branch = _branch_rms(layers, tied, layer)
        out += [
            (p + "input_layernorm.weight", (hidden,), GAIN),
            (p + "self_attn.q_proj.weight", (q, hidden), normal(1.85 / fan_in)),
            (p + "self_attn.k_proj.weight", (kv, hidden), normal(1.85 / fan_in)),
            (p + "self_attn.v_proj.weight", (kv, hidden), normal(1 / fan_in)),
            (p + "self_attn.o_proj.weight", (hidden, q), normal(branch / 0.75 / math.sqrt(q))),
            (p + "post_attention_layernorm.weight", (hidden,), GAIN),
            (p + "mlp.gate_proj.weight", (intermediate, hidden), normal(1.5 / fan_in)),
            (p + "mlp.up_proj.weight", (intermediate, hidden), normal(1 / fan_in)),
            (p + "mlp.down_proj.weight", (hidden, intermediate), normal(branch / 0.88 / math.sqrt(intermediate))),
        ]
    out.append(("model.norm.weight", (hidden,), GAIN))
    if not tied:
        out.append(("lm_head.weight", (vocab, hidden), head))
    return out


def of_config(c):
    """llama(…) of a transformers LlamaConfig."""
    head_dim = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    return llama(c.num_hidden_layers, c.hidden_size, c.intermediate_size, c.num_attention_heads, c.num_key_value_heads,
                 head_dim, c.vocab_size, c.tie_word_embeddings)


def of_description(d):
    """The list of (name, shape, recipe) of what `mkgen describe --json` prints."""
    return [(name, tuple(shape), GAIN if recipe == ["gain"] else ("normal", *recipe)) for name, shape, *recipe in d["stored"]]


def bits(tensor):
    """The bf16 bit patterns of a tensor of bf16 values, as little-endian bytes."""
    return tensor.to(torch.bfloat16).contiguous().view(torch.int16).cpu().numpy().astype("<i2").tobytes()


def sample_hash(tensors, read):
    """Go's synth.SampleHash; read(name) returns the flat tensor."""
    digest = hashlib.sha256()
    for name, shape, _ in tensors:
        digest.update(f"{name} {'x'.join(map(str, shape))}\n".encode())
        flat = read(name).reshape(-1)
        digest.update(bits(flat[:: max(1, flat.numel() // SAMPLE)][:SAMPLE]))
    return digest.hexdigest()


def golden():
    """Bit patterns at the start, across a boundary of the counter's bytes and at the far end, for recipes of all kinds."""
    cases = []
    for seed in (0, 1, 0xFFFFFFFFFFFFFFFF):
        for name, recipe in (("model.norm.weight", GAIN), ("lm_head.weight", normal(1.0)),
                             ("model.layers.31.mlp.down_proj.weight", normal(0.0123)),
                             ("model.layers.31.post_feedforward_layernorm.weight", (*normal(0.17), -1))):
            for start in (0, 65530, (1 << 31) - 12):
                v = values(seed, name, recipe, start, 12)
                cases.append({"seed": str(seed), "name": name, "gain": recipe[0] == "gain", "mantissa": recipe[1],
                              "exp": recipe[2], "shift": sum(recipe[3:]), "start": start, "bits": bits(v).hex()})
    tied = llama(2, 128, 352, 6, 2, 32, 320, True)
    untied = llama(3, 96, 200, 3, 3, 32, 1000, False)
    single = llama(1, 64, 70000, 1, 1, 64, 1000, True)
    hashes = [sample_hash(ts, _reader(ts)) for ts in (tied, untied, single)]
    print(json.dumps({"cases": cases, "tokens": tokens(7, 3, 16, 128256).tolist(),
                      "tied_hash": hashes[0], "untied_hash": hashes[1],
                      "single_hash": hashes[2]}, indent=1))


def _reader(tensors):
    shapes = {name: (math.prod(shape), recipe) for name, shape, recipe in tensors}
    return lambda name: values(5, name, shapes[name][1], 0, shapes[name][0])


if __name__ == "__main__":
    if sys.argv[1:] != ["golden"]:
        sys.exit("usage: synth.py golden")
    golden()
