"""Writes golden.json beside this script: cross entropies that transformers computes with the bundled model, on the CPU.

    pip install torch==2.15.0 transformers==5.23.0
    python make_golden.py
"""

import json
import pathlib

import torch
from transformers import AutoTokenizer, LlamaForCausalLM

HERE = pathlib.Path(__file__).parent
TINY = HERE / "../../../models/bundled/tiny"
TEXT = """There was once a shepherd who had nothing in the world but a flute and a grey dog. Every evening he played on the hill, and every
evening a fox came out of the wood to listen. "Why do you come?" asked the shepherd. "Because," said the fox, "when you play I forget that I am
hungry." """
WINDOW = 40


def main():
    tokenizer = AutoTokenizer.from_pretrained(TINY)
    model = LlamaForCausalLM.from_pretrained(TINY, dtype=torch.float32, attn_implementation="eager").eval()
    ids = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    windows = [[tokenizer.bos_token_id] + ids[i:i + WINDOW - 1] for i in range(0, len(ids), WINDOW - 1)]
    nats = 0.0
    with torch.no_grad():
        for window in windows:
            logits = model(torch.tensor([window])).logits[0, :-1].double()
            nats += torch.nn.functional.cross_entropy(logits, torch.tensor(window[1:]), reduction="sum").item()
    golden = {"text": TEXT, "window": WINDOW, "tokens": len(ids), "windows": windows, "nats": nats}
    (HERE / "golden.json").write_text(json.dumps(golden) + "\n")


main()
