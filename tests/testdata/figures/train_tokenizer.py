"""Stands for tests/gpu/train_tokenizer.py where bench/figures is tested: makes the folder, and notes that."""

import os
import pathlib
import sys

args = sys.argv[1:]
pathlib.Path(args[args.index("--out") + 1], args[args.index("--words") + 1]).mkdir(parents=True)
with open(os.environ["NOTES"], "a") as f:
    f.write(f"{os.environ['CUDA_VISIBLE_DEVICES']} tokenizer\n")
