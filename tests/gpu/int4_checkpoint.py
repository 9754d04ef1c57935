"""Writes a sharded checkpoint of a Llama in 4 bits, groups of 128, as compressed-tensors packs it, with random codes, and runs mkgen on it.

    python tests/gpu/int4_checkpoint.py --config models/testdata/configs/llama3-70b.json --out /tmp/70b --run out/mkgen

It needs Python alone, room for the files (llama3-70b: 39.6 GB) and for as much again in the page cache, or the disk is what is timed. With --run
the program continues a few token ids on the GPU, and what it took of the host's memory is printed: of no file, and shared (pinned), at most.
"""

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import subprocess
import sys
import time

SHARD = 2 << 30  # bytes that a shard has at least, but for the last
GROUP = 128
PIECE = 1 << 26
POSITIVE = bytes(b & 0x7F for b in range(256))


def bf16(n, high, signs=b"\0"):
    """n random bf16 whose high byte is high with a sign of signs; the exponent's last bit is 0, so they differ by less than a factor of 2."""
    data = bytearray(os.urandom(2 * n))
    data[0::2] = data[0::2].translate(POSITIVE)
    data[1::2] = data[1::2].translate(bytes(high | signs[b % len(signs)] for b in range(256)))
    return data


def ones(n):
    return b"\x80\x3f" * n


def wide(n):
    return bf16(n, 0x3C, b"\x00\x80")  # ±0.008 to 0.016


def scales(n):
    return bf16(n, 0x3B)  # 0.002 to 0.004


def tensors(c):
    """Name, type, shape and bytes' maker of every tensor."""
    hidden, inner, vocab = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    head = c.get("head_dim") or hidden // c["num_attention_heads"]
    q, kv = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
    yield "model.embed_tokens.weight", "BF16", [vocab, hidden], wide
    for i in range(c["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        for name, rows, columns in (("self_attn.q", q, hidden), ("self_attn.k", kv, hidden), ("self_attn.v", kv, hidden), ("self_attn.o", hidden, q),
                                    ("mlp.gate", inner, hidden), ("mlp.up", inner, hidden), ("mlp.down", hidden, inner)):
            if columns % GROUP:
                sys.exit(f"int4_checkpoint: {layer}{name}_proj has {columns} columns, want a multiple of {GROUP}")
            weight = f"{layer}{name}_proj.weight"
            yield f"{weight}_packed", "I32", [rows, columns // 8], lambda n: os.urandom(4 * n)
            yield f"{weight}_scale", "BF16", [rows, columns // GROUP], scales
            yield f"{weight}_shape", "I64", [2], lambda n, s=(rows, columns): b"".join(x.to_bytes(8, "little") for x in s)
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{layer}{name}.weight", "BF16", [hidden], ones
    yield "model.norm.weight", "BF16", [hidden], ones
    if not c.get("tie_word_embeddings"):
        yield "lm_head.weight", "BF16", [vocab, hidden], wide


SIZES = {"BF16": 2, "I32": 4, "I64": 8}


def size(t):
    return SIZES[t[1]] * math.prod(t[2])


def write_shard(config, out, first, end, name):
    all_tensors = list(tensors(config))[first:end]
    header, at = {}, 0
    for t in all_tensors:
        header[t[0]] = {"dtype": t[1], "shape": t[2], "data_offsets": [at, at + size(t)]}
        at += size(t)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(out / name, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for t in all_tensors:
            n, piece = math.prod(t[2]), PIECE // SIZES[t[1]]
            for i in range(0, n, piece):
                f.write(t[3](min(piece, n - i)))


def write(config, out):
    out.mkdir(parents=True, exist_ok=True)
    quantisation = {"quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed", "ignore": ["lm_head"], "config_groups": {
        "group_0": {"targets": ["Linear"], "input_activations": None, "output_activations": None, "weights": {
            "num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": GROUP, "dynamic": False}}}}
    (out / "config.json").write_text(json.dumps(config | {"quantization_config": quantisation}, indent=2))
    every, cuts, held = list(tensors(config)), [0], 0
    for i, t in enumerate(every):
        if held >= SHARD:
            cuts.append(i)
            held = 0
        held += size(t)
    cuts.append(len(every))
    names = [f"model-{i + 1:05d}-of-{len(cuts) - 1:05d}.safetensors" for i in range(len(cuts) - 1)]
    where = {t[0]: names[i] for i in range(len(names)) for t in every[cuts[i]:cuts[i + 1]]}
    (out / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    begin = time.monotonic()
    with concurrent.futures.ProcessPoolExecutor() as pool:
        for made in [pool.submit(write_shard, config, out, cuts[i], cuts[i + 1], names[i]) for i in range(len(names))]:
            made.result()
    print(f"{sum(map(size, every))} bytes in {len(names)} shards, written in {time.monotonic() - begin:.1f} s", flush=True)


def resident(pid):
    """Bytes of the process's memory: of no file, shared, of mapped files."""
    of = {}
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        words = line.split()
        if words and words[0] in ("RssAnon:", "RssShmem:", "RssFile:"):
            of[words[0]] = int(words[1]) << 10
    return [of.get(k, 0) for k in ("RssAnon:", "RssShmem:", "RssFile:")]


def run(mkgen, out, flags):
    command = [mkgen, "run", "--checkpoint", str(out), "--max-tokens", "16", "-v", *flags, "1 2 3 4 5 6 7 8"]
    begin, most = time.monotonic(), [0, 0, 0]
    process = subprocess.Popen(command)
    while process.poll() is None:
        try:
            most = [max(a, b) for a, b in zip(most, resident(process.pid))]
        except OSError:  # it has just ended
            break
        time.sleep(0.01)
    code = process.wait()
    print("mkgen ended with {} after {:.1f} s; host memory at most: {:.0f} MB anonymous, {:.0f} MB shared, {:.0f} MB of mapped files".format(
        code, time.monotonic() - begin, *(m / 1e6 for m in most)))
    return code


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="config.json of a Llama in bf16")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="directory to write")
    parser.add_argument("--layers", type=int, help="so many layers instead of the config's")
    parser.add_argument("--run", metavar="MKGEN", help="the program to run on the checkpoint")
    parser.add_argument("--flags", default="--device cuda", help="flags of mkgen run (default: --device cuda)")
    args = parser.parse_args()
    config = json.loads(pathlib.Path(args.config).read_text())
    if config.get("model_type") != "llama":
        sys.exit(f"int4_checkpoint: a config of {config.get('model_type')}, want llama")
    if args.layers:
        config["num_hidden_layers"] = args.layers
    write(config, args.out)
    if args.run:
        sys.exit(run(args.run, args.out, args.flags.split()))


if __name__ == "__main__":
    main()
