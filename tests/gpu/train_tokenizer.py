"""Trains a byte-level BPE tokenizer of a model's size for random weights: load generators count tokens with it, and mkgen serve --random takes it.

    python train_tokenizer.py --words 151643 --specials 26 --out DIR TEXT...

--words are the tokens of text, which come first, --specials as many special ones behind them, the first three of which are Llama 3's begin, end and
end of turn; mkgen models says a model's size. TEXT are files, or directories whose .py, .md, .rst and .txt files are read, of which only ASCII is kept, so that
each token of the training has a text of its own. Several --words LARGE SMALL ... write DIR/LARGE, DIR/SMALL: a smaller tokenizer has the first merges of the larger one.
Needs tokenizers.
"""

import argparse
import json
import pathlib
import sys

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

# The pattern of Llama 3's tokenizer.json.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIALS = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]
CHAT = "{{- bos_token }}{%- for message in messages %}{{- message['content'] | trim + '<|eot_id|>' }}{%- endfor %}"
KINDS = {".py", ".md", ".rst", ".txt"}


def texts(paths, most):
    """Yields the lines' ASCII part of files, most bytes in all."""
    for path in paths:
        path = pathlib.Path(path)
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and (file == path or file.suffix in KINDS):
                text = file.read_bytes().decode("ascii", "ignore")
                most -= len(text)
                yield text
                if most < 0:
                    return


def train(words, paths, most):
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts(paths, most), trainers.BpeTrainer(vocab_size=words, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    if tokenizer.get_vocab_size() != words:
        sys.exit(f"train_tokenizer: the texts give {tokenizer.get_vocab_size()} tokens, want {words}: give more text")
    return json.loads(tokenizer.to_str())


def write(data, words, specials, folder):
    """Writes the first words of a tokenizer, and specials behind them."""
    model = dict(data["model"])
    model["vocab"] = {token: i for token, i in model["vocab"].items() if i < words}
    model["merges"] = model["merges"][: words - 256]
    names = SPECIALS[:specials] + [f"<|reserved_{i}|>" for i in range(len(SPECIALS), specials)]
    added = [{"id": words + i, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for i, name in enumerate(names)]
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text(json.dumps(data | {"model": model, "added_tokens": added}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": names[0], "eos_token": names[1], "chat_template": CHAT}))
    assert Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size() == words + specials


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--words", type=int, nargs="+", required=True)
parser.add_argument("--specials", type=int, nargs="+", required=True)
parser.add_argument("--out", type=pathlib.Path, required=True)
parser.add_argument("--most", type=int, default=200 << 20, help="bytes of text that are read at most")
parser.add_argument("text", nargs="+")
args = parser.parse_args()
if len(args.words) != len(args.specials) or min(args.specials) < len(SPECIALS) or min(args.words) <= 256:
    sys.exit(f"train_tokenizer: found --words {args.words} --specials {args.specials}, want as many of both, over 256 words and at least {len(SPECIALS)} specials")
trained = train(max(args.words), args.text, args.most)
for n, specials in zip(args.words, args.specials):
    write(trained, n, specials, args.out / str(n))
    print(f"{args.out / str(n)}: {n} tokens of text, {specials} special ones")
