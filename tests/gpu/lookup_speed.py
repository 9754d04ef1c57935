"""Times prompt lookup: greedy answers of a server with --prompt-lookup and of one without, one at a time.

    python lookup_speed.py URL_WITH URL_WITHOUT [--tokens 512] [--prompts 24 | --of FILE] [--rounds 3] [-o FILE]

Both are mkgen serve of the same model and rows. Prompts are random words, some of them many times over, or those that repeating.py wrote. Each is asked for in turns, of both servers, and
the medians count. Beside each gain stands which part of the answer's tokens were guessed right, by the server's own metrics. It prints the worst and the median gain of answers of which at
least half was guessed right, and of those of which less than a twentieth was. Needs Python alone.
"""

import argparse
import json
import pathlib
import random
import statistics
import sys
import time
import urllib.request

WORDS = "the dog ran to park and found a bone while old king of forest said come here my child once more".split()


def get(url, body=None):
    data = json.dumps(body).encode() if body else None
    with urllib.request.urlopen(urllib.request.Request(url, data, {"Content-Type": "application/json"}), timeout=300) as answer:
        return answer.read().decode()


def accepted(url):
    """Returns the tokens that were guessed right so far."""
    [line] = [line for line in get(url.removesuffix("/v1") + "/metrics").splitlines() if line.startswith("mkgen_accepted_tokens_total ")]
    return float(line.split()[1])


def ask(url, prompt, tokens):
    begin = time.monotonic()
    answer = json.loads(get(url + "/completions", {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}))
    took = time.monotonic() - begin
    if answer["usage"]["completion_tokens"] != tokens:
        sys.exit(f"lookup_speed: an answer of {answer['usage']['completion_tokens']} tokens, want {tokens}")
    return took


def prompts(count):
    """Yields names and texts of random words; every second one is a sentence of them many times over."""
    r = random.Random(1)
    for i in range(count):
        words = [r.choice(WORDS) for _ in range(12 if i % 2 else 60)]
        yield f"prompt {i}", " ".join(words) if i % 2 == 0 else (" ".join(words) + ". ") * 6


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("looks", help="such as http://127.0.0.1:8000/v1")
parser.add_argument("plain", help="such as http://127.0.0.1:8001/v1")
parser.add_argument("--tokens", type=int, default=512)
parser.add_argument("--prompts", type=int, default=24)
parser.add_argument("--of", type=pathlib.Path, help="prompts.json of repeating.py")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("-o", type=pathlib.Path)
args = parser.parse_args()
cases = []
asked = [(p["name"], p["ids"]) for p in json.loads(args.of.read_text())] if args.of else prompts(args.prompts)
for name, prompt in asked:
    took, right = {args.looks: [], args.plain: []}, 0
    for turn in range(args.rounds + 1):  # the first warms up, and leaves the prompt in the caches of both
        for url, times in took.items():
            before = accepted(args.looks)
            seconds = ask(url, prompt, args.tokens)
            if turn:
                times.append(seconds)
            if url == args.looks:
                right = (accepted(args.looks) - before) / args.tokens
    gain = statistics.median(took[args.plain]) / statistics.median(took[args.looks])
    cases.append({"prompt": name, "tokens": args.tokens, "guessed_right": right, "gain": gain, "seconds_with": took[args.looks], "seconds_without": took[args.plain]})
    print(f"{name:26} {100 * right:5.1f} % guessed right, {gain:6.3f} x", flush=True)
for name, of in (("at least half guessed right", [c["gain"] for c in cases if c["guessed_right"] >= 0.5]), ("less than a twentieth", [c["gain"] for c in cases if c["guessed_right"] < 0.05])):
    print(f"{name}: " + (f"{len(of)} answers, worst {min(of):.3f} x, median {statistics.median(of):.3f} x" if of else "none"))
if args.o:
    args.o.write_text(json.dumps({"cases": cases}, indent=1) + "\n")
