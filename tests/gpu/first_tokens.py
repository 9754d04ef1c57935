"""Times single requests of one or two tokens at servers, in turns: what a first token takes by how it is chosen.

    python first_tokens.py URL... [--tokens 32,1024] [--times 21]

Prompts are random token ids, each asked once, so that no cache has them. Prints the median of each server, and its least, in ms. Needs Python alone.
"""

import argparse
import json
import random
import statistics
import time
import urllib.request

SAMPLED = {"temperature": 0.8, "top_p": 0.95, "top_k": 50}
CHOICES = {
    "greedy": {"temperature": 0, "ignore_eos": True},
    "sampled": SAMPLED | {"ignore_eos": True},
    "by temperature alone": {"temperature": 0.8, "ignore_eos": True},
    "with 20 log-probabilities": SAMPLED | {"ignore_eos": True, "logprobs": 20},
    "as JSON": SAMPLED | {"response_format": {"type": "json_object"}},
}


def seconds(url, body):
    """Returns how long a request took, the whole answer read."""
    request = urllib.request.Request(url + "/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    begin = time.monotonic()
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()
    return time.monotonic() - begin


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("urls", nargs="+", help="such as http://127.0.0.1:8000/v1")
parser.add_argument("--tokens", default="32,1024", help="of the prompts")
parser.add_argument("--times", type=int, default=21)
parser.add_argument("--vocab", type=int, default=100000, help="prompts have ids below this")
args = parser.parse_args()
ids = random.Random(3)
for length in map(int, args.tokens.split(",")):
    for choice, fields in CHOICES.items():
        for answer in 1, 2:
            took = [[] for _ in args.urls]
            for turn in range(args.times + 1):
                for url, of in zip(args.urls, took):
                    prompt = [ids.randrange(args.vocab) for _ in range(length)]
                    one = seconds(url, {"prompt": prompt, "max_tokens": answer, "seed": turn} | fields)
                    of += [1e3 * one] if turn else []
            print(f"{length:5} tokens, {choice:25} {answer} of an answer: " + ", ".join(f"{statistics.median(t):6.2f} ({min(t):6.2f}) ms" for t in took), flush=True)
