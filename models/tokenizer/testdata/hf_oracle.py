#!/usr/bin/env python3
"""Answers with what Hugging Face's tokenizers makes of each line of JSON on stdin.

    hf_oracle.py TOKENIZER.JSON

{"text": TEXT} is answered by {"ids": [...], "special": [...], "plain": [...]}, {"ids": [...]} by {"text": TEXT, "skipped": TEXT}.
"""
import json
import sys

import tokenizers


def main():
    tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1])
    for line in sys.stdin:
        asked = json.loads(line)
        if "text" in asked:
            tokenizer.encode_special_tokens = False
            answer = {"ids": tokenizer.encode(asked["text"], add_special_tokens=False).ids, "special": tokenizer.encode(asked["text"]).ids}
            tokenizer.encode_special_tokens = True
            answer["plain"] = tokenizer.encode(asked["text"], add_special_tokens=False).ids
        else:
            answer = {"text": tokenizer.decode(asked["ids"], skip_special_tokens=False), "skipped": tokenizer.decode(asked["ids"])}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
