"""The part of compare.py that is asked for with --prefill: the first token of prompts, by mkgen and by transformers in turns."""

import datetime
import json
import pathlib
import shlex
import statistics
import subprocess
import sys
import time

CLOSE = 0.25  # how far transformers' logits may be from mkgen's: root mean square, of their standard deviation
EVERY = 61  # LogitsEvery of package lab/bench
PRODUCT_TOKENS = 8192
LENGTHS = "128,1024,8192,32768"
WORKER = pathlib.Path(__file__).resolve().parent / "transformers_prefill.py"


def significant(x):
    return float(f"{x:.6g}")


def apart(ours, theirs):
    """The root mean square of the difference, of the standard deviation of ours."""
    if len(ours) != len(theirs):
        return float("inf")
    return (statistics.fmean((a - b) ** 2 for a, b in zip(ours, theirs)) ** 0.5) / statistics.pstdev(ours)


class Worker:
    """transformers in a process of its own, which answers one question at a time."""

    def __init__(self, command, fail):
        self.fail, self.command = fail, list(map(str, command))
        print(f"\n== transformers: {shlex.join(self.command)}", flush=True)
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.about = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.fail(f"transformers ended with exit code {self.process.wait()}")
        return json.loads(line)

    def ask(self, *question):
        start = time.time()
        try:
            print(*question, file=self.process.stdin, flush=True)
        except BrokenPipeError:
            pass  # answer says how it ended
        answer = self.answer()
        print(f"== transformers: {' '.join(map(str, question))}: {time.time() - start:.1f} s", flush=True)
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def merge(passes):
    """The cases of several runs of mkgen as those of one, of all rounds."""
    first = passes[0]
    for other in passes[1:]:
        if (other["gpu"], other["commit"], other["options"]) != (first["gpu"], first["commit"], first["options"]):
            sys.exit("compare: the runs of mkgen were not of one GPU and one program")
        first["apart"] = max(first["apart"], other["apart"])
        for case, more in zip(first["cases"], other["cases"], strict=True):
            case["rounds_us"] += more["rounds_us"]
    return first


def figures(case, rounds, file):
    """A case's figures from its rounds."""
    us = significant(statistics.median(rounds))
    case |= {"first_token_us": us, "tok_s": significant(1e6 * case["prompt"] / us), "tflop_s": significant(case["flop"] / us / 1e6), "rounds_us": rounds}
    for name, of in (("share", "peak_tflop_s"), ("of_product", "product_tflop_s")):
        if file.get(of):
            case[name] = significant(case["flop"] / us / 1e6 / file[of])
    return case


def joined(file, theirs):
    """The file of mkgen with a case of transformers behind each of its own, where theirs has rounds and logits by prompt."""
    cases = []
    for case in file["cases"]:
        logits, gate = case.pop("logits"), case.pop("gate", None)
        ours = figures(dict(case), case["rounds_us"], file) | {"time_over_mkgen": 1.0} | ({"gate": gate} if gate else {})
        cases.append(ours)
        if case["prompt"] not in theirs:
            continue
        other = theirs[case["prompt"]]
        base = {name: case[name] for name in ("model", "batch", "prompt", "flop")}
        c = figures({"system": "transformers", "dtype": "bf16"} | base, other["rounds_us"], file)
        c["time_over_mkgen"] = significant(c["first_token_us"] / ours["first_token_us"])
        c["logits_apart"] = significant(apart(logits, other["logits"]))
        cases.append(c)
    return file | {"cases": cases}


def table(file, mark):
    header = ["prompt", "system", "first token", "spread", "tok/s", "TFLOP/s", "of peak", "of product", "time / mkgen", "gate"]
    rows = []
    for c in file["cases"]:
        percent = [f"{100 * c[name]:.1f} %" if name in c else "-" for name in ("share", "of_product")]
        low, high = min(c["rounds_us"]) / 1e3, max(c["rounds_us"]) / 1e3
        rows.append([str(c["prompt"]), c["system"], f"{c['first_token_us'] / 1e3:.2f} ms", f"{low:.2f}-{high:.2f}", f"{c['tok_s']:.0f}", f"{c['tflop_s']:.1f}",
                     *percent, f"{c['time_over_mkgen']:.3f}", mark if c["system"] == "mkgen" else "-"])
    widths = [max(len(r[i]) for r in [header, *rows]) for i in range(len(header))]
    for r in [header, *rows]:
        print("  ".join(cell.ljust(w) if i in (1, len(header) - 1) else cell.rjust(w) for i, (cell, w) in enumerate(zip(r, widths))).rstrip())


def mkgen(args, comparison, compare, lengths, first):
    """What `mkgen bench --prefill` measured, as it writes it with --cases; the first time with the gate, where there is a reference."""
    out = comparison.scratch / "prefill.json"
    out.unlink(missing_ok=True)
    command = [args.mkgen, "bench", *comparison.model, *compare.flags_of("single", args.single), *comparison.sim, "--prefill", args.prefill,
               "--contexts", ",".join(map(str, lengths)), "--rounds", args.rounds, "--cases", out]
    command += ["--reference", args.reference] if args.reference and first else ["--random", args.seed]
    if code := compare.run("mkgen", command):
        compare.ended(code)
    return json.loads(out.read_text())


def main(args, comparison, compare):
    """Measures, prints the table, and writes file and plot. compare is the module that reads the arguments."""
    positions = json.loads(comparison.config.read_text())["max_position_embeddings"]
    lengths = [int(n) for n in compare.fitting(args.contexts or LENGTHS, positions, 0, given=bool(args.contexts)).split(",")]
    worker = None
    if not args.no_transformers:
        worker = Worker([sys.executable, WORKER, "--config", comparison.config, "--seed", args.seed,
                         *(["--device", "cpu"] if comparison.sim else [])], compare.fail)
    passes, theirs, product = [], {}, []
    for turn in range(args.passes):
        passes.append(mkgen(args, comparison, compare, lengths, turn == 0))
        for n in lengths if worker else []:
            answer = worker.ask("prompt", n, args.rounds, EVERY)
            if n in theirs:
                answer["rounds_us"] = theirs[n]["rounds_us"] + answer["rounds_us"]
            theirs[n] = answer
        if worker and not comparison.sim:
            product.append(worker.ask("product", PRODUCT_TOKENS)["tflop_s"])
    if worker:
        worker.close()
    file = merge(passes)
    gated = file["gated"] and not comparison.sim
    if product:
        file["product_tflop_s"] = max(product)
    file = joined(file, theirs)
    if worker:
        file["transformers"] = worker.about
    mark = "passed" if gated else compare.UNGATED
    print(f"\n{args.model} on {file['gpu']}, one prompt, random weights of seed {args.seed}; medians of {args.passes} x "
          f"{compare.several(args.rounds, 'round')} by the host's clock" + ("; the executor's times are no speed" if comparison.sim else ""))
    table(file, mark)
    for c in file["cases"]:
        if not c.get("logits_apart", 0) <= CLOSE:
            compare.fail(f"transformers' logits behind {c['prompt']} tokens are {c['logits_apart']:.3g} standard deviations from mkgen's, want at most {CLOSE}")
    out = args.out
    if out is None and gated:
        day = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}"
        out = compare.free(compare.ROOT / "bench" / "results" / compare.short_name(file["gpu"]) / f"{day}-compare-prefill-{args.model}.json")
    out = out or pathlib.Path("out") / f"compare-prefill-{args.model}.json"
    compare.write(out, json.dumps(file, indent=2) + "\n")
    print(f"{'Record' if gated else compare.UNGATED + ': no record. Figures'} written to {out}", flush=True)
    if code := compare.run("plot", [args.mkgen, "plot", out, "-o", out.with_suffix(".svg")]):
        compare.ended(code)
