#!/usr/bin/env python3
"""Answers with what Hugging Face's tokenizers makes of each line of JSON on stdin.

    hf_oracle.py TOKENIZER.JSON

{"texts": [TEXT, ...], "lists": [[ID, ...], ...], "bytes": [BASE64, ...]} is answered by {"ids": [...], "special": [...], "plain": [...]} with a list of ids for each
text, {"decoded": [...], "skipped": [...]} with a text for each text's ids and then for each of the lists, and {"invalid": [...]} with the place where
each of the bytes stops being UTF-8, or -1 (Python's library takes text only; whoever has bytes decodes them first).
"""
import base64
import json
import pathlib
import sys

import tokenizers

import styles


def main():
    source = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
    tokenizer, decoding = tokenizers.Tokenizer.from_str(source), styles.speaker(source)
    for line in sys.stdin:
        asked = json.loads(line)
        encode = lambda special: [e.ids for e in tokenizer.encode_batch_fast(asked["texts"], add_special_tokens=special)]
        tokenizer.encode_special_tokens = False
        answer = {"ids": encode(False), "special": encode(True)}
        tokenizer.encode_special_tokens = True
        answer["plain"] = encode(False)
        lists = answer["ids"] + asked["lists"]
        for name, skip in (("decoded", False), ("skipped", True)):
            answer[name] = decoding.decode_batch(lists, skip_special_tokens=skip)
        answer["invalid"] = [first_invalid(base64.b64decode(b)) for b in asked["bytes"]]
        print(json.dumps(answer), flush=True)


def first_invalid(data):
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return -1


if __name__ == "__main__":
    main()
