"""Formats of weights: what a row of bf16 rounds to, as pipeline.Format.RoundRow in Go has it."""

import hashlib
import json
import sys

import torch

INT4_GROUPS = {"i4": None, "i4g32": 32, "i4g64": 64, "i4g128": 128}  # columns that share a scale; None: a row's
INT8_GROUPS = {"i8": None, "i8g32": 32, "i8g64": 64, "i8g128": 128}
FORMATS = ("bf16", "e4m3", *INT4_GROUPS, "i8", "mxfp4", "nvfp4", "e4m3b128")
WITH = ("", "-zeros", "-f16", "-zeros-f16")  # zero points, which change no rounded weight; scales in binary16
OWN = tuple(f for group in (*INT4_GROUPS, *INT8_GROUPS) if "g" in group for f in (group + w for w in WITH) if f not in FORMATS)  # of checkpoints with codes
BLOCK = 128  # rows and columns of a block of e4m3b128


def scales(most):
    """The least power of two times which 448 is at least most, for every row; 1 for rows of zeros."""
    mantissa, exponent = torch.frexp(most)  # most = mantissa * 2**exponent, 0.5 <= mantissa < 1
    power = (exponent - 9 + (mantissa > 0.875).int()).clamp(min=-126)
    return torch.where(most == 0, torch.ones_like(most), torch.ldexp(torch.ones_like(most), power))


def e4m3(w):
    """w, a float32 matrix of bf16 values, with each row rounded to float8 e4m3 times a power of two: bf16 values again."""
    s = scales(w.abs().amax(-1, keepdim=True))
    return (w / s).to(torch.float8_e4m3fn).float() * s


def blocks(w):
    """w with each block of 128 rows and 128 columns rounded to float8 e4m3 times a power of two, as e4m3 rounds a row."""
    rows, columns = w.shape
    padded = torch.nn.functional.pad(w, (0, -columns % BLOCK, 0, -rows % BLOCK)).view(-(-rows // BLOCK), BLOCK, -(-columns // BLOCK), BLOCK)
    s = scales(padded.abs().amax((1, 3), keepdim=True))
    return ((padded / s).to(torch.float8_e4m3fn).float() * s).reshape(-(-rows // BLOCK) * BLOCK, -1)[:rows, :columns]


def grouped(w, group):
    """w by groups of columns, the last one of a row padded with zeros: [rows, groups, columns]."""
    rows, columns = w.shape
    return torch.nn.functional.pad(w, (0, -columns % (group or columns))).view(rows, -1, group or columns)


def in_codes(w, padded, s, f16):
    """w, of which padded are the groups, as integers times their scales s. Of binary16 none is below 2**-14; NaN beyond the largest one, and where a weight is
    no number, or infinite."""
    if f16:
        s = s.clamp(min=2.0**-14)
        s = torch.where(s > 65504, torch.full_like(s, torch.nan), s)
    s = torch.where(padded.isfinite().all(-1, keepdim=True), s, torch.full_like(s, torch.nan))
    return (((padded / s).round() + 0.0) * s).reshape(w.shape[0], -1)[:, : w.shape[1]]


def int8(w, group=None, f16=False):
    """w with each group of a row rounded to codes from -127 to 127 times the least power of two 127 times which is its largest magnitude at least, and at
    least 2**-97."""
    padded = grouped(w, group)
    mantissa, exponent = torch.frexp(padded.abs().amax(-1, keepdim=True))
    exponent = (exponent - 7 + (mantissa > 127 / 128).int()).clamp(min=-97)
    s = torch.where(mantissa == 0, torch.full_like(mantissa, 2.0**-97), torch.ldexp(torch.ones_like(mantissa), exponent))
    return in_codes(w, padded, s, f16)


def int4(w, group, f16=False):
    """w with each group of a row rounded to codes from -7 to 7 times the least number of five binary digits that is a seventh of its largest
    magnitude at least, and at least 2**-97."""
    padded = grouped(w, group)
    mantissa, exponent = torch.frexp(padded.abs().amax(-1, keepdim=True))
    m = (mantissa * 256).nan_to_num(0, 0, 0).int()  # of a bf16: whole
    digits = (m + 6) // 7
    above = digits > 31
    digits = torch.where(above, (m + 13) // 14, digits)
    exponent = exponent - 8 + above.int()
    s = torch.ldexp(digits.float(), exponent)
    s = torch.where((exponent + 4 < -97) | (m == 0), torch.full_like(s, 2.0**-97), s)
    return in_codes(w, padded, s, f16)


def fp4(w):
    """w with each 32 columns of a row rounded to E2M1, ties to the even code, times a power of two: a quarter of their largest magnitude's, and twice that
    from 1.75 times it on, at least 2**-97; NaN where one of them is no number, or infinite."""
    rows, columns = w.shape
    padded = torch.nn.functional.pad(w, (0, -columns % 32)).view(rows, -1, 32)
    most = padded.abs().amax(-1, keepdim=True)
    mantissa, exponent = torch.frexp(most)
    exponent = (exponent - 3 + (mantissa >= 0.875).int()).clamp(min=-97)
    s = torch.where(most == 0, torch.full_like(most, 2.0**-97), torch.ldexp(torch.ones_like(most), exponent))
    s = torch.where(padded.isfinite().all(-1, keepdim=True), s, torch.full_like(s, torch.nan))
    return (e2m1(padded / s) * s).reshape(rows, -1)[:, :columns]


def e2m1(x):
    """x rounded to E2M1, ties to the even code."""
    magnitudes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], device=x.device)
    distance = (x.abs().nan_to_num(0, 0, 0).unsqueeze(-1) - magnitudes).abs()
    nearest = distance.amin(-1, keepdim=True) == distance  # one or two
    even = nearest & (torch.arange(8, device=x.device) % 2 == 0)
    code = torch.where(even.any(-1), even.int().argmax(-1), nearest.int().argmax(-1))
    return magnitudes[code] * x.sign() + 0.0


def nvfp4(w):
    """w with each 16 columns of a row rounded to E2M1 times a scale in e4m3 times the row's factor. The factor is the least power of two times which 2688 is the row's
    largest magnitude at least, and at least 2**-97; the scale is the nearest to a sixth of the group's largest magnitude over the factor, and not 0."""
    rows, columns = w.shape
    mantissa, exponent = torch.frexp(torch.where(w.isfinite(), w, torch.zeros_like(w)).abs().amax(-1, keepdim=True))
    exponent = (exponent - 12 + (mantissa > 2688 / 4096).int()).clamp(min=-97)
    factor = torch.where(mantissa == 0, torch.full_like(mantissa, 2.0**-97), torch.ldexp(torch.ones_like(mantissa), exponent)).unsqueeze(-1)
    padded = torch.nn.functional.pad(w, (0, -columns % 16)).view(rows, -1, 16)
    s = ((padded.abs().amax(-1, keepdim=True) * torch.tensor(1 / 6)) / factor).clamp(max=448).to(torch.float8_e4m3fn).float().clamp(min=2.0**-9)
    s = torch.where(padded.isfinite().all(-1, keepdim=True), s, torch.full_like(s, torch.nan)) * factor
    return (e2m1(padded / s) * s).reshape(rows, -1)[:, :columns]


def rounded(w, name):
    """w, a float32 matrix of bf16 values, as a format has it: bf16 values again."""
    if name == "bf16":
        return w
    base, f16 = name.partition("-")[0], name.endswith("-f16")
    if base in INT4_GROUPS:
        return int4(w, INT4_GROUPS[base], f16)
    if base in INT8_GROUPS:
        return int8(w, INT8_GROUPS[base], f16)
    if name == "mxfp4":
        return fp4(w)
    if name == "nvfp4":
        return nvfp4(w)
    if name == "e4m3b128":
        return blocks(w)
    return e4m3(w)


def known(text):
    """text, a format or several as in i4g128,down=i8; a ValueError where one of them is none."""
    for part in text.split(","):
        if part.split("=")[-1] not in (*FORMATS, *OWN):
            raise ValueError(part)
    return text


def of(text, key):
    """The format of the layers' matrix of this name where text has several."""
    kinds = {"o_proj": "o", "gate_proj": "gate_up", "up_proj": "gate_up", "down_proj": "down"}
    first, *others = text.split(",")
    return dict(part.split("=") for part in others).get(kinds.get(key.split(".")[-2], "qkv"), first)


def round_model(model, name, head="bf16"):
    """Rounds the layers' matrices of a float32 model in place, and the LM head: one that is tied to the embedding becomes a matrix of its own."""
    if name != "bf16":
        for key, w in model.named_parameters():
            if key.endswith("_proj.weight"):
                round_rows(w, of(name, key))
    if head != "bf16":
        w = model.get_output_embeddings().weight
        if w.data_ptr() == model.get_input_embeddings().weight.data_ptr():
            w = torch.nn.Parameter(w.detach().clone(), requires_grad=False)
            model.get_output_embeddings().weight = w
            model.config.tie_word_embeddings = False
        round_rows(w, head)


def round_rows(w, name):
    for part in w.split(1024):
        part.copy_(rounded(part, name))


def golden():
    """Rows of bf16 patterns as each format has them, of bf16 as they were, for pipeline's test."""
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randn(64, generator=generator) * 2.0**e for e in (-120, -20, -9, 0, 3, 100)]
    rows += [torch.randn(200, generator=generator).round(decimals=1), torch.arange(1.0, 256.0), -torch.arange(217.0, 226.0) * 2.0**-99, torch.tensor([7.0, 0.5, 1.5, 2.5, -3.5])]
    rows += [torch.zeros(8), torch.tensor([448.0, -449.0, 1.0, 0.001]), torch.tensor([1.75, 1.7578125, -0.25, 2.0**-10]), torch.tensor([2.0**-i for i in range(24)])]
    pattern = lambda w: w.to(torch.bfloat16).view(torch.int16).int() & 0xFFFF  # noqa: E731
    bits = lambda w: torch.where(w.isnan(), torch.full_like(w, 0x7FC0).int(), pattern(w)).tolist()  # noqa: E731
    rows = [r.to(torch.bfloat16).float() for r in rows]
    print(json.dumps({name: [bits(rounded(r[None], name)[0]) for r in rows] for name in (*FORMATS, *OWN) if "-zeros" not in name}))


def golden_of_blocks():
    """The SHA-256 of the bf16 patterns of a rounded matrix of 3 by 2 blocks, the last ones partial, for pipeline's test."""
    i, j = torch.arange(300.0)[:, None], torch.arange(200.0)
    w = ((i * 7919 + j * 10473) % 4093 - 2046) * torch.ldexp(torch.ones_like(i), -(i % 37).int())
    patterns = blocks(w.to(torch.bfloat16).float()).to(torch.bfloat16).contiguous().view(torch.int16).numpy().astype("<i2")
    print(hashlib.sha256(patterns.tobytes()).hexdigest())


if __name__ == "__main__":
    if sys.argv[1:] not in (["golden"], ["blocks"]):
        sys.exit("usage: formats.py golden|blocks")
    golden() if sys.argv[1] == "golden" else golden_of_blocks()
