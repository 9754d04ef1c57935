"""Writes golden.json: what Hugging Face transformers' generate leaves of logits with temperature, top-k, top-p and min-p.

    python make_golden.py        # needs torch and transformers 5; made with the versions that the file names

The processors are those that generate itself assembles, in its order (GenerationMixin._get_logits_processor).
"""

import json
import math
from pathlib import Path

import torch
import transformers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

VOCAB = 24

model = LlamaForCausalLM(LlamaConfig(vocab_size=VOCAB, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                                     num_attention_heads=1, num_key_value_heads=1))


def rows():
    torch.manual_seed(1)
    yield torch.randn(VOCAB) * 3
    yield torch.randn(VOCAB) * 0.1
    yield (torch.randn(VOCAB) * 4).round() / 2  # many equal ones
    few = torch.full((VOCAB,), -math.inf)
    few[[3, 4, 11, 17]] = torch.tensor([1.0, 0.5, 0.5, -2.0])
    yield few
    yield torch.randn(VOCAB) * 20 + 100
    yield torch.zeros(VOCAB)


PARAMS = [
    {},
    {"temperature": 0.7},
    {"temperature": 2.5},
    {"top_k": 1},
    {"top_k": 5},
    {"top_k": 100},
    {"top_p": 0.9},
    {"top_p": 0.3},
    {"top_p": 0.001},
    {"min_p": 0.1},
    {"min_p": 1.0},
    {"temperature": 0.8, "top_k": 10, "top_p": 0.95},
    {"temperature": 1.5, "top_k": 12, "top_p": 0.8, "min_p": 0.05},
    {"temperature": 3.0, "top_p": 0.6, "min_p": 0.3},
]


def left(row, params):
    given = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": None, **params}
    config = GenerationConfig(do_sample=True, eos_token_id=None, **given)
    processors = model._get_logits_processor(config, device="cpu")
    scores = processors(torch.zeros(1, 1, dtype=torch.long), row[None].clone())[0]
    probs = torch.softmax(scores.double(), -1)
    return [[i, float(f"{p:.7g}")] for i, p in enumerate(probs.tolist()) if p > 0]


cases = []
for row in rows():
    logits = [None if x == -math.inf else x for x in row.tolist()]
    cases.append({"logits": logits, "left": [{**p, "probs": left(row, p)} for p in PARAMS]})
made_by = f"torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}, CPU"
lines = ",\n".join(json.dumps(c) for c in cases)
Path(__file__).with_name("golden.json").write_text(f'{{"made_by": "{made_by}", "cases": [\n{lines}\n]}}\n')
