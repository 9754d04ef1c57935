"""Attention other than plain, as `mkgen --attention` spells it, from its mathematics: for references that judge such kernels.

A query of head h at position i and a key at position j <= i have the logit q·k/√D, changed by the terms of the spec in their order:

    softcap=X   X·tanh(logit/X)                                (Gemma 2)
    alibi       logit + slope_h·(j − i), slopes as the paper's (Press et al. 2022)
    window=N    sees j > i − N, and with sinks=S also j < S     (Xiao et al. 2024)
    mask        sees j where hidden(seed, sequence, i, j) is false
    sigmoid=X   weighs sigmoid(logit + X), and no sum divides; else softmax

Terms are joined by +; classes of layers that take turns by /. With selection=PAGE a query sees its own page of PAGE tokens, and of the
pages before it those that chosen(seed, sequence, KV head, page) names. kv=e4m3 rounds keys (rotated) and values to e4m3 with scale 1.
streaming and head-scale have no reference here.
"""

import math

import torch

import synth

ROWS = 256
E4M3_MAX = 448.0
NUMBERS = ("window", "sinks", "softcap", "sigmoid")
PLAIN = ("causal", "alibi", "mask")


def parse(spec):
    """The classes of a spec: a list of terms (name, number or None) each; a ValueError says what was found and what is wanted."""
    classes = []
    for part in (spec or "causal").split("/"):
        terms = []
        for word in part.split("+"):
            name, given, number = word.strip().partition("=")
            if name in NUMBERS and given:
                terms.append((name, float(number)))
            elif name in PLAIN and not given:
                terms.append((name, None))
            else:
                raise ValueError(f"attention {word!r}, want {', '.join(PLAIN)} or {', '.join(n + '=N' for n in NUMBERS)}")
        classes.append([t for t in terms if t[0] != "causal"])
    return classes


def slopes(heads):
    """ALiBi's slopes: 2^(-8i/n) for the largest power of two n in heads, then every other one of 2n's."""
    n = 1 << (heads.bit_length() - 1)
    first = [2 ** (-8 * (i + 1) / n) for i in range(n)]
    return (first + [2 ** (-4 * (2 * i + 1) / n) for i in range(heads - n)])[:heads]


def parse_case(text):
    """NAME:SPEC[,kv=e4m3][,selection=PAGE] as a name and the arguments of Case."""
    name, given, rest = text.partition(":")
    spec, *options = rest.split(",")
    out = {"spec": spec}
    for option in options:
        key, _, value = option.partition("=")
        if key not in ("kv", "selection"):
            raise ValueError(f"case {text!r}: option {option!r}, want kv=FORMAT or selection=PAGE")
        out[key] = int(value) if key == "selection" else value
    if not name or not given:
        raise ValueError(f"case {text!r}, want NAME:SPEC, such as window:window=256")
    return name, out


def draw(seed, name, index):
    """The generator's words at an int32 tensor of indices."""
    k0, k1 = synth.keys(seed, name)
    x = synth._fmix(index ^ synth._signed(k0))
    x += synth._signed(k1)
    return synth._fmix(x)


def hidden(seed, sequence, rows, keys):
    """[rows, keys] of whether the mask hides a key from a query: one key in eight, never the query's own. Positions below 2^15."""
    at = rows[:, None].int() * (1 << 15) + keys[None].int()
    return ((draw(seed, f"mask.{sequence}", at) & 7) == 0) & (rows[:, None] != keys[None])


def chosen(seed, sequence, head, pages):
    """Whether a KV head sees a page that is full: one in two. Fewer than 2^20 pages."""
    return (draw(seed, f"selection.{sequence}", head * (1 << 20) + pages.int()) & 1) == 1


def rounded_e4m3(x):
    """x as an e4m3 cache with scale 1 has it."""
    return x.float().clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).float()


class Case:
    """What a reference's attention is: spec, kv ("bf16" or "e4m3"), selection (tokens a page, 0 for none), seed of masks and pages."""

    def __init__(self, spec="", kv="bf16", selection=0, seed=1):
        self.classes, self.spec, self.kv, self.selection, self.seed = parse(spec), spec, kv, selection, seed
        self.sequence = 0  # whose tokens run now
        if kv not in ("bf16", "e4m3"):
            raise ValueError(f"a KV cache in {kv!r}, want bf16 or e4m3")

    @property
    def plain(self):
        return self.kv == "bf16" and not self.selection and not any(self.classes)

    def terms(self, layer):
        return self.classes[layer % len(self.classes)]

    def describe(self):
        """What the manifest says of it: package lab/gate wants such a kernel."""
        return {"attention": self.spec if any(self.classes) else "", "kv": self.kv, "selection": self.selection}

    def rounded(self, layer, query, key, value, weigh):
        """attend as roundings.Rounded calls it: queries are scaled to powers of two."""
        return self.attend(layer, query, key, value, math.log(2), weigh)

    def attend(self, layer, query, key, value, scaling, weigh=None):
        """[heads, n, D] for queries [heads, n, D] at positions 0 … n−1 of an empty cache, keys and values [KV heads, n, D]. With weigh,
        weights are relative to the row's greatest logit, and weigh rounds them before they meet values, not in their sum; without,
        probabilities are computed in float32 and rounded to the queries' type, as transformers' eager attention does."""
        terms, group, n = dict(self.terms(layer)), query.shape[0] // key.shape[0], query.shape[1]
        self.heads = query.shape[0]
        out = torch.empty_like(query)
        for head in range(key.shape[0]):
            heads = slice(head * group, (head + 1) * group)
            for start in range(0, n, ROWS):
                end = min(start + ROWS, n)
                logits = (query[heads, start:end] @ key[head, :end].transpose(0, 1) * scaling).float()
                seen = self.sight(terms, head, start, end, query.device)
                out[heads, start:end] = self.rows(self.terms(layer), heads, logits, seen, start, end, value[head, :end], weigh)
        return out

    def rows(self, terms, heads, logits, seen, start, end, value, weigh):
        summed = True
        for name, number in terms:
            if name == "softcap":
                logits = number * torch.tanh(logits / number)
            elif name == "alibi":
                slope = torch.tensor(slopes(self.heads)[heads], device=logits.device)
                far = torch.arange(end, device=logits.device)[None] - torch.arange(start, end, device=logits.device)[:, None]
                logits = logits + slope[:, None, None] * far
            elif name == "sigmoid":
                summed, logits = False, logits + number
        if not summed:
            weights = torch.sigmoid(logits).masked_fill(~seen, 0)
            return (weigh(weights) if weigh else weights.to(value.dtype)) @ value
        logits = logits.masked_fill(~seen, -math.inf)
        if not weigh:
            return logits.softmax(-1).to(value.dtype) @ value
        weights = torch.exp(logits - logits.amax(-1, keepdim=True))
        return weigh(weights) @ value / weights.sum(-1, keepdim=True)

    def sight(self, terms, head, start, end, device):
        """[end − start, end] of which keys queries start … end − 1 see."""
        rows, keys = torch.arange(start, end, device=device), torch.arange(end, device=device)
        seen = keys[None] <= rows[:, None]
        if "window" in terms:
            seen &= (keys[None] > rows[:, None] - int(terms["window"])) | (keys[None] < int(terms.get("sinks", 0)))
        if "mask" in terms:
            seen &= ~hidden(self.seed, self.sequence, rows, keys)
        if self.selection and "window" not in terms:
            page = keys // self.selection
            seen &= chosen(self.seed, self.sequence, head, page)[None] | (page[None] == rows[:, None] // self.selection)
        return seen

    def quantised(self, key, value):
        """Keys and values as the cache has them."""
        if self.kv == "bf16":
            return key, value
        return rounded_e4m3(key).to(key.dtype), rounded_e4m3(value).to(value.dtype)
