"""Projections of a model's keys and values, by which package lab/probe compares all rows of a kernel's cache.

A row (one token's rotated key, or its value, of one KV head in one layer) is written as 8 sums of its elements with random signs
in half precision: bit j of token d of sequence 1 << 20 of seed 0 below 256 (synth.tokens) is 1 where sum j subtracts element d.
A file is [layers][K, V][KV heads][tokens][8], little-endian. An 8B model's file of 32768 tokens takes 268 MB.
"""

import numpy as np
import torch

import synth

PROJECTIONS = 8
SIGN_SEQUENCE = 1 << 20

_file = None  # where rows go while a model runs


def signs(dim, device):
    """[dim, 8] of 1 and -1."""
    bits = synth.tokens(0, SIGN_SEQUENCE, dim, 1 << PROJECTIONS).to(device)
    return (1 - 2 * (bits[:, None] >> torch.arange(PROJECTIONS, device=device) & 1)).float()


def observe(key, value):
    """Writes a layer's rotated keys and its values, [1, KV heads, tokens, dim], where a recording is on."""
    if _file is None:
        return
    for rows in (key, value):
        sums = rows[0].float() @ signs(rows.shape[-1], rows.device)
        _file.write(sums.half().cpu().numpy().astype("<f2").tobytes())


def apart(path, other, heads, tokens):
    """How far the rows of the second file are from the first's at most: the greatest distance, relative to the size that rows of their head have on
    average, and of a head's rows the factor by which they are larger, less 1."""
    a, b = (torch.from_numpy(np.fromfile(p, "<f2").astype(np.float64)).view(-1, 2, heads, tokens, PROJECTIONS) for p in (path, other))
    size = a.square().sum(-1).mean(-1, keepdim=True)
    factor = (a * b).sum((-1, -2)) / a.square().sum((-1, -2))
    return ((b - a).square().sum(-1) / size).max().sqrt().item(), (factor - 1).abs().max().item()


class recording:
    """While open, writes what layers, which run one after another over all tokens, observe."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        global _file
        _file = open(self.path, "wb")

    def __exit__(self, *_):
        global _file
        _file.close()
        _file = None
