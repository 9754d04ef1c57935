"""Reads lines of arguments of tests/gpu/reference.py, argv[1], and has it look at each, up to where it makes tokens: its parser, its own checks, and the
model's positions. PyTorch and transformers need not be there. Prints the lines that it took."""

import pathlib
import runpy
import shlex
import sys
from unittest import mock


class Taken(Exception):
    pass


class Config:
    def for_model(self, model_type, **fields):
        return mock.Mock(**{"model_type": model_type, "max_position_embeddings": 131072, **fields})  # Gemma 3's own where its config has none


def taken(*_):
    raise Taken


script = pathlib.Path(sys.argv[1])
sys.path.insert(0, str(script.parent))
for name in ("torch", "torch.nn", "torch.nn.functional", "numpy"):
    sys.modules[name] = mock.MagicMock()
sys.modules["transformers"] = mock.MagicMock(AutoConfig=Config())
import synth  # noqa: E402

synth.tokens = taken
for line in sys.stdin:
    sys.argv = [str(script), *shlex.split(line)]
    try:
        runpy.run_path(str(script), run_name="__main__")
    except Taken:
        print(line, end="")
