#!/usr/bin/env python3
"""Trains the test tokenizer in Llama 3's configuration and writes what Hugging Face's libraries make of the hard cases.

    pip install tokenizers==0.23.3 transformers==5.23.0 jinja2==3.1.6
    python3 make_testdata.py [classes] [train] [golden] [chat]      # all of them when none is named
    python3 make_testdata.py render FOLDER RENDERED.json            # the conversations of chats.py by templates that are elsewhere

classes ../classes.go: what the libraries' regular expressions take for letters and numbers
train   llama3-like/tokenizer.json, llama3-like/tokenizer_config.json
golden  golden.json: ids and texts of the cases in cases.py
chat    chat_golden.json: the templates in templates/ rendered by transformers
"""
import datetime
import json
import pathlib
import sys

import cases
import chats

HERE = pathlib.Path(__file__).parent
OUT = HERE / "llama3-like"
VOCAB = 2048  # without the special tokens

# Llama 3's split, as its tokenizer.json has it.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
         r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>",
           "<|finetune_right_pad_id|>", "<|reserved_special_token_2|>", "<|start_header_id|>", "<|end_header_id|>",
           "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"] + [f"<|reserved_special_token_{i}|>" for i in range(3, 16)]

# Tokens that no merge reaches: only ignore_merges finds them.
UNREACHABLE = [" unreachable", "Ünreachable", "\n\n\n\n\n"]


def pre_tokenizer():
    from tokenizers import Regex, pre_tokenizers
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False),
    ])


def training_text():
    """The topics of Python 3.11's own help (PSF licence 2.0), and sentences written for this purpose (cases.py)."""
    import pydoc_data.topics
    topics = pydoc_data.topics.topics
    return [topics[name] for name in sorted(topics)] + cases.SENTENCES * 40


def byte_char(text):
    """The byte-level alphabet: text's bytes as printable characters."""
    from tokenizers import pre_tokenizers
    pieces = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)
    return "".join(piece for piece, _ in pieces)


def all_merges(vocab):
    """Every split of every token into two tokens, by the token's rank: what the conversion from tiktoken's ranks gives Llama 3."""
    merges = []
    for token, _ in sorted(vocab.items(), key=lambda item: item[1]):
        splits = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in vocab and token[i:] in vocab]
        merges += sorted(splits, key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))
    return merges


def train():
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizer()
    learner.train_from_iterator(training_text(), trainers.BpeTrainer(
        vocab_size=VOCAB - len(UNREACHABLE), initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    vocab = learner.get_vocab()
    merges = all_merges(vocab)
    for text in UNREACHABLE:
        assert byte_char(text) not in vocab, text
        vocab[byte_char(text)] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in SPECIAL])
    bos = SPECIAL[0]
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1",
                                      special_tokens=[(bos, tokenizer.token_to_id(bos))]),
    ])
    OUT.mkdir(exist_ok=True)
    (OUT / "tokenizer.json").write_text(tokenizer.to_str(pretty=False) + "\n", encoding="utf-8")
    config = {
        "added_tokens_decoder": {str(tokenizer.token_to_id(s)): {
            "content": s, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True} for s in SPECIAL},
        "bos_token": bos,
        "chat_template": (HERE / "templates" / "tools.jinja").read_text(encoding="utf-8"),
        "clean_up_tokenization_spaces": True,
        "eos_token": "<|eot_id|>",
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": 131072,
        "pad_token": {"__type": "AddedToken", "content": "<|finetune_right_pad_id|>", "lstrip": False, "normalized": False,
                      "rstrip": False, "single_word": False, "special": True},
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (OUT / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


# Other configurations than Llama 3's, as changes of its tokenizer.json; golden.json has their ids where those differ from Llama 3's.
VARIANTS = {
    "merges decide": [['"ignore_merges":true', '"ignore_merges":false']],
    "one digit a piece (Qwen 2)": [["\\\\p{N}{1,3}", "\\\\p{N}"]],
    "nothing around the text": [['[{"SpecialToken":{"id":"<|begin_of_text|>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair"', '[{"Sequence":{"id":"A","type_id":0}}],"pair"']],
    "a token after the text too": [['{"Sequence":{"id":"A","type_id":0}}],"pair"', '{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"<|begin_of_text|>","type_id":0}}],"pair"']],
    "added tokens that are not special": [['],"normalizer":null', "".join(
        f',{{"id":{VOCAB + len(SPECIAL) + i},"content":"{content}","single_word":false,"lstrip":false,"rstrip":false,"normalized":{normalized},"special":false}}'
        for i, (content, normalized) in enumerate([("quick brown", "true"), ("brown fox jumps", "false"), ("über den", "true"), ("übrig", "false"), (" ", "true"), ("Mark me", "false")])
    ) + '],"normalizer":null']],
}


def changed(source, replace):
    for old, new in replace:
        source = source.replace(old, new)
    return source


def write_json(path, head, lists):
    """One case a line, so that a difference shows which case changed."""
    parts = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in head.items()]
    for name, rows in lists.items():
        parts.append(f"{json.dumps(name)}: [\n" + ",\n".join("  " + json.dumps(r, ensure_ascii=True) for r in rows) + "\n]")
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def golden():
    import tokenizers
    tokenizer = tokenizers.Tokenizer.from_file(str(OUT / "tokenizer.json"))
    encoded = []
    for name, text in cases.TEXTS:
        tokenizer.encode_special_tokens = False
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        row = {"name": name, "text": text, "ids": ids, "special": tokenizer.encode(text, add_special_tokens=True).ids}
        assert tokenizer.decode(ids, skip_special_tokens=False) == text, name
        tokenizer.encode_special_tokens = True
        row["plain"] = tokenizer.encode(text, add_special_tokens=False).ids
        encoded.append(row)
    decoded = []
    for name, ids in cases.id_lists(tokenizer):
        decoded.append({"name": name, "ids": ids, "text": tokenizer.decode(ids, skip_special_tokens=False),
                        "skipped": tokenizer.decode(ids, skip_special_tokens=True)})
    variants = []
    source = (OUT / "tokenizer.json").read_text(encoding="utf-8")
    for name, replace in VARIANTS.items():
        assert changed(source, replace) != source, name
        variant = tokenizers.Tokenizer.from_str(changed(source, replace))
        differ = {row["name"]: ids for row in encoded if (ids := variant.encode(row["text"]).ids) != row["special"]}
        assert differ, name
        if len(differ) == len(encoded):  # keep some of them
            differ = {name: ids for name, ids in differ.items() if len(ids) < 60}
        ids = [i for i in range(VOCAB, variant.get_vocab_size())]
        variants.append({"name": name, "replace": replace, "differ": differ, "ids": ids, "text": variant.decode(ids, skip_special_tokens=False)})
    write_json(HERE / "golden.json", {"by": "tokenizers " + tokenizers.__version__}, {"encode": encoded, "decode": decoded, "variants": variants})


# The classes that patterns may name, as the library's regular expressions (Oniguruma) have them.
NAMED = ["L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "Nd", "P", "S"]
POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def matched(pattern):
    """Gives the code points that a regular expression matches."""
    from tokenizers import Regex, pre_tokenizers
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    found = []
    for at in range(0, len(POINTS), 4096):
        chunk = POINTS[at:at + 4096]
        other = {c for piece, _ in split.pre_tokenize_str("".join(map(chr, chunk))) for c in piece}
        found += [c for c in chunk if chr(c) not in other]
    return found


def alone(pre, before, after):
    """Gives the code points that pre makes a piece of their own between the two texts."""
    return [c for c in POINTS if [p for p, _ in pre.pre_tokenize_str(before + chr(c) + after)] == [before, chr(c), after]]


def active():
    """Gives the code points that the library's normal forms decompose or reorder."""
    from tokenizers import normalizers
    forms = [f.normalize_str for f in (normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD())]
    order = forms[1]
    return [c for c in POINTS if any(f(chr(c)) != chr(c) for f in forms) or order("\u0345" + chr(c))[0] != "\u0345" or order(chr(c) + "\u0334")[0] != chr(c)]


def runs(points):
    """Joins code points into the first and the last of each run."""
    out = []
    for c in points:
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def classes():
    """Finds the classes by trying every code point."""
    from tokenizers import __version__, normalizers, pre_tokenizers
    strip, lower = normalizers.StripAccents().normalize_str, normalizers.Lowercase().normalize_str
    words = pre_tokenizers.Whitespace()
    tables = {rf"\p{{{name}}}": matched(rf"\p{{{name}}}") for name in NAMED}
    tables[r"\w"] = matched(r"\w")
    tables[r"\d"] = matched(r"\d")
    tables[r"\s"] = matched(r"\s")
    tables["word"] = [c for c in POINTS if len(words.pre_tokenize_str("a" + chr(c))) == 1 and words.pre_tokenize_str(chr(c))]
    tables["punctuation"] = alone(pre_tokenizers.Punctuation(), "a", "b")
    tables["numeric"] = alone(pre_tokenizers.Digits(individual_digits=True), "a", "b")
    tables["accent"] = [c for c in POINTS if strip("a" + chr(c)) == "a"]
    tables["normalized"] = active()
    out = "// Code generated by testdata/make_testdata.py classes. DO NOT EDIT.\n\npackage tokenizer\n\n"
    out += f"// classTables are the code points of each class as Hugging Face's tokenizers {__version__} has it: the first and the last of each run.\n"
    out += "// Names with a backslash are its regular expressions'; word is what its added tokens and its Whitespace take for a part of a word;\n"
    out += "// punctuation, numeric and accent belong to Punctuation, Digits and StripAccents; normalized is what normal forms may change.\n"
    out += "var classTables = map[string][][2]rune{\n"
    for name, points in tables.items():
        rows = [f"{{{first:#x}, {last:#x}}}" for first, last in runs(points)]
        out += f"\t{json.dumps(name)}: {{\n" + "".join("\t\t" + ", ".join(rows[i:i + 5]) + ",\n" for i in range(0, len(rows), 5)) + "\t},\n"
    small = runs_of_shift([(c, ord(lower(chr(c)))) for c in POINTS if lower(chr(c)) != chr(c) and len(lower(chr(c))) == 1])
    rows = [f"{{{first:#x}, {last:#x}, {step}, {shift}}}" for first, last, step, shift in small]
    out += "}\n\n// lowerTable is the library's Lowercase: the first and the last of each run, the step between them, and what is added to each.\n"
    out += "var lowerTable = [...][4]rune{\n" + "".join("\t" + ", ".join(rows[i:i + 5]) + ",\n" for i in range(0, len(rows), 5)) + "}\n"
    (HERE.parent / "classes.go").write_text(out, encoding="utf-8")


def runs_of_shift(pairs):
    """Joins (code point, its lower case) into runs of one shift, at steps of 1 or 2."""
    out = []
    for c, low in pairs:
        if out and out[-1][3] == low - c and (out[-1][2] == 0 and c - out[-1][1] in (1, 2) or c - out[-1][1] == out[-1][2]):
            out[-1][2], out[-1][1] = c - out[-1][1], c
        else:
            out.append([c, c, 0, low - c])
    return [[first, last, step or 1, shift] for first, last, step, shift in out]


def render(folder, conversations, out):
    """Writes what transformers makes of conversations with the templates in a folder."""
    import transformers
    from transformers.utils import chat_template_utils

    class Frozen(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2024, 7, 4, 15, 6, 7)

    chat_template_utils.datetime = Frozen  # strftime_now reads the clock there
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(str(OUT))
    rows = []
    for template, name, conversation, kwargs in conversations:
        row = {"template": template, "name": name, "messages": conversation, **kwargs}
        source = (folder / template).read_text(encoding="utf-8")
        try:
            row["text"] = tokenizer.apply_chat_template(conversation, chat_template=source, tokenize=False, **kwargs)
            if template not in chats.FAMILIES:
                row["ids"] = tokenizer(row["text"], add_special_tokens=False)["input_ids"]
        except Exception as problem:
            row["error" if type(problem).__name__ == "TemplateError" else "failure"] = str(problem)
        rows.append(row)
    write_json(out, {"by": "transformers " + transformers.__version__, "now": "2024-07-04T15:06:07Z"}, {"chats": rows})


def chat():
    render(HERE / "templates", chats.ALL, HERE / "chat_golden.json")


if __name__ == "__main__":
    if sys.argv[1:2] == ["render"]:
        render(pathlib.Path(sys.argv[2]), chats.elsewhere(sys.argv[2]), pathlib.Path(sys.argv[3]))
        sys.exit()
    wanted = sys.argv[1:] or ["classes", "train", "golden", "chat"]
    for name in wanted:
        {"classes": classes, "train": train, "golden": golden, "chat": chat}[name]()
