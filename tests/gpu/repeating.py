"""Writes a checkpoint whose greedy text repeats its last token for ever, of a Llama's shape: all matrices of the layers are 0, and the LM head is the embedding, whose rows are random.

    python repeating.py --config config.json --out DIR

It is what prompt lookup gains at most, since each guess is right, at the time that the shape's steps take. Needs torch and transformers.
"""

import argparse

import torch
import transformers

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--config", required=True)
parser.add_argument("--out", required=True)
args = parser.parse_args()
config = transformers.AutoConfig.from_pretrained(args.config)
config.tie_word_embeddings = True
torch.manual_seed(1)
model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
with torch.no_grad():
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.fill_(1)
        elif "embed" in name:
            parameter.normal_(0, 0.02)
        else:
            parameter.zero_()
model.save_pretrained(args.out)
print(f"{args.out}: {sum(p.numel() for p in model.parameters())} parameters")
