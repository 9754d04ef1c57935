"""How far a sound kernel's KL may lie from s's by chance: what the limits of package lab/gate are derived from.

    python gate_spread.py --config config.json [--layers 8 --hidden 1024 …] [--seeds 1,2,3] [--sequences 512,512,1024]

A kernel that rounds where s does, but whose roundings fall otherwise, is another draw of the same errors. It is made here by errors
drawn anew at each place of roundings.py, uniform over a unit in the last place, as a rounding's are: k. A real kernel's roundings mostly
fall as s's do, so it lies closer. For each seed of weights and tokens, on the CPU or a GPU, it prints

    mean   KL(o‖s), KL(o‖k), KL(o‖h) and k/s; cv, s's standard deviation over its mean
    seq    k/s of each sequence
    pos    quantiles of k / (s + h·mean(s)/mean(h) + mean(s)): at a position the factor that the gate bounds (PositionFactor)
    flips  of s's and k's top token from o's, among positions where o's margin of its first two exceeds 0, 1, … 6 times
           rms(h - o)·√(mean(s)/mean(h)), what the kernel's own roundings move a logit there, and the widest margin of a flip (OwnMarginFactor)

and over all seeds the quantiles of pos, and for sequences of so many positions the greatest share of their limit. With --prefill-activations e4m3 all three round
inputs of products to e4m3, with a scale a token, and weights are of e4m3.
"""

import argparse
import copy
import json
import pathlib
import sys

import torch
from transformers import LlamaConfig

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import reference  # noqa: E402
import roundings  # noqa: E402
import synth  # noqa: E402

OWN_FACTOR, DEVIATIONS = 1.5, 4  # gate.DefaultRules
SIZES = (8, 16, 64, 256)
SHAPE = {"layers": "num_hidden_layers", "hidden": "hidden_size", "intermediate": "intermediate_size", "heads": "num_attention_heads",
         "kv-heads": "num_key_value_heads", "vocab": "vocab_size"}


def redrawn(generator):
    """A stand-in for rounding to bf16: an error drawn anew, uniform over the unit in the last place. 0 stays 0."""

    def round(x):
        _, exponent = torch.frexp(x)
        error = torch.rand(x.shape, generator=generator, device=x.device) - 0.5
        return x + torch.ldexp(error, exponent - 8) * (x != 0)

    return round


def redrawn_by_token(generator):
    """A stand-in for roundings.by_token likewise: errors uniform over the unit in the last place of e4m3, of numbers as bf16 has them."""
    round = redrawn(generator)

    def by_token(x):
        x = round(x)
        scale = (x.abs().amax(-1, keepdim=True) / roundings.E4M3_MAX).clamp(min=2.0**-100)
        codes = x / scale
        _, exponent = torch.frexp(codes)
        error = torch.rand(x.shape, generator=generator, device=x.device) - 0.5
        return (codes + torch.ldexp(error, exponent.clamp(min=-5) - 4) * (codes != 0)) * scale

    return by_token


class Draws:
    """Two draws s and k of a kernel's roundings, and h, of all positions: KL(o‖·), and what is to be known of flips."""

    def __init__(self, config, seed, lengths, device, coded):
        model, _ = reference.build(config, seed, device, weight_format="e4m3" if coded else "bf16")
        generator = torch.Generator(device).manual_seed(seed)
        texts = [synth.tokens(seed, q, n, config.vocab_size).to(device) for q, n in enumerate(lengths)]
        formats = {"weights": "e4m3", "inputs": "e4m3-tokens"} if coded else {}
        own, other = roundings.Rounded(model, **formats), roundings.Rounded(model, round=redrawn(generator), **formats)
        if coded:
            other.input = other.passed = redrawn_by_token(generator)
        o = [model.lm_head(reference.last_hidden(model, t, len(t))) for t in texts]
        first, second = torch.cat([x.topk(2).values for x in o]).double().unbind(-1)
        self.margin, self.kl, self.flipped = first - second, [], []
        for r in (own, other):
            rows = [model.lm_head(r.hidden(t, len(t))) for t in texts]
            self.kl.append(torch.cat([roundings.divergence(x, y) for x, y in zip(o, rows)]))
            self.flipped.append(torch.cat([x.argmax(-1) != y.argmax(-1) for x, y in zip(o, rows)]))
        model = reference.to_bf16(model, "sdpa")
        if coded:
            reference.round_inputs(model)
        h = [model.lm_head(reference.last_hidden(model, t, len(t))).float() for t in texts]
        self.kl.append(torch.cat([roundings.divergence(x, y) for x, y in zip(o, h)]))
        self.rms = torch.cat([(x - y).square().mean(-1).sqrt() for x, y in zip(o, h)]).double()

    def margins(self):
        """o's margins over what own roundings move a logit."""
        s, _, h = self.kl
        return self.margin / (self.rms * (s.mean() / h.mean()).sqrt())


def flips(draws):
    """Of s and k, by how wide o's margin is."""
    margins, flipped = draws.margins().repeat(2), torch.cat(draws.flipped)
    counts = " ".join(f"{(flipped & (margins > n)).sum()}/{(margins > n).sum()}" for n in range(7))
    return f"{counts}, widest {margins[flipped].max().item() if flipped.any() else 0:.2f}"


def factors(s, k, h):
    return k / (s + h * s.mean() / h.mean() + s.mean())


def shares(s, k, n):
    """KL(o‖k) of sequences of n positions over their limit."""
    rows = len(s) // n
    a, b = s[: rows * n].view(rows, n), k[: rows * n].view(rows, n)
    spread = torch.maximum(s.std(), a.std(-1))
    return b.mean(-1) / (OWN_FACTOR * a.mean(-1) + DEVIATIONS * spread * (2 / n) ** 0.5)


def quantiles(x):
    at = torch.tensor([0.5, 0.9, 0.99, 0.999, 0.9999, 1], dtype=x.dtype, device=x.device)
    return " ".join(f"{v:.2f}" for v in torch.quantile(x, at).tolist())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--config", required=True, type=pathlib.Path)
    for flag in SHAPE:
        parser.add_argument(f"--{flag}", type=int, help="in place of the config's")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--sequences", default="512,512,1024")
    parser.add_argument("--prefill-activations", default="bf16", choices=["bf16", "e4m3"], help="inputs of products")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_grad_enabled(False)
    settings = json.loads(args.config.read_text())
    settings.update({name: getattr(args, flag.replace("-", "_")) for flag, name in SHAPE.items() if getattr(args, flag.replace("-", "_"))})
    lengths = [int(n) for n in args.sequences.split(",")]
    every = []
    for seed in map(int, args.seeds.split(",")):
        draws = Draws(LlamaConfig.from_dict(copy.deepcopy(settings)), seed, lengths, args.device, args.prefill_activations == "e4m3")
        s, k, h = draws.kl
        every.append((s, k, h))
        each = " ".join(f"{(b.mean() / a.mean()).item():.2f}" for a, b in zip(s.split(lengths), k.split(lengths)))
        print(f"seed {seed}: mean s {s.mean():.3e} k {k.mean():.3e} h {h.mean():.3e}, k/s {k.mean() / s.mean():.3f}, cv {s.std() / s.mean():.2f}; "
              f"seq {each}; pos 50 90 99 99.9 99.99 100 %: {quantiles(factors(s, k, h))}; flips {flips(draws)}", flush=True)
    print(f"all: pos {quantiles(torch.cat([factors(*draws) for draws in every]))} of {sum(len(s) for s, _, _ in every)} positions")
    for n in SIZES:
        of = torch.cat([shares(s, k, n) for s, k, _ in every])
        print(f"all: sequences of {n} positions: {len(of)}, at most {of.max():.2f} of their limit")


if __name__ == "__main__":
    main()
