"""Times causal attention of prompts alone: mkgen's, as its prefill kernel has it, beside PyTorch's, on the same inputs, GPU and run, in turns.

    python bench/attention.py --mkgen out/mkgen

mkgen's kernel is that of `mkgen bench --prefill-attention`, for each page size of --pages: pages of 1024 tokens are contiguous but for their ends. It
compares outputs with float64 on a sample. PyTorch's are scaled_dot_product_attention by its cuDNN and its flash backend, and FlexAttention, compiled,
over contiguous keys and values; their outputs are compared with mkgen's on that sample. With --attention softcap=X, alibi or window=N beside causal, FlexAttention
has the same, by its score_mod and mask_mod, and scaled_dot_product_attention is left out. All inputs are rows of the tensor "attention" of
tests/gpu/synth.py (AttentionOffset of package lab/bench says which). All times are the device's.

The comparison is printed, and written as JSON to --out: by default bench/results/<gpu>/<date>-prefill-attention.json on a GPU, with a plot beside it.
A backend that refuses the inputs is left out, which is said. Needs PyTorch.
"""

import argparse
import datetime
import json
import math
import pathlib
import statistics
import sys
import tempfile

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import compare

sys.path.insert(0, str(compare.ROOT / "tests" / "gpu"))
import synth  # noqa: E402
import variants  # noqa: E402

NOISE = ((1 << 20) + 256, "attention", 1)  # AttentionNoise and AttentionSeed of package lab/bench: length, name, seed
CLOSE = 0.03  # how far outputs may be from mkgen's: root mean square, of mkgen's
WARM_UP = 2
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION, "math": SDPBackend.MATH}
WHAT = "attention of prompts beside PyTorch"


class Inputs:
    """Queries, keys and values of sequences of n tokens, [sequence][head][token][dimension]; queries are scaled by log2(e)/sqrt(D), and scale undoes that."""

    def __init__(self, args, n, device):
        length, name, seed = NOISE
        noise = torch.empty(length, dtype=torch.bfloat16, device=device)
        synth.fill(noise, seed, name, synth.normal(1))
        scaled = (noise.double() * (math.log2(math.e) / math.sqrt(args.head_dim))).float().to(torch.bfloat16)
        make = lambda t, source, heads: self.rows(t, source, args.sequences, n, heads, args.head_dim)  # noqa: E731
        self.q, self.k, self.v = make(0, scaled, args.heads), make(1, noise, args.kv_heads), make(2, noise, args.kv_heads)
        self.scale, self.grouped = math.log(2), args.heads != args.kv_heads

    @staticmethod
    def rows(t, source, sequences, n, heads, dim):
        out = torch.empty(sequences, heads, n, dim, dtype=torch.bfloat16, device=source.device)
        each = torch.arange(dim, device=source.device)
        for s in range(sequences):
            row = torch.arange(s * n * heads, (s + 1) * n * heads, dtype=torch.int64, device=source.device)
            at = (row * 2654435761 + t * 40503077 & 0xFFFFFFFF) >> 12
            out[s] = source[at[:, None] + each].view(n, heads, dim).transpose(0, 1)
        return out


def flex(inputs, device, attention):
    """FlexAttention, compiled, with a mask of blocks, causal or of a window, and what a variant does to logits."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    n, (name, _, number) = inputs.q.shape[2], attention.partition("=")
    window = int(number) if name == "window" else n
    mask = create_block_mask(lambda b, h, q, k: (q >= k) & (q - k < window), None, None, n, n, device=device)
    score = None
    if name == "softcap":
        cap = float(number)
        score = lambda logit, b, h, q, k: cap * torch.tanh(logit / cap)  # noqa: E731
    elif name == "alibi":
        slopes = torch.tensor(variants.slopes(inputs.q.shape[1]), dtype=torch.float32, device=device)
        score = lambda logit, b, h, q, k: logit + slopes[h] * (k - q)  # noqa: E731
    compiled = flex_attention if device == "cpu" else torch.compile(flex_attention)
    return lambda: compiled(inputs.q, inputs.k, inputs.v, score_mod=score, block_mask=mask, scale=inputs.scale, enable_gqa=inputs.grouped)


def sdpa(inputs, backend):
    def call():
        with sdpa_kernel(backend):
            return functional.scaled_dot_product_attention(inputs.q, inputs.k, inputs.v, is_causal=True, scale=inputs.scale, enable_gqa=inputs.grouped)
    return call


def timed(call, rounds, device):
    """The output, and microseconds of each round."""
    times = []
    for i in range(WARM_UP + rounds):
        clock = compare_clock(device)
        out = call()
        took = clock()
        if i >= WARM_UP:
            times.append(float(f"{took:.6g}"))
    return out, times


def compare_clock(device):
    """Starts the device's clock; what it returns stops it and says microseconds."""
    if device == "cpu":
        begin = datetime.datetime.now()
        return lambda: (datetime.datetime.now() - begin) / datetime.timedelta(microseconds=1)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()

    def stop():
        end.record()
        end.synchronize()
        return 1e3 * begin.elapsed_time(end)
    return stop


def apart(out, sample):
    """How far an output is from mkgen's sample."""
    difference = size = 0.0
    for s in sample:
        ours = torch.tensor(s["out"], dtype=torch.float64)
        theirs = out[s["sequence"], s["head"], s["token"]].double().cpu()
        difference, size = difference + (ours - theirs).square().sum().item(), size + ours.square().sum().item()
    return math.sqrt(difference / size)


def theirs(args, system, attention, n, sample, device):
    """The times of one of PyTorch's, or none where it refuses."""
    inputs = Inputs(args, n, device)
    try:
        call = flex(inputs, device, attention) if system == "flex" else sdpa(inputs, BACKENDS[system])
        out, times = timed(call, args.rounds, device)
    except RuntimeError as e:
        print(f"attention: {system} refuses {n} tokens: {' '.join(str(e).split())[:200]}", flush=True)
        return None, None
    far = apart(out, sample)
    if not far <= CLOSE:
        sys.exit(f"attention: outputs of {system} for {n} tokens are {far:.3g} from mkgen's, want at most {CLOSE}")
    return times, far


def ours(args, page, attention, scratch):
    """What mkgen measured with pages of the given size and an attention."""
    config, out = scratch / "config.json", scratch / "attention.json"
    base = json.loads((compare.ROOT / "models" / "testdata" / "configs" / "tiny.json").read_text())
    config.write_text(json.dumps(base | {"num_attention_heads": args.heads, "num_key_value_heads": args.kv_heads, "head_dim": args.head_dim}))
    out.unlink(missing_ok=True)
    command = [args.mkgen, "bench", "--config", config, "--name", "heads", "--prefill-attention", args.sequences, "--contexts", args.lengths,
               "--page", page, "--attention", attention, "--rounds", args.rounds, "--cases", out, *(["--device", "sim"] if args.device == "sim" else [])]
    if code := compare.run(f"mkgen, {attention}, pages of {page}", command):
        compare.ended(code)
    return json.loads(out.read_text())


def finished(cases):
    """The cases with figures from their rounds, in order of lengths."""
    out = sorted(cases.values(), key=lambda c: c["tokens"])
    for c in out:
        us = c["device_us"] = float(f"{statistics.median(c['rounds_us']):.6g}")
        c["tflop_s"] = float(f"{c['flop'] / us / 1e6:.6g}")
    for c in out:
        same = [o for o in out if o["tokens"] == c["tokens"] and o.get("attention") == c.get("attention")]
        best = max((o["tflop_s"] for o in same if o["system"] != "mkgen"), default=None)
        if best:
            c["of_best"] = float(f"{c['tflop_s'] / best:.6g}")
    return out


def table(cases):
    print("tokens  attention    system  page    device  TFLOP/s  of PyTorch's best")
    for c in cases:
        share = f"{100 * c['of_best']:.1f} %" if "of_best" in c else "-"
        print(f"{c['tokens']:6d}  {c.get('attention', 'causal'):11s}  {c['system']:6s}  {c.get('page', '-'):>4}  {c['device_us'] / 1e3:7.3f} ms  {c['tflop_s']:6.1f}  {share:>8}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], formatter_class=compare.Help)
    parser.add_argument("--mkgen", type=pathlib.Path, default=pathlib.Path("out/mkgen"), help="the program, built with CUDA")
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--kv-heads", type=int, default=16)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--lengths", default="1024,4096,16384", help="tokens of each sequence")
    parser.add_argument("--pages", default="16,1024,1", help="page sizes of mkgen's cache")
    parser.add_argument("--attention", default="causal", help="kinds in turn: causal, softcap=X, alibi, window=N")
    parser.add_argument("--systems", default="cudnn,flash,flex", help="of PyTorch, or math")
    parser.add_argument("--rounds", type=int, default=7, help="of each length, of each pass")
    parser.add_argument("--passes", type=int, default=2, help="runs of each in turns")
    parser.add_argument("--device", default="cuda", choices=["cuda", "sim"], help="sim tries this out on a CPU: no speed")
    parser.add_argument("--out", type=compare.file_to_write, help="JSON file (default: bench/results/GPU/DATE-prefill-attention.json, or out/prefill-attention.json)")
    args = parser.parse_args()
    args.mkgen = compare.program(args.mkgen)
    device = "cpu" if args.device == "sim" else "cuda"
    torch.set_grad_enabled(False)
    cases, file = {}, None
    with tempfile.TemporaryDirectory() as scratch:
        for _ in range(args.passes):
            for attention in args.attention.split(","):
                varied = {} if attention == "causal" else {"attention": attention}
                for page in args.pages.split(","):
                    file = ours(args, int(page), attention, pathlib.Path(scratch))
                    for c in file["cases"]:
                        new = {"system": "mkgen", **varied, "page": int(page), "tokens": c["tokens"], "flop": c["flop"], "error": 0.0, "rounds_us": []}
                        case = cases.setdefault(("mkgen", attention, page, c["tokens"]), new)
                        case["error"] = max(case["error"], c["worst"])
                        case["rounds_us"] += c["rounds_us"]
                for c in file["cases"]:
                    for system in args.systems.split(",") if attention == "causal" else ["flex"]:
                        times, far = theirs(args, system, attention, c["tokens"], c["sample"], device)
                        if times:
                            new = {"system": system, **varied, "tokens": c["tokens"], "flop": c["flop"], "apart": float(f"{far:.3g}"), "rounds_us": []}
                            cases.setdefault((system, attention, c["tokens"]), new)["rounds_us"] += times
            if device == "cuda":
                torch.cuda.empty_cache()
    out = {name: file[name] for name in ("gpu", "driver", "cuda", "commit", "compiler", "heads", "kv_heads", "head_dim", "sequences")}
    out = {"what": WHAT} | out | {"torch": torch.__version__, "cases": finished(cases)}
    print(f"\nCausal attention of {args.sequences} prompts on {out['gpu']}, {args.heads} query and {args.kv_heads} KV heads of {args.head_dim}; medians of "
          f"{args.passes} x {compare.several(args.rounds, 'round')} by the device's clock" + ("; the executor's times are no speed" if device == "cpu" else ""))
    table(out["cases"])
    path = args.out or pathlib.Path("out") / "prefill-attention.json"
    if args.out is None and device == "cuda":
        path = compare.free(compare.ROOT / "bench" / "results" / compare.short_name(out["gpu"]) / f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}-prefill-attention.json")
    compare.write(path, json.dumps(out, indent=2) + "\n")
    print(f"Written to {path}", flush=True)
    if code := compare.run("plot", [args.mkgen, "plot", path, "-o", path.with_suffix(".svg")]):
        compare.ended(code)


if __name__ == "__main__":
    main()
