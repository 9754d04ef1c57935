"""Times a running mkgen serve by how tokens are chosen: drawn, with log-probabilities, and by a JSON schema, each beside greedy.

    python choices_speed.py URL [--tokens 512] [--at-a-time 1,16] [--rounds 3] [-o FILE]

Each measurement is of --at-a-time requests at once, not streamed, of answers of just --tokens tokens: a request's time is that of its prompt, of the steps, of what the host does
beside them, and of the answer's way. Choices are taken in turns, and the median of each counts. It prints tokens/s and the part of greedy's, and ends with 1 where an answer has
another length. JSON is an object of 200 fields, so that no answer by the schema ends early. Needs Python alone.
"""

import argparse
import concurrent.futures
import json
import pathlib
import statistics
import sys
import time
import urllib.request

SAMPLED = {"temperature": 0.8, "top_p": 0.95, "top_k": 50}
KINDS = [{"type": "string", "maxLength": 12}, {"type": "integer", "minimum": 0, "maximum": 120}, {"enum": ["dog", "cat", "bird"]}, {"type": "boolean"}]
SCHEMA = {"type": "object", "properties": {f"field {i}": KINDS[i % len(KINDS)] for i in range(200)}, "additionalProperties": False}
SCHEMA["required"] = list(SCHEMA["properties"])
CHOICES = {
    "greedy": {"temperature": 0, "ignore_eos": True},
    "sampled": SAMPLED | {"ignore_eos": True},
    "with 20 log-probabilities": SAMPLED | {"ignore_eos": True, "logprobs": 20},
    "with a JSON schema": SAMPLED | {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}},
}


def post(url, body):
    data = json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url + "/completions", data, {"Content-Type": "application/json"}), timeout=300) as answer:
        return answer.read()


def measure(url, choice, at_a_time, tokens, turn):
    """Returns seconds until the last of the answers is there."""
    bodies = [{"prompt": f"request {turn} {i} once more", "max_tokens": tokens, "seed": i} | CHOICES[choice] for i in range(at_a_time)]
    with concurrent.futures.ThreadPoolExecutor(at_a_time) as pool:
        begin = time.monotonic()
        answers = list(pool.map(lambda body: post(url, body), bodies))
        took = time.monotonic() - begin
    for answer in map(json.loads, answers):
        if answer["usage"]["completion_tokens"] != tokens:
            sys.exit(f"choices_speed: {choice}: an answer of {answer['usage']['completion_tokens']} tokens, want {tokens}")
    return took


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("url", help="such as http://127.0.0.1:8000/v1")
parser.add_argument("--tokens", type=int, default=512)
parser.add_argument("--at-a-time", default="1,16")
parser.add_argument("--rounds", type=int, default=3)
parser.add_argument("-o", type=pathlib.Path)
args = parser.parse_args()
results = []
for at_a_time in map(int, args.at_a_time.split(",")):
    took = {choice: [] for choice in CHOICES}
    for turn in range(args.rounds + 1):
        for choice in CHOICES:
            seconds = measure(args.url, choice, at_a_time, args.tokens if turn else min(32, args.tokens), f"{at_a_time} {turn}")
            took[choice] += [seconds] if turn else []
    for choice, all_of_them in took.items():
        rate = at_a_time * args.tokens / statistics.median(all_of_them)
        of_greedy = statistics.median(took["greedy"]) / statistics.median(all_of_them)
        results.append({"at_a_time": at_a_time, "tokens": args.tokens, "choice": choice, "seconds": all_of_them, "tok_s": rate, "of_greedy": of_greedy})
        print(f"{at_a_time:3} at a time, {choice:26} {rate:9.1f} tok/s  {1e3 * at_a_time / rate:8.3f} ms a step  {100 * of_greedy:6.1f} % of greedy", flush=True)
if args.o:
    args.o.write_text(json.dumps({"server": args.url, "cases": results}, indent=1) + "\n")
