"""For tests/python_test.go: what examples/python/kernel.py makes of a generated kernel, without a GPU.

    python python_buffers.py EXAMPLE_DIRECTORY SYNTH_DIRECTORY KERNEL_DIRECTORY SEED PAGES

Prints JSON: SHA-256 of every buffer's content before the first launch, and the params block in hexadecimal, with pointer i
(counted from 1) being i << 32 and scalar i being i.
"""

import hashlib
import json
import sys

import torch

sys.path[:0] = sys.argv[1:3]
import kernel  # noqa: E402
import synth  # noqa: E402

layout, seed, pages = kernel.load(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
m = layout["model"]
tensors = {name: synth.values(seed, name, recipe, 0, torch.Size(shape).numel()).view(shape) for name, shape, recipe in synth.llama(
    m["num_hidden_layers"], m["hidden_size"], m["intermediate_size"], m["num_attention_heads"], m["num_key_value_heads"],
    m["head_dim"], m["vocab_size"], m["tie_word_embeddings"])}
buffers = kernel.fill(layout, pages, tensors.__getitem__, "cpu")
addresses = {f["name"]: i << 32 for i, f in enumerate(layout["params"], 1) if f["pointer"]}
scalars = {f["name"]: i for i, f in enumerate(layout["params"], 1) if not f["pointer"]}
print(json.dumps({"buffers": {name: hashlib.sha256(b.numpy().tobytes()).hexdigest() for name, b in buffers.items()},
                  "params": kernel.block(layout, addresses, scalars).hex()}))
