"""Times one model's decoding in three ways, in one run, on one GPU, with the same random weights:

  single         the kernel: `mkgen bench`
  graph          the same tasks as a kernel each, in a CUDA graph, by programmatic dependent launch: `mkgen bench --launch graph`
  transformers   Hugging Face transformers, static cache, the step compiled: bench/transformers_decode.py

    python bench/compare.py --mkgen out/mkgen --model llama3-8b
    python bench/compare.py --mkgen out/mkgen --model llama3-8b --tune 120s --reference out/ref-8b

`scripts/build-cuda build -o out/mkgen ./cmd/mkgen` makes out/mkgen. What the single kernel gains over the graph is what not ending the kernel
gains; the graph preloads its weights as far as shared memory goes, unless its options say one kernel an SM, and has options of its own (--graph,
--graph-profile, or --tune, which searches those of both first). Shares are of the streaming ceiling that mkgen measures right before its case;
transformers' are of the single kernel's.
With --prefill N it compares prompts instead: the time to the first token by mkgen's prefill kernels of steps of N tokens and by transformers (bf16,
SDPA), in turns, --passes of each, at lengths of 128, 1024, 8192 and 32768 tokens or those of --contexts. Beside TFLOP/s stand shares of the
datasheet's peak and of PyTorch's product of large matrices in the same run. A plot is drawn beside the file.

    python bench/compare.py --mkgen out/mkgen --model llama3-8b --prefill 2048

With --reference (tests/gpu/reference.py) both kernels pass the gate or the run ends with exit code 1; without, all is marked UNGATED.

The comparison is printed, and written as JSON to --out: by default bench/results/<gpu>/<date>-compare-<model>.json where the gate was passed, else
out/compare-<model>.json. docs/benchmarking.md says how the figures come about. Needs PyTorch and transformers, unless --no-transformers.
"""

import argparse
import datetime
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

import compare_prefill

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIGURES = ["tok_s", "us_per_token", "device_us_per_token", "p50_us", "p99_us", "max_us"]
UNGATED = "UNGATED"
CONTEXTS = "128,1024"  # where --contexts says no other
WARM_UP = 64  # tokens before the rounds of a context, as of mkgen bench on a GPU


def run(what, command):
    """Runs a command, its output behind ours; ends with its exit code when that is not 0."""
    start = time.time()
    print(f"\n== {what}: {shlex.join(map(str, command))}", flush=True)
    code = subprocess.run(list(map(str, command))).returncode
    print(f"== {what}: {time.time() - start:.1f} s", flush=True)
    if code != 0:
        print(f"compare: {what} ended with exit code {code}", file=sys.stderr)
    return code


def fitting(wanted, positions, tokens, given=True):
    """The contexts to measure at, with commas between: those wanted at which a model of so many positions has some for so many tokens
    more. Ends the program where there are none, or too few for one that was given."""
    try:
        contexts = [int(c) for c in wanted.split(",")]
    except ValueError:
        fail(f"--contexts: found {wanted!r}, want numbers with commas between", 2)
    fit = [c for c in contexts if c + tokens <= positions]
    beyond = [c for c in contexts if c + tokens > positions]
    if beyond and (given or not fit):
        if not tokens:
            fail(f"--contexts: a prompt of {beyond[0]} tokens, the model was made for {positions} positions", 2)
        fail(f"--contexts: {beyond[0]} and a round of {tokens} tokens, the model was made for {positions} positions", 2)
    if beyond:
        print(f"Not measured: contexts {beyond}, the model was made for {positions} positions.")
    return ",".join(map(str, fit))


def gain(time_over_single):
    """What the single kernel takes beside one of so many times its time: "3.75 % less"."""
    percent = 100 * (1 - 1 / time_over_single)
    return f"{abs(percent):.2f} % {'less' if percent >= 0 else 'more'}"


def fail(text, code=1):
    """Ends the program with one line: code 2 for a wrong call, as mkgen's."""
    print("compare: " + " ".join(str(text).split()), file=sys.stderr)
    sys.exit(code)


def ended(code):
    """Ends the program after a command that failed: 2 where that was called wrongly, 130 where it was interrupted."""
    sys.exit(code if code in (2, 130) else 1)


# Flags of mkgen bench that the comparison gives itself, or that make it something else.
OURS = ["--model", "-m", "--config", "--name", "--checkpoint", "--device", "--contexts", "--rounds", "--tokens", "--random", "--reference", "--record", "--cases",
        "--plot", "--profile", "--launch", "--rows", "--selection", "--budget", "--ablate", "--time", "--prefill", "--output", "-o", "--help", "-h"]


def program(path):
    """mkgen's path, which the current directory does not matter for."""
    found = path if path.exists() else shutil.which(path) if path.parent == pathlib.Path() else None
    if found is None:
        fail(f"--mkgen: {path} is not there: scripts/build-cuda build -o out/mkgen ./cmd/mkgen makes out/mkgen")
    if not pathlib.Path(found).is_file() or not os.access(found, os.X_OK):
        fail(f"--mkgen: {path} is no program")
    return pathlib.Path(found).absolute()


def flags_of(name, text):
    try:
        flags = shlex.split(text)
    except ValueError as e:
        fail(f"--{name}: found {text!r}: {e}", 2)
    for flag in flags:
        if flag.split("=")[0] in OURS:
            fail(f"--{name}: found {flag.split('=')[0]}, want options of a kernel of one row; the rest the comparison gives both", 2)
    return flags


def seed_of(reference):
    try:
        return str(json.loads((reference / "manifest.json").read_text())["seed"])
    except OSError as e:
        fail(f"--reference {reference}: {e}; tests/gpu/reference.py makes one")
    except (ValueError, KeyError, TypeError):
        fail(f"--reference {reference}: manifest.json has no seed; tests/gpu/reference.py makes one")


def file_to_write(text):
    if not text or text.endswith("/"):
        fail(f"--out: found {text!r}, want a file", 2)
    return pathlib.Path(text)


def writable(path):
    """Ends the program where write could not write path; leaves nothing."""
    target = path.resolve()
    if target.exists() and not target.is_file():
        fail(f"--out {path}: it is there and no regular file")
    above = target.parent
    while not above.exists():
        above = above.parent
    try:
        tempfile.TemporaryFile(dir=above).close()
    except OSError as e:
        fail(f"--out {path}: {e.strerror}")


def write(path, text):
    """Writes a file whole or not at all; a link stays one."""
    target = path.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=target.parent, prefix=".compare-", delete=False) as f:
            try:
                f.write(text)
                f.flush()
                os.chmod(f.name, 0o644)
                os.replace(f.name, target)
            except BaseException:
                os.unlink(f.name)
                raise
    except OSError as e:
        fail(f"--out {path}: {e.strerror}")


def check(args):
    """Refuses, before anything is measured, what would fail after it; completes what follows from other arguments."""
    args.mkgen = program(args.mkgen)
    for name in ("single", "graph"):
        flags_of(name, getattr(args, name))
    for name in ("config", "single_profile", "graph_profile"):
        path = getattr(args, name)
        if path and not path.is_file():
            fail(f"--{name.replace('_', '-')}: {path} is no file")
        if path and args.out and path.resolve() == args.out.resolve():
            fail(f"--out {args.out} is the file of --{name.replace('_', '-')}, want another", 2)
    if args.reference:
        args.seed = seed_of(args.reference)
    if args.prefill is not None:
        check_prefill(args)
    writable(args.out or pathlib.Path("out") / f"compare-{'prefill-' if args.prefill else ''}{args.model}.json")
    if not args.no_transformers:
        needs = "import torch; from transformers import StaticCache"
        if subprocess.run([sys.executable, "-c", needs], capture_output=True).returncode:
            fail(f"{sys.executable} has no PyTorch or no transformers 5; --no-transformers compares the two kernels only")


def check_prefill(args):
    """Refuses what does not go with --prefill."""
    if args.prefill < 1 or args.passes < 1:
        fail(f"--prefill {args.prefill} and --passes {args.passes}, want at least 1", 2)
    for name in ("graph", "single_profile", "graph_profile", "tune"):
        if getattr(args, name):
            fail(f"--{name.replace('_', '-')} and --prefill exclude each other", 2)


def several(n, what):
    return f"{n} {what}" + ("" if str(n) == "1" else "s")


class Help(argparse.HelpFormatter):
    """Says the defaults that there are, where the text does not."""

    def _get_help_string(self, action):
        said = action.default in (None, "", False, argparse.SUPPRESS) or "default" in (action.help or "")
        return (action.help or "") + ("" if said else ("(" if not action.help else " (") + "default: %(default)s)")


class Comparison:
    def __init__(self, args, scratch):
        self.args, self.scratch = args, pathlib.Path(scratch)
        self.config = args.config or ROOT / "models" / "testdata" / "configs" / f"{args.model}.json"
        self.model = ["--config", args.config, "--name", args.model] if args.config else ["--model", args.model]
        self.sim = ["--device", "sim"] if args.device == "sim" else []

    def options(self, launch):
        """The flags of one of the two kernels: given, or what a search chose."""
        a = self.args
        given, profile = {"single": (a.single, a.single_profile), "graph": (a.graph, a.graph_profile)}[launch]
        flags = (["--launch", "graph"] if launch == "graph" else []) + flags_of(launch, given)
        if a.tune and not profile:
            profile = (self.scratch if self.sim else pathlib.Path("out")) / f"tune-{launch}-{a.model}.json"  # a search goes on where it stopped
            command = [a.mkgen, "tune", *self.model, *flags, *self.sim, "--contexts", a.contexts, "--random", a.seed, "--budget", a.tune, "-o", profile]
            if code := run(f"tune {launch}", command):
                ended(code)
        return flags + (["--profile", profile] if profile else [])

    def kernel(self, launch):
        """What `mkgen bench` measured, as it writes it with --cases."""
        a, out = self.args, self.scratch / f"{launch}.json"
        command = [a.mkgen, "bench", *self.model, *self.options(launch), *self.sim, "--contexts", a.contexts, "--rounds", a.rounds, "--tokens", a.tokens, "--cases", out]
        if a.reference:
            command += ["--reference", a.reference] + ([] if self.sim else ["--record", self.scratch / f"{launch}-record.json"])
        else:
            command += ["--random", a.seed]
        if code := run(launch, command):
            ended(code)
        return json.loads(out.read_text())

    def transformers(self):
        a, out = self.args, self.scratch / "transformers.json"
        command = [sys.executable, ROOT / "bench" / "transformers_decode.py", "--config", self.config, "--contexts", a.contexts, "--seed", a.seed,
                   "--rounds", a.rounds, "--tokens", a.tokens, "--mode", a.mode, "--out", out]
        if code := run("transformers", command):
            ended(code)
        return json.loads(out.read_text())


def cases_of(single, graph, other):
    """One list of cases, context by context: single, graph, transformers."""
    cases = []
    for i, s in enumerate(single["cases"]):
        rows = [("single", s), ("graph", graph["cases"][i])]
        if other:
            rows.append(("transformers", other["cases"][i]))
        for system, c in rows:
            if c["context"] != s["context"]:
                sys.exit(f"compare: {system} has context {c['context']} where the single kernel has {s['context']}")
            case = {"system": system, "model": s["model"], "dtype": s["dtype"], "batch": 1, "context": s["context"]}
            case |= {name: c[name] for name in FIGURES}
            ceiling = c.get("ceiling_gb_s", s["ceiling_gb_s"])
            rate = s["bytes_per_token"] / c["device_us_per_token"] / 1e3
            case |= {"bytes_per_token": s["bytes_per_token"], "gb_s": float(f"{rate:.6g}"), "ceiling_gb_s": ceiling, "share": float(f"{rate / ceiling:.6g}"),
                     "time_over_single": float(f"{c['device_us_per_token'] / s['device_us_per_token']:.6g}"),
                     "tokens_per_round": c["tokens_per_round"], "rounds": c["rounds"]}
            if system != "transformers":
                case["gate"] = c.get("gate") or {"passed": False}
            cases.append(case)
    return cases


def table(cases, mark):
    header = ["context", "system", "tok/s", "us/token", "device us", "p50", "p99", "max", "share", "time / single", "gate"]
    rows = [[str(c["context"]), c["system"], f"{c['tok_s']:.1f}", f"{c['us_per_token']:.1f}", f"{c['device_us_per_token']:.1f}", f"{c['p50_us']:.1f}",
             f"{c['p99_us']:.1f}", f"{c['max_us']:.1f}", f"{100 * c['share']:.1f} %", f"{c['time_over_single']:.3f}", mark if "gate" in c else "-"] for c in cases]
    widths = [max(len(r[i]) for r in [header, *rows]) for i in range(len(header))]
    for r in [header, *rows]:
        print("  ".join(cell.ljust(w) if i in (1, len(header) - 1) else cell.rjust(w) for i, (cell, w) in enumerate(zip(r, widths))).rstrip())


def short_name(gpu):
    """As mkgen calls a GPU's folder: "h200" of "NVIDIA H200"."""
    words = gpu.lower().split()
    if len(words) > 1 and words[0] == "nvidia":
        words = words[1:]
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in (words or ["unknown"])[0])


def free(path):
    """path, with a number where the name is taken."""
    at, n = path, 2
    while at.exists():
        at, n = path.with_name(f"{path.stem}-{n}{path.suffix}"), n + 1
    return at


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], formatter_class=Help)
    parser.add_argument("--mkgen", type=pathlib.Path, default=pathlib.Path("out/mkgen"), help="the program, built with CUDA")
    parser.add_argument("--model", default="llama3-8b", help="registered name, or with --config what the model is called")
    parser.add_argument("--config", type=pathlib.Path, help="a Hugging Face config.json (default: that of the registered model)")
    parser.add_argument("--contexts", help=f"tokens in the KV cache when a round begins; of prompts with --prefill (default: {CONTEXTS}, or {compare_prefill.LENGTHS}, without those that the model has no positions for)")
    parser.add_argument("--seed", default="1", help="of the weights; with --reference that of the reference")
    parser.add_argument("--rounds", default="7", help="of each context")
    parser.add_argument("--tokens", type=int, default=128, help="of a round")
    parser.add_argument("--reference", type=pathlib.Path, help="directory of tests/gpu/reference.py: gates both kernels")
    parser.add_argument("--single", default="", help="flags of mkgen bench for the single kernel, such as '--in-flight 2'")
    parser.add_argument("--graph", default="", help="the same for the graph, such as '--resident 2 --dependents streamed'")
    parser.add_argument("--single-profile", type=pathlib.Path, help="file of mkgen tune for the single kernel")
    parser.add_argument("--graph-profile", type=pathlib.Path, help="file of mkgen tune --launch graph for the graph")
    parser.add_argument("--tune", default="", help="search the options of both for so long each first, such as 60s")
    parser.add_argument("--mode", default="reduce-overhead", help="of torch.compile")
    parser.add_argument("--no-transformers", action="store_true", help="compare the two kernels only")
    parser.add_argument("--prefill", type=int, help="compare the first token of prompts, with prefill kernels whose steps have this many tokens, instead")
    parser.add_argument("--passes", type=int, default=2, help="runs of each in turns, with --prefill")
    parser.add_argument("--device", default="cuda", choices=["cuda", "sim"], help="sim tries this out on a CPU: no speed")
    parser.add_argument("--out", type=file_to_write, help="JSON file (default: bench/results/GPU/DATE-compare-MODEL.json where the gate was passed, else out/compare-MODEL.json)")
    args = parser.parse_args()
    check(args)
    with tempfile.TemporaryDirectory() as scratch:
        c = Comparison(args, scratch)
        if args.prefill:
            return compare_prefill.main(args, c, sys.modules[__name__])
        positions = json.loads(c.config.read_text())["max_position_embeddings"]
        args.contexts = fitting(args.contexts or CONTEXTS, positions, args.tokens if c.sim else max(args.tokens, WARM_UP), given=bool(args.contexts))
        single, graph = c.kernel("single"), c.kernel("graph")
        other = None if args.no_transformers else c.transformers()
    if (single["gpu"], single["commit"]) != (graph["gpu"], graph["commit"]):
        sys.exit("compare: the two kernels were not measured on one GPU by one program")
    cases = cases_of(single, graph, other)
    passed = all(case["gate"]["passed"] for case in cases if case["system"] != "transformers")
    mark = "passed" if passed else UNGATED
    record = {"gpu": single["gpu"], "driver": single["driver"], "cuda": single["cuda"], "commit": single["commit"], "gated": passed,
              "options": {"single": single["options"], "graph": graph["options"]}, "cases": cases}
    if other:
        record["transformers"] = {k: v for k, v in other.items() if k != "cases"}
    print(f"\n{args.model} on {record['gpu']}, batch 1, random weights of seed {args.seed}; medians of {several(args.rounds, 'round')} of {several(args.tokens, 'token')}"
          + ("; the executor's times are no speed" if c.sim else ""))
    table(cases, mark)
    for case in cases:
        if case["system"] == "graph" and not c.sim:
            print(f"Context {case['context']}: the single kernel takes {gain(case['time_over_single'])} device time a token than the graph of kernels.")
    out = args.out
    if out is None and passed and args.device == "cuda":
        out = free(ROOT / "bench" / "results" / short_name(record["gpu"]) / f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}-compare-{args.model}.json")
    out = out or pathlib.Path("out") / f"compare-{args.model}.json"
    write(out, json.dumps(record, indent=2) + "\n")
    print(f"{'Record' if passed else UNGATED + ': no record. Figures'} written to {out}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        ended(130)
