"""Writes loglikelihoods.json: log-probabilities of texts by the bundled model in Hugging Face transformers, in float32.

    python make_loglikelihoods.py     # needs torch and transformers 5; made with the versions that the file names
"""

import json
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

here = Path(__file__).resolve().parent
model_dir = here.parents[1] / "models" / "bundled" / "tiny"
tokenizer = AutoTokenizer.from_pretrained(model_dir)
model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
texts = ["Once upon a time there was a little dog.", "The dog ran to the park, and then it ran home.", "Zebras: 12 + 7 = 19!", "a é ü 漢"]
cases = []
for text in texts:
    ids = tokenizer(text)["input_ids"]
    with torch.no_grad():
        logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)
    chosen = [logprobs[i, ids[i + 1]].item() for i in range(len(ids) - 1)]
    top = [torch.topk(logprobs[i], 3).indices.tolist() for i in range(len(ids) - 1)]
    cases.append({"text": text, "ids": ids, "logprobs": chosen, "top": top})
made_by = f"torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}, CPU"
lines = ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases)
(here / "loglikelihoods.json").write_text(f'{{"made_by": "{made_by}", "cases": [\n{lines}\n]}}\n')
