"""Formats of weights: what a row of bf16 rounds to, as pipeline.Format.RoundRow in Go has it."""

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
