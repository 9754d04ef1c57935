"""Times greedy decoding of Hugging Face transformers at batch 1: static cache, the step compiled, bfloat16.

    python bench/transformers_decode.py --config config.json --contexts 128,1024 --out FILE [--seed 1] [--rounds 7] [--tokens 128]

The weights are those that `mkgen bench --random SEED` makes (tests/gpu/synth.py). A step is one torch.compile'd function, token in, next
token out (greedy, on the device); with --mode reduce-overhead, the default, it is a CUDA graph. The cache is prefilled once, for the longest
context; a round begins with the cache set back to its context ("same_tokens" says whether all rounds of a context chose the same). The cache has room
for all contexts, and every step computes attention over that room: transformers compiles for one size of it.

The compiled step's logits are held against those of the step that is not, as a wrong position or cache would show; they may differ by what
rounding to bfloat16 in other places makes.

Figures, in FILE as JSON, are what `mkgen bench` calls them: us_per_token and tok_s by the host's clock, from asking for a round's first token to
having its last; device_us_per_token between two events around it; p50_us, p99_us and max_us of single tokens, between events.
"""

import argparse
import copy
import json
import pathlib
import statistics
import sys
import time

import torch
import transformers
from transformers import LlamaConfig, StaticCache

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "gpu"))
import reference  # noqa: E402
import synth  # noqa: E402

CLOSE = 0.25  # how far compiled logits may be from those that are not: root mean square, of the logits' standard deviation


def log(start, text):
    print(f"{time.time() - start:6.1f} s  transformers: {text}", file=sys.stderr, flush=True)


class Clock:
    """Marks points of time on the device; on a CPU the host's."""

    def __init__(self, device):
        self.gpu, self.marks = device.startswith("cuda"), []

    def mark(self):
        if self.gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.marks.append(event)
        else:
            self.marks.append(time.perf_counter())

    def micros(self):
        """Between neighbouring marks."""
        if self.gpu:
            torch.cuda.synchronize()
            return [1e3 * a.elapsed_time(b) for a, b in zip(self.marks, self.marks[1:])]
        return [1e6 * (b - a) for a, b in zip(self.marks, self.marks[1:])]


class Decoder:
    def __init__(self, model, room, device, mode):
        self.model, self.device = model, device
        self.cache = StaticCache(config=model.config, max_cache_len=room)
        self.token = torch.ones((1, 1), dtype=torch.long, device=device)

        def step(token):
            logits = model(input_ids=token, past_key_values=self.cache, use_cache=True).logits[:, -1]
            return logits, logits.argmax(-1, keepdim=True)

        self.eager = step
        options = {"backend": "eager"} if mode == "eager" else {"mode": mode, "fullgraph": True}
        self.compiled = torch.compile(step, **options)

    def prefill(self, tokens):
        for start in range(0, tokens.shape[1], 512):
            self.model(input_ids=tokens[:, start : start + 512], past_key_values=self.cache, use_cache=True, logits_to_keep=1)

    def rewind(self, cached):
        for layer in self.cache.layers:
            layer.cumulative_length.fill_(cached)

    def check(self, cached):
        """How far the compiled step's logits are from the other's: root mean square, of their standard deviation."""
        self.rewind(cached)
        want = self.eager(self.token)[0].float().clone()
        self.rewind(cached)
        got = self.compiled(self.token)[0].float().clone()
        apart = ((got - want).pow(2).mean().sqrt() / want.std()).item()
        if not apart <= CLOSE:
            sys.exit(f"transformers_decode: the compiled step's logits are {apart:.3g} standard deviations from the other's, want at most {CLOSE}")
        return apart

    def round(self, cached, n):
        """One round: the tokens, microseconds of each but the first, and of all together by the device's and the host's clock."""
        self.rewind(cached)
        clock, token, chosen = Clock(self.device), self.token, []
        if clock.gpu:
            torch.cuda.synchronize()
        begin = time.perf_counter()
        clock.mark()
        for _ in range(n):
            token = self.compiled(token)[1].clone()  # the graph's own output is overwritten by its next run
            chosen.append(token)
            clock.mark()
        last = chosen[-1].item()
        wall = 1e6 * (time.perf_counter() - begin)
        each = clock.micros()
        tokens = torch.cat(chosen, 1)[0].tolist()
        assert tokens[-1] == last
        return tokens, each[1:] or each, sum(each), wall


def percentile(values, percent):
    ordered = sorted(values)
    return ordered[(len(ordered) * percent + 99) // 100 - 1]


def significant(x):
    return float(f"{x:.6g}")


def measure(decoder, cached, rounds, n, warm_up):
    if warm_up:
        decoder.round(cached, warm_up)
    chosen, each, times = [], [], []
    for _ in range(rounds):
        tokens, single, device, wall = decoder.round(cached, n)
        chosen.append(tokens)
        each += single
        times.append({"us_per_token": significant(wall / n), "device_us_per_token": significant(device / n)})
    wall = statistics.median(t["us_per_token"] for t in times)
    return {
        "context": cached, "tok_s": significant(1e6 / wall), "us_per_token": significant(wall),
        "device_us_per_token": significant(statistics.median(t["device_us_per_token"] for t in times)),
        "p50_us": significant(percentile(each, 50)), "p99_us": significant(percentile(each, 99)), "max_us": significant(max(each)),
        "same_tokens": all(tokens == chosen[0] for tokens in chosen), "tokens_per_round": n, "rounds": times,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--config", type=pathlib.Path, required=True, help="a Hugging Face config.json")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="JSON file for the figures")
    parser.add_argument("--contexts", default="128,1024")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tokens", type=int, default=128, help="of a round")
    parser.add_argument("--warm-up", type=int, default=64, help="tokens before the rounds of a context")
    parser.add_argument("--attention", default="sdpa", choices=["sdpa", "eager"])
    parser.add_argument("--mode", default="reduce-overhead", help="of torch.compile: reduce-overhead, max-autotune, default; or eager, to try this out")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    start = time.time()
    torch.set_grad_enabled(False)
    contexts = [int(c) for c in args.contexts.split(",")]
    config = LlamaConfig.from_dict(copy.deepcopy(json.loads(args.config.read_text())))
    log(start, "making the weights")
    model, weights_hash = reference.build(config, args.seed, args.device)
    model = reference.to_bf16(model, args.attention)
    if args.device.startswith("cuda"):
        torch.cuda.empty_cache()
    room = max(contexts) + max(args.tokens, args.warm_up)
    decoder = Decoder(model, room, args.device, args.mode)
    decoder.prefill(synth.tokens(args.seed, 0, max(1, *contexts), config.vocab_size)[None].to(args.device))
    log(start, "compiling")
    began = time.time()
    apart = decoder.check(contexts[0])
    took = time.time() - began
    cases = []
    for cached in contexts:
        log(start, f"context {cached}")
        cases.append(measure(decoder, cached, args.rounds, args.tokens, args.warm_up))
    out = {
        "torch": torch.__version__, "transformers": transformers.__version__, "weights_hash": weights_hash, "attention": args.attention,
        "mode": args.mode, "cudagraph_skips": torch._dynamo.utils.counters["inductor"]["cudagraph_skips"], "cache_tokens": room, "compile_s": round(took, 1), "apart": significant(apart),
        "device": torch.cuda.get_device_name() if args.device.startswith("cuda") else args.device, "cases": cases,
    }
    args.out.write_text(json.dumps(out, indent=2) + "\n")
    log(start, "done")


if __name__ == "__main__":
    main()
