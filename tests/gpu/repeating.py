"""Writes a checkpoint of a Llama's shape whose greedy text is known, and prompts whose text the answers repeat, wholly or but for edits.

    python repeating.py --config DIR --out DIR [--length 512] [--seed 1]

All matrices of the layers are 0, so what follows depends on the last token alone: a random cycle through the whole vocabulary, which row n(t) of the LM head, the embedding of t, tells. The steps
take the time that the shape's steps take. OUT/prompts.json holds lists of token ids: each is LENGTH tokens of the cycle, of which one in 50, 20, 10 or none is exchanged for another, as a file that is to be
edited, and then the first token again, so that the answer is the text as it should be; the last one's answer is nowhere in it. DIR holds config.json. Needs torch and safetensors, and room on the disk.
"""

import argparse
import json
import pathlib

import torch
from safetensors.torch import save_file

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--config", type=pathlib.Path, required=True)
parser.add_argument("--out", type=pathlib.Path, required=True)
parser.add_argument("--length", type=int, default=512)
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()
config = json.loads((args.config / "config.json").read_text())
config["tie_word_embeddings"] = False
args.out.mkdir(parents=True)
(args.out / "config.json").write_text(json.dumps(config))
vocabulary, width = config["vocab_size"], config["hidden_size"]
head = config.get("head_dim") or width // config["num_attention_heads"]
rows = {
    "self_attn.q_proj": (config["num_attention_heads"] * head, width),
    "self_attn.k_proj": (config["num_key_value_heads"] * head, width),
    "self_attn.v_proj": (config["num_key_value_heads"] * head, width),
    "self_attn.o_proj": (width, config["num_attention_heads"] * head),
    "mlp.gate_proj": (config["intermediate_size"], width),
    "mlp.up_proj": (config["intermediate_size"], width),
    "mlp.down_proj": (width, config["intermediate_size"]),
}
index = {}


def save(name, tensors):
    save_file(tensors, args.out / name, metadata={"format": "pt"})
    index.update(dict.fromkeys(tensors, name))


for layer in range(config["num_hidden_layers"]):
    tensors = {f"model.layers.{layer}.{name}.weight": torch.zeros(shape, dtype=torch.bfloat16) for name, shape in rows.items()}
    for norm in "input_layernorm", "post_attention_layernorm":
        tensors[f"model.layers.{layer}.{norm}.weight"] = torch.ones(width, dtype=torch.bfloat16)
    save(f"layer-{layer}.safetensors", tensors)
generator = torch.Generator().manual_seed(args.seed)
cycle = torch.randperm(vocabulary, generator=generator)
embedding = torch.empty((vocabulary, width), dtype=torch.bfloat16).normal_(0, 0.02, generator=generator)
lm_head = torch.empty_like(embedding)
lm_head[cycle.roll(-1)] = embedding[cycle]
save("head.safetensors", {"model.embed_tokens.weight": embedding, "model.norm.weight": torch.ones(width, dtype=torch.bfloat16), "lm_head.weight": lm_head})
(args.out / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))

prompts = []
for i, every in enumerate((0, 50, 20, 10)):
    text = cycle[i * args.length : (i + 1) * args.length].tolist()
    first = text[0]
    for at in range(every - 1, args.length, every) if every else ():
        text[at] = int(cycle[-1 - at])
    prompts.append({"name": f"one token in {every} edited" if every else "no token edited", "ids": text + [first]})
prompts.append({"name": "nothing repeats", "ids": cycle[8 * args.length : 9 * args.length].tolist()})
(args.out / "prompts.json").write_text(json.dumps(prompts))
print(f"{args.out}: {len(index)} tensors, {len(prompts)} prompts")
