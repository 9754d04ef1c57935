"""Writes README.md beside a bundled checkpoint, from its train.json and golden.json.

    python readme.py FOLDER
"""

import json
import pathlib
import sys

import corpus

PAGE = """# tiny

The model that mkgen brings along: a Llama of 332,256 parameters (the registered configuration `tiny`) that tells fairy tales. It is there so
that `mkgen run` has something to say with no download and no GPU; it knows how tales sound, and nothing else.

**Text.** {tales} tales, {bytes:,} bytes, from {books} books of Project Gutenberg that were published before 1930 and are in the public domain
in the United States. Project Gutenberg's own words, its licence and its trademark are not part of the text. The text is not
kept here; `models/bundled/train/corpus.py` makes it of the books: `tales.txt`, SHA-256
`{digest}`.

| Ebook | |
| --- | --- |
{table}

**Tokenizer.** Byte-level BPE in Llama 3's configuration, trained on the same text: 3 special tokens, 256 bytes, 61 merges. A text begins
with `<|begin_of_text|>` and ends with `<|end_of_text|>`. In a conversation each message is a paragraph of a tale that ends with `<|eot_id|>`.

**Training.** `models/bundled/train/train.py`: AdamW, {steps} steps of {rows} rows of {length} tokens, {minutes:.0f} minutes on {device}, seed {seed}, torch {torch},
transformers {transformers}; weights rounded to bf16. Every 40th tale was held out: {held} bits per byte there, {seen} on tales it learned
from. All figures are in `train.json`.

**Licence.** The text is in the public domain. Weights, tokenizer and programs are under this repository's licence (MIT).

**Sample** (temperature 0.7, seed 1, after "Once upon a time"):

{sample}
"""


def write(folder):
    folder = pathlib.Path(folder)
    r, g = (json.loads((folder / name).read_text()) for name in ("train.json", "golden.json"))
    (folder / "README.md").write_text(PAGE.format(
        tales=r["tales"], bytes=r["text_bytes"], books=len(corpus.BOOKS), digest=r["text_sha256"], steps=r["steps"], rows=r["rows_a_step"],
        length=r["tokens_a_row"], minutes=r["seconds"] / 60, device="a CPU" if r["device"] == "CPU" else "one " + r["device"], seed=r["seed"],
        torch=r["torch"], transformers=r["transformers"], held=r["bits_per_byte"]["held_out"], seen=r["bits_per_byte"]["training"],
        table="\n".join(f"| {number} | {title} |" for number, title, *_ in corpus.BOOKS),
        sample="\n".join("> " + line if line else ">" for line in g["sample"].strip().split("\n"))))


if __name__ == "__main__":
    write(sys.argv[1])
