"""Writes processors.json: what Hugging Face transformers leaves of logits with all its processors at once, in the order in which generate has them.

    python make_processors.py     # needs torch and transformers 5; made with the versions that the file names
"""

import json
from pathlib import Path

import torch
import transformers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

VOCAB = 24
torch.manual_seed(5)
model = LlamaForCausalLM(LlamaConfig(vocab_size=VOCAB, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1))
cases = []
for i in range(24):
    prompt, answer = torch.randint(0, VOCAB, (4,)).tolist(), torch.randint(0, VOCAB, (i % 5,)).tolist()
    bias = {(i + 3 * j) % VOCAB: round(torch.randn(()).item() * 3, 2) for j in range(3)} if i % 2 else {}
    c = {"prompt": prompt, "answer": answer, "repetition": [1.0, 1.3, 0.8][i % 3], "bias": bias, "least": [0, 3][i % 2], "ends": [i % VOCAB, (5 * i + 1) % VOCAB],
         "temperature": [1.0, 0.7, 2.5][i // 3 % 3], "top_k": [0, 8, 20][i // 2 % 3], "top_p": [1.0, 0.9][i // 5 % 2], "min_p": [0.0, 0.02][i // 7 % 2]}
    config = GenerationConfig(do_sample=True, eos_token_id=c["ends"], min_new_tokens=c["least"] or None, repetition_penalty=c["repetition"],
                              sequence_bias={(k,): v for k, v in bias.items()} or None, temperature=c["temperature"], top_k=c["top_k"], top_p=c["top_p"],
                              min_p=c["min_p"] or None)
    model._prepare_special_tokens(config, device="cpu")
    processors = model._get_logits_processor(generation_config=config, input_ids_seq_length=len(prompt), device="cpu")
    logits = torch.randn(VOCAB) * 3
    scores = processors(torch.tensor([prompt + answer]), logits[None].clone())[0]
    c["logits"] = logits.tolist()
    c["probs"] = [[j, float(f"{p:.7g}")] for j, p in enumerate(torch.softmax(scores.double(), -1).tolist()) if p > 0]
    c["order"] = [type(p).__name__ for p in processors]
    cases.append(c)
made_by = f"torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}, CPU"
lines = ",\n".join(json.dumps(c) for c in cases)
Path(__file__).with_name("processors.json").write_text(f'{{"made_by": "{made_by}", "cases": [\n{lines}\n]}}\n')
