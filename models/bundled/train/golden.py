"""Writes golden.json beside a bundled checkpoint: what Hugging Face makes of its tokenizer and of its weights.

    python golden.py FOLDER

texts: ids of hard cases. chats: conversations rendered and encoded. continuations: for each prompt the ids of the prompt, 40 tokens that
transformers in float32 on the CPU chooses by argmax, and for each by how much its logit is above the next best; an end token ends
a continuation early. sample: a continuation that is not greedy, to read.
"""

import json
import pathlib
import re
import sys

import torch
import transformers
from transformers import AutoTokenizer, LlamaForCausalLM

TEXTS = [
    "", " ", "\n", "a", "Once upon a time there was a king.", "  two  spaces \n\n\n and\tlines \r\n", "don't DON'T we'll I'VE 'tis 's", "1 22 333 4444 55555",
    "<|begin_of_text|>twice<|eot_id|>", "<|end_of_text|", "caf\u00e9 \u00c6\u00d8 stra\u00dfe", "\u4f60\u597d\uff0c\u4e16\u754c", "\U0001f451\U0001f9da\u200d\u2640\ufe0f", "e\u0301\u200b\ufeff",
    "thethethe inging", "\u0130\u017f's \u212a", "!?...--\"'", "\u0000\u0001\u007f", "x" * 40,
]
CHATS = [
    [{"role": "user", "content": "Tell me of the fox."}],
    [{"role": "system", "content": " A tale. "}, {"role": "user", "content": "There was once a miller."}, {"role": "assistant", "content": "He had\ntwo sons.\n"},
     {"role": "user", "content": "And then?"}],
]
PROMPTS = ["Once upon a time there was a king who", "The old woman said to the fox,", "There was once a poor miller who had three sons."]
COUNT = 40


def continuation(model, prompt):
    """Decodes by argmax with a cache, as the kernel does."""
    ids, cache, chosen, margins = torch.tensor([prompt]), None, [], []
    while len(chosen) < COUNT:
        out = model(input_ids=ids, past_key_values=cache, use_cache=True)
        cache, (best, second) = out.past_key_values, out.logits[0, -1].topk(2).values.tolist()
        chosen.append(int(out.logits[0, -1].argmax()))
        margins.append(float(f"{best - second:.6g}"))
        if chosen[-1] in model.config.eos_token_id:
            break
        ids = torch.tensor([chosen[-1:]])
    return chosen, margins


def write(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    found = {"made_by": f"torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}, float32, eager, CPU", "texts": [], "chats": [], "continuations": []}
    for text in TEXTS:
        found["texts"].append({"text": text, "ids": tokenizer(text)["input_ids"], "bare": tokenizer(text, add_special_tokens=False)["input_ids"]})
    for messages in CHATS:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        found["chats"].append({"messages": messages, "text": text, "ids": tokenizer(text, add_special_tokens=False)["input_ids"]})
    with torch.no_grad():
        for prompt in PROMPTS:
            ids = tokenizer(prompt)["input_ids"]
            chosen, margins = continuation(model, ids)
            found["continuations"].append({"prompt": prompt, "ids": ids, "chosen": chosen, "margins": margins, "text": tokenizer.decode(chosen)})
            print(prompt + "|" + tokenizer.decode(chosen), flush=True)
        torch.manual_seed(1)
        out = model.generate(torch.tensor([tokenizer("Once upon a time")["input_ids"]]), do_sample=True, temperature=0.7, top_k=0, max_new_tokens=300)
        found["sample"] = tokenizer.decode(out[0], skip_special_tokens=True)
        print(found["sample"], flush=True)
    lines = json.dumps(found, indent=1)
    compact = re.sub(r"\[\s+([-0-9.,e\s]+?)\s+\]", lambda m: "[" + " ".join(m.group(1).split()) + "]", lines)
    (pathlib.Path(folder) / "golden.json").write_text(compact + "\n")


if __name__ == "__main__":
    write(sys.argv[1])
