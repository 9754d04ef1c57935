"""Writes penalties.json: what Hugging Face transformers makes of logits with repetition_penalty, sequence_bias and log_softmax.

    python make_penalties.py     # needs torch and transformers 5; made with the versions that the file names
"""

import json
from pathlib import Path

import torch
import transformers
from transformers import RepetitionPenaltyLogitsProcessor, SequenceBiasLogitsProcessor

VOCAB = 24
torch.manual_seed(2)
cases = []
for penalty in (1.0, 1.2, 0.7, 3.0):
    for bias in ({}, {3: 2.5, 7: -4.0, 23: 100.0}):
        logits = torch.randn(VOCAB) * 3
        seen = torch.randint(0, VOCAB, (8,))
        scores = logits[None].clone()
        if bias:
            scores = SequenceBiasLogitsProcessor({(k,): v for k, v in bias.items()})(seen[None], scores)
        scores = RepetitionPenaltyLogitsProcessor(penalty)(seen[None], scores)
        cases.append({"logits": logits.tolist(), "seen": seen.tolist(), "repetition": penalty, "bias": bias, "scores": scores[0].tolist(),
                      "logprobs": torch.log_softmax(logits.double(), -1).tolist()})
made_by = f"torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}, CPU"
lines = ",\n".join(json.dumps(c) for c in cases)
Path(__file__).with_name("penalties.json").write_text(f'{{"made_by": "{made_by}", "cases": [\n{lines}\n]}}\n')
