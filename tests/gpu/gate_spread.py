"""How far a sound kernel's KL may lie from s's by chance: what the limits of package lab/gate are derived from.

    python gate_spread.py --config config.json [--layers 8 --hidden 1024 …] [--seeds 1,2,3] [--sequences 512,512,1024]

A kernel that rounds where s does, but whose roundings fall otherwise, is another draw of the same errors. It is made here by errors
drawn anew at each place of roundings.py, uniform over a unit in the last place, as a rounding's are: k. A real kernel's roundings mostly
fall as s's do, so it lies closer. For each seed of weights and tokens, on the CPU or a GPU, it prints

    mean   KL(o‖s), KL(o‖k), KL(o‖h) and k/s; cv, s's standard deviation over its mean
    seq    k/s of each sequence
    pos    quantiles of k / (s + h·mean(s)/mean(h) + mean(s)): at a position the factor that the gate bounds (PositionFactor)

and over all seeds the quantiles of pos, and for sequences of so many positions the greatest share of their limit.
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


def draw(config, seed, lengths, device):
    """KL(o‖s), KL(o‖k) and KL(o‖h) of all positions."""
    model, _ = reference.build(config, seed, device)
    generator = torch.Generator(device).manual_seed(seed)
    texts = [synth.tokens(seed, q, n, config.vocab_size).to(device) for q, n in enumerate(lengths)]
    o = [model.lm_head(reference.last_hidden(model, t, len(t))) for t in texts]
    out = [torch.cat([roundings.divergence(x, model.lm_head(r.hidden(t, len(t)))) for x, t in zip(o, texts)])
           for r in (roundings.Rounded(model), roundings.Rounded(model, round=redrawn(generator)))]
    model = reference.to_bf16(model, "sdpa")
    h = [model.lm_head(reference.last_hidden(model, t, len(t))).float() for t in texts]
    return *out, torch.cat([roundings.divergence(x, y) for x, y in zip(o, h)])


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
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_grad_enabled(False)
    settings = json.loads(args.config.read_text())
    settings.update({name: getattr(args, flag.replace("-", "_")) for flag, name in SHAPE.items() if getattr(args, flag.replace("-", "_"))})
    lengths = [int(n) for n in args.sequences.split(",")]
    every = []
    for seed in map(int, args.seeds.split(",")):
        s, k, h = draw(LlamaConfig.from_dict(copy.deepcopy(settings)), seed, lengths, args.device)
        every.append((s, k, h))
        each = " ".join(f"{(b.mean() / a.mean()).item():.2f}" for a, b in zip(s.split(lengths), k.split(lengths)))
        print(f"seed {seed}: mean s {s.mean():.3e} k {k.mean():.3e} h {h.mean():.3e}, k/s {k.mean() / s.mean():.3f}, cv {s.std() / s.mean():.2f}; "
              f"seq {each}; pos 50 90 99 99.9 99.99 100 %: {quantiles(factors(s, k, h))}", flush=True)
    print(f"all: pos {quantiles(torch.cat([factors(*draws) for draws in every]))} of {sum(len(s) for s, _, _ in every)} positions")
    for n in SIZES:
        of = torch.cat([shares(s, k, n) for s, k, _ in every])
        print(f"all: sequences of {n} positions: {len(of)}, at most {of.max():.2f} of their limit")


if __name__ == "__main__":
    main()
