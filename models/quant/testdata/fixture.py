"""Shares between the scripts beside it: the tiny models that they quantise, and how a fixture is saved.

A fixture is a directory with a checkpoint as a package wrote it, and expected.json: of the weights as that package itself
computes them from the written files the type, the shape, and the SHA-256 of their numbers as little-endian float32.
"""

import hashlib
import json
import pathlib
import shutil

import torch
from transformers import LlamaConfig, LlamaForCausalLM

HERE = pathlib.Path(__file__).parent
TINY = {"hidden_size": 32, "intermediate_size": 48, "head_dim": 8}
SMALL = {"hidden_size": 64, "intermediate_size": 96, "head_dim": 16}
MIDDLE = {"hidden_size": 64, "intermediate_size": 128, "head_dim": 16}
WIDE = {"hidden_size": 128, "intermediate_size": 256, "head_dim": 8}
BROAD = {"hidden_size": 128, "intermediate_size": 128, "head_dim": 64}  # of whole blocks of 128, which is what transformers quantises
DEEP = {"hidden_size": 32, "intermediate_size": 256, "head_dim": 8}
PARTIAL = {"hidden_size": 128, "intermediate_size": 192, "head_dim": 16}  # blocks of 128 rows and columns do not fill it


def model(dtype, sizes, seed, layers=1):
    """Returns a model whose groups of weights differ in magnitude and in sign, so that no two scales are alike."""
    config = LlamaConfig(num_hidden_layers=layers, num_attention_heads=4, num_key_value_heads=2, vocab_size=32,
                         max_position_embeddings=64, **{"tie_word_embeddings": False, **sizes})
    m = LlamaForCausalLM(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in m.named_parameters():
            if p.ndim == 2:
                rows = 2.0 ** torch.randint(-6, -2, (p.shape[0], 1), generator=generator)
                columns = 0.5 + torch.rand((1, p.shape[1] // 16), generator=generator).repeat_interleave(16, 1)
                p.copy_((torch.randn(p.shape, generator=generator) + 0.3) * rows * columns)
            else:
                p.copy_(1 + 0.1 * torch.randn(p.shape, generator=generator))
    return m.to(dtype)


def linears(m):
    """Yields name and module of every linear layer but the LM head."""
    for name, module in m.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            yield name, module


def fresh(name):
    path = HERE / name
    shutil.rmtree(path, ignore_errors=True)
    return path


def digests(tensors):
    """Returns what expected.json holds of tensors by name."""
    numbers = lambda value: value.detach().contiguous().float().numpy().astype("<f4").tobytes()  # noqa: E731
    return {name: {"dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape), "sha256": hashlib.sha256(numbers(value)).hexdigest()}
            for name, value in sorted(tensors.items())}


def finish(path, expected):
    """Adds what the package computes, and removes what no reader of weights looks at."""
    (path / "generation_config.json").unlink(missing_ok=True)
    (path / "expected.json").write_text(json.dumps(digests(expected), indent=1) + "\n")
    print(path.name, sum(f.stat().st_size for f in path.iterdir()))
