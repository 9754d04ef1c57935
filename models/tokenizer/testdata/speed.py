#!/usr/bin/env python3
"""Measures Hugging Face's library on one core, on tokenizers of 32,000 tokens that it trains for this.

    RAYON_NUM_THREADS=1 python3 speed.py FOLDER [STYLE ...]

Writes FOLDER/text.txt (Python's library and its help), FOLDER/STYLE/tokenizer.json, and prints MB/s. To compare:

    go test ./models/tokenizer -run - -bench BenchmarkEncodeFile -hf-dir FOLDER/STYLE -text FOLDER/text.txt
"""
import json
import pathlib
import sys
import sysconfig
import time

from tokenizers import Tokenizer

import make_testdata
import styles

if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    sources = sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py"))
    code = [s.read_text(encoding="utf-8", errors="ignore") for s in sources]
    topics = make_testdata.training_text()[:-40 * len(make_testdata.cases.SENTENCES)]
    styles.training_text = lambda: topics * 4 + code
    text = "".join(t + c[:len(t)] for t, c in zip(topics, code))[:2_000_000]
    (folder / "text.txt").write_text(text, encoding="utf-8")
    for name in sys.argv[2:] or ["qwen2", "o200k", "smollm", "llama2", "mistral", "unigram"]:
        (folder / name).mkdir(exist_ok=True)
        path = folder / name / "tokenizer.json"
        if not path.exists():
            made = styles.train(styles.STYLES[name], 32000)
            path.write_text(json.dumps(made, ensure_ascii=False), encoding="utf-8")
        tokenizer = Tokenizer.from_file(str(path))
        best, size = 1e9, len(text.encode())
        for _ in range(5):
            began = time.process_time()
            ids = tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
            best = min(best, time.process_time() - began)
        print(f"{name}: {size} bytes, {len(ids)} tokens, {size / best / 1e6:.2f} MB/s", flush=True)
