"""Formats of weights: what a row of bf16 rounds to, as pipeline.Format.RoundRow in Go has it."""

import json
import sys

import torch

FORMATS = ("bf16", "e4m3")


def scales(most):
    """The least power of two times which 448 is at least most, for every row; 1 for rows of zeros."""
    mantissa, exponent = torch.frexp(most)  # most = mantissa * 2**exponent, 0.5 <= mantissa < 1
    power = (exponent - 9 + (mantissa > 0.875).int()).clamp(min=-126)
    return torch.where(most == 0, torch.ones_like(most), torch.ldexp(torch.ones_like(most), power))


def e4m3(w):
    """w, a float32 matrix of bf16 values, with each row rounded to float8 e4m3 times a power of two: bf16 values again."""
    s = scales(w.abs().amax(-1, keepdim=True))
    return (w / s).to(torch.float8_e4m3fn).float() * s


def round_model(model, name):
    """Rounds the layers' matrices of a float32 model in place."""
    if name == "bf16":
        return
    for key, w in model.named_parameters():
        if key.endswith("_proj.weight"):
            w.copy_(e4m3(w))


def golden():
    """Rows of bf16 patterns before and after, for pipeline's test."""
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randn(64, generator=generator) * 2.0**e for e in (-120, -20, -9, 0, 3, 100)]
    rows += [torch.zeros(8), torch.tensor([448.0, -449.0, 1.0, 0.001]), torch.tensor([1.75, 1.7578125, -0.25, 2.0**-10]), torch.tensor([2.0**-i for i in range(24)])]
    bits = lambda w: (w.to(torch.bfloat16).view(torch.int16).int() & 0xFFFF).tolist()  # noqa: E731
    rows = [r.to(torch.bfloat16).float() for r in rows]
    print(json.dumps([[bits(r), bits(e4m3(r[None])[0])] for r in rows]))


if __name__ == "__main__":
    if sys.argv[1:] != ["golden"]:
        sys.exit("usage: formats.py golden")
    golden()
