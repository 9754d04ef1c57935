#!/usr/bin/env python3
"""Trains a small tokenizer in the style of each family and writes what Hugging Face's library makes of the hard cases.

    pip install tokenizers==0.23.3
    python3 styles.py [NAME ...]    # styles/NAME/tokenizer.json, styles/NAME/golden.json; all of them when none is named

A tokenizer.json that is there already is kept, because the library's trainers break ties at random: to train one anew, delete it.
"""
import json
import pathlib
import sys

from tokenizers import Tokenizer, __version__

import cases
from charsmap import charsmap
from make_testdata import training_text, write_json

HERE = pathlib.Path(__file__).parent
OUT = HERE / "styles"

QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
UPPER, LOWER, TAIL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = "|".join([rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{TAIL}", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{TAIL}", r"\p{N}{1,3}",
                  r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
TEKKEN = "|".join([rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*", r"\p{N}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK = [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""]


def level(prefix=False, regex=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def split(pattern, behavior="Isolated", kind="Regex", invert=False):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def steps(field, *members):
    return {"type": "Sequence", field: list(members)}


def pre(*members):
    return steps("pretokenizers", *members)


def norm(*members):
    return steps("normalizers", *members)


def signs(scheme, cut):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut}


def swap(old, new, kind="String"):
    return {"type": "Replace", "pattern": {kind: old}, "content": new}


def plain(*types):
    return [{"type": t} for t in types]


def token(content, special=True, normalized=False, **flags):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": normalized, "special": special, **flags}


LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
FALLBACK = plain("ByteFallback", "Fuse")
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
SPM = {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}
ENDS = [token("<unk>"), token("<s>"), token("</s>")]
CHAT = [token("<|endoftext|>"), token("<|im_start|>"), token("<|im_end|>"), token("<tool_call>", special=False)]
ODD = [token("<mask>", lstrip=True), token("<right>", rstrip=True), token("<both>", special=False, lstrip=True, rstrip=True),
       token("fox", special=False, single_word=True), token("Über Fluß", special=False, normalized=True), token("dog", special=False, normalized=True, single_word=True)]
REPLACED = {"ﬁ": "fi", "²": "2", "①": "1", "Ａ": "A", "\u00a0": " ", "\u3000": " ", "\u200b": "", "\u00ad": "", "½": "1/2", "é": "é", "e\u0301": "é", "\t": " ", "\n": " ", "…": "...",
            "ä": "ä", "a\u0308": "ä", "カ": "か", "\u0301": "", "漢": "汉", "👍": "+1"}

# Each style: what tokenizer.json has beside the vocabulary.
STYLES = {
    "gpt2": {"pre_tokenizer": level(regex=True), "decoder": LEVEL, "added": CHAT},
    "roberta": {"pre_tokenizer": level(prefix=True, regex=True), "decoder": LEVEL, "added": ENDS + ODD,
                "post_processor": {"type": "RobertaProcessing", "sep": ["</s>", "</s>"], "cls": ["<s>", "<s>"], "trim_offsets": True, "add_prefix_space": True}},
    "qwen2": {"normalizer": plain("NFC")[0], "pre_tokenizer": pre(split(QWEN2), level()), "decoder": LEVEL, "added": CHAT, "post_processor": LEVEL},
    "cl100k": {"pre_tokenizer": pre(split(CL100K, "Removed", invert=True), level()), "decoder": LEVEL, "added": CHAT},
    "o200k": {"pre_tokenizer": pre(split(O200K), level()), "decoder": LEVEL, "added": CHAT, "model": {"ignore_merges": True}},
    "tekken": {"pre_tokenizer": pre(split(TEKKEN), level()), "decoder": LEVEL, "added": ENDS + [token("[INST]"), token("[/INST]")], "bos": True},
    "glm4": {"pre_tokenizer": pre(split(QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)), level()), "decoder": LEVEL,
             "added": CHAT + [token("[gMASK]"), token("<sop>"), token("<|user|>"), token("<|observation|>")], "before": ["[gMASK]", "<sop>"]},
    "smollm": {"pre_tokenizer": pre({"type": "Digits", "individual_digits": True}, level(regex=True)), "decoder": LEVEL, "added": CHAT},
    "falcon": {"pre_tokenizer": pre({"type": "Punctuation", "behavior": "Contiguous"}, level(regex=True), {"type": "Digits", "individual_digits": False},
                                    split("[0-9][0-9][0-9]")), "decoder": LEVEL, "added": CHAT + [token(">>TITLE<<", special=False)]},
    "deepseek": {"normalizer": norm(), "pre_tokenizer": pre(*map(split, DEEPSEEK), level()), "decoder": LEVEL, "added": CHAT},
    "llama2": {"normalizer": norm({"type": "Prepend", "prepend": "▁"}, swap(" ", "▁")), "model": SPM, "bytes": True, "added": ENDS + ODD, "bos": True,
               "decoder": steps("decoders", swap("▁", " "), *FALLBACK, STRIP)},
    "phi3": {"normalizer": norm({"type": "Prepend", "prepend": "▁"}, swap(" ", "▁")), "model": SPM, "bytes": True,
             "added": ENDS + [token("<|endoftext|>")] + [token(f"<|{s}|>", rstrip=True) for s in ("system", "user", "assistant", "end")],
             "decoder": steps("decoders", swap("▁", " "), *FALLBACK, STRIP)},
    "gemma": {"normalizer": swap(" ", "▁"), "pre_tokenizer": split(" ", "MergedWithPrevious", "String"), "model": SPM, "bytes": True, "bos": True,
              "added": ENDS + [token(s, special=False) for s in ("<start_of_turn>", "\n", "\n\n", "▁▁", "▁▁▁", "\t", "<table>")], "decoder": steps("decoders", swap("▁", " "), *FALLBACK)},
    "mistral": {"pre_tokenizer": signs("first", False), "model": {**SPM, "ignore_merges": True}, "bytes": True, "added": ENDS + [token("[INST]"), token("[/INST]")], "bos": True,
                "decoder": steps("decoders", swap("▁", " "), *FALLBACK, STRIP)},
    "metaspace": {"pre_tokenizer": pre({"type": "WhitespaceSplit"}, signs("always", True)), "model": {"unk_token": "<unk>", "fuse_unk": False}, "added": ENDS + ODD,
                  "decoder": signs("always", True)},
    "metaspace-first": {"normalizer": norm({"type": "Strip", "strip_left": True, "strip_right": True}, swap(r"[\n\t]+", "", "Regex")),
                        "pre_tokenizer": pre(signs("first", True), {"type": "Punctuation", "behavior": "MergedWithPrevious"}), "added": ENDS + ODD,
                        "model": {"unk_token": "<unk>", "fuse_unk": True}, "decoder": signs("first", True)},
    "unigram": {"normalizer": norm({"type": "Precompiled", "precompiled_charsmap": charsmap(REPLACED)}, swap(" {2,}", " ", "Regex")), "unigram": {},
                "pre_tokenizer": signs("always", True), "added": ENDS + ODD, "decoder": signs("always", True), "bos": True},
    "unigram-bytes": {"normalizer": norm(*plain("NFKC", "Lowercase")), "unigram": {"byte_fallback": True}, "bytes": True,
                      "pre_tokenizer": signs("first", True), "added": ENDS + ODD, "decoder": steps("decoders", *FALLBACK, signs("first", True))},
    "words": {"normalizer": norm(*plain("NFD", "Lowercase", "StripAccents")), "pre_tokenizer": plain("Whitespace")[0],
              "model": {"unk_token": "<unk>"}, "added": ENDS + ODD},
    "bert": {"normalizer": norm(*plain("NFKD")), "pre_tokenizer": pre(plain("BertPreTokenizer")[0], {"type": "Punctuation", "behavior": "MergedWithNext"}),
             "model": {"unk_token": "<unk>", "fuse_unk": True}, "added": ENDS, "decoder": plain("Fuse")[0]},
}


def train(style, tokens=None):
    """Trains the vocabulary with the library's own trainers, on what the style's normalizer and pre-tokenizer give."""
    from tokenizers import models, pre_tokenizers, trainers
    empty = {"type": "Unigram", "unk_id": None, "vocab": []} if "unigram" in style else {"type": "BPE", "vocab": {}, "merges": []}
    parts = {k: style.get(k) for k in ("normalizer", "pre_tokenizer", "decoder")}
    learner = Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], "post_processor": None, "model": empty, **parts}))
    first = [t["content"] for t in style["added"] if t["special"] and t["content"].startswith(("<unk", "<s", "</s"))]
    first += [f"<0x{b:02X}>" for b in range(256)] if style.get("bytes") else []
    bytewise = "ByteLevel" in json.dumps(style["pre_tokenizer"] if "pre_tokenizer" in style else None)
    size = {"special_tokens": first, "vocab_size": tokens or 500 + (100 if bytewise or style.get("bytes") else 0), "show_progress": False}
    if "unigram" in style:
        trainer = trainers.UnigramTrainer(unk_token="<unk>", **size)
    else:
        trainer = trainers.BpeTrainer(initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()) if bytewise else [], limit_alphabet=300, **size)
    learner.train_from_iterator([t if tokens else t[:4000] for t in training_text()], trainer)
    made = json.loads(learner.to_str())
    made["model"].update(style.get("model", {}), **style.get("unigram", {}))
    vocab = made["model"]["vocab"]
    ids = dict(vocab) if isinstance(vocab, dict) else {name: i for i, (name, _) in enumerate(vocab)}
    made["added_tokens"] = []
    for t in style["added"]:
        made["added_tokens"].append({"id": ids.setdefault(t["content"], len(ids)), **t})
    made["added_tokens"].sort(key=lambda t: t["id"])
    if "post_processor" in style:
        made["post_processor"] = json.loads(json.dumps(style["post_processor"]).replace('"</s>"]', f'{ids.get("</s>")}]').replace('"<s>"]', f'{ids.get("<s>")}]'))
    before = style.get("before", ["<s>"] if style.get("bos") else [])
    if before:
        made["post_processor"] = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": s, "type_id": 0}} for s in before] + [{"Sequence": {"id": "A", "type_id": 0}}],
                                  "pair": [], "special_tokens": {s: {"id": s, "ids": [ids[s]], "tokens": [s]} for s in before}}
    made["decoder"] = style.get("decoder")
    return made


def speaker(source):
    """Gives the tokenizer that decodes. 0.23 decodes an added token that is looked for in normalized text to its normalized spelling, and no longer
    knows it for a special one; 0.22 decodes it as the file spells it, and so do we. Tokens that are not looked for there are spelled so in both."""
    made = json.loads(source)
    for t in made["added_tokens"]:
        t["normalized"] = False
    return Tokenizer.from_str(json.dumps(made))


def golden(source, name):
    tokenizer, decoding = Tokenizer.from_str(source), speaker(source)
    texts = [(n, t) for n, t in cases.TEXTS if len(t) <= 45] + [("added tokens", " a <mask> b<right>  c <both> d foxes fox fox, Über Fluß über fluß dog dogs</s>\n<|im_end|> <unk>")]
    rows = []
    for case, text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        rows.append({"name": case, "text": text, "ids": ids, "special": tokenizer.encode(text).ids,
                     "decoded": decoding.decode(ids, skip_special_tokens=False), "skipped": decoding.decode(ids)})
        row = rows[-1]
        for same, as_ in (("special", "ids"), ("decoded", "text"), ("skipped", "decoded")):
            if row[same] == row[as_]:
                row[same] = None
        rows[-1] = {k: v for k, v in row.items() if v is not None}
    write_json(OUT / name / "golden.json", {"by": "tokenizers " + __version__}, {"cases": rows})


if __name__ == "__main__":
    for name in sys.argv[1:] or STYLES:
        path = OUT / name / "tokenizer.json"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(train(STYLES[name]), ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
        golden(path.read_text(encoding="utf-8"), name)
