"""Measures what a long prompt does to sequences that decode beside it, through an OpenAI-compatible server.

    mkgen serve --model llama3-8b --random 1 --device cuda --rows 16 --prefill 1024 --kv-tokens 16384
    python3 bench/beside.py http://127.0.0.1:8000/v1 --prompt 8192 --sequences 15 --tokens 256 -o beside.json

It measures the prompt alone, the sequences alone, and the prompt arriving when every sequence has a few tokens. Prompts
are lists of random token ids, new ones each time, so that no prefix is cached. Times are the client's, in milliseconds:
of a sequence the gap between two of its tokens, of a prompt the time to its first token. Only the standard library.
"""
import argparse
import http.client
import json
import random
import sys
import threading
import time
import urllib.parse

BEGUN = 8  # tokens that each sequence has when the prompt arrives


def stream(url, model, prompt, tokens, temperature, each):
    """Completes a prompt, and calls each(time, count) for every event with count tokens."""
    to = urllib.parse.urlparse(url)
    body = json.dumps({"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": temperature, "ignore_eos": True,
                       "stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}})
    link = http.client.HTTPConnection(to.hostname, to.port, timeout=120)
    link.request("POST", to.path + "/completions", body, {"Content-Type": "application/json"})
    answer, had = link.getresponse(), 0
    if answer.status != 200:
        raise SystemExit(f"{url}: {answer.status} {answer.read().decode()[:400]}, want 200")
    for line in answer:
        now = time.perf_counter()
        if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
            continue
        event = json.loads(line[6:])
        if "error" in event:
            raise SystemExit(f"{url}: {event['error']}")
        usage = event.get("usage")
        count = usage["completion_tokens"] - had if usage else 1
        if count > 0 and (usage or event["choices"]):
            had += count
            each(now, count)
    link.close()
    return had


class Load:
    """A server and what prompts are drawn from."""

    def __init__(self, args):
        self.args, self.draw = args, random.Random(args.seed)

    def prompt(self, n):
        return [self.draw.randrange(10, self.args.vocab) for _ in range(n)]

    def alone(self):
        """Seconds to the first token of a prompt."""
        begin, first = time.perf_counter(), []
        stream(self.args.url, self.args.model, self.prompt(self.args.prompt), 1, 0, lambda now, _: first.append(now))
        return first[0] - begin

    def decode(self, beside):
        """Runs the sequences, with beside a prompt among them: seconds from when each has BEGUN tokens to the end, of
        that to the prompt's first token, and the gaps between tokens in that time, in order."""
        a, lock, ready = self.args, threading.Lock(), threading.Event()
        times = [[] for _ in range(a.sequences)]
        failed = []

        def run(i, prompt):
            def each(now, count):
                with lock:
                    times[i].extend([now] * count)
                    if all(len(t) >= BEGUN for t in times):
                        ready.set()
            try:
                if (had := stream(a.url, a.model, prompt, BEGUN + a.tokens, a.temperature, each)) != BEGUN + a.tokens:
                    failed.append(f"{had} tokens, want {BEGUN + a.tokens}")
            except BaseException as e:  # in a thread
                failed.append(str(e))
                ready.set()
        all_ = [threading.Thread(target=run, args=(i, self.prompt(a.short))) for i in range(a.sequences)]
        for t in all_:
            t.start()
        ready.wait()
        begin, first = time.perf_counter(), None
        if beside:
            got = []
            stream(a.url, a.model, self.prompt(a.prompt), 1, 0, lambda now, _: got.append(now))
            first = got[0] - begin
        for t in all_:
            t.join()
        if failed:
            raise SystemExit(failed[0])
        gaps = [(y, y - x) for t in times for x, y in zip(t, t[1:]) if y > begin]
        end = max(t[-1] for t in times)
        if first is not None:
            end = max(end, begin + first)
            during = [g for at, g in gaps if at <= begin + first + 0.1]
        else:
            during = [g for _, g in gaps]
        return end - begin, first, sorted(during)


def share(values, q):
    return values[min(len(values) - 1, int(q * len(values)))]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("url", help="of the server's /v1")
    p.add_argument("--model", default="", help="name (default: the first that the server has)")
    p.add_argument("--prompt", type=int, default=8192, help="tokens of the prompt")
    p.add_argument("--short", type=int, default=64, help="tokens of the others' prompts")
    p.add_argument("--sequences", type=int, default=15, help="that decode")
    p.add_argument("--tokens", type=int, default=256, help="that each of them decodes")
    p.add_argument("--temperature", type=float, default=0, help="of the sequences; the prompt's first token is the likeliest one")
    p.add_argument("--vocab", type=int, default=128000, help="token ids that prompts are drawn from")
    p.add_argument("--rounds", type=int, default=3, help="of which the median counts; gaps are of all")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--note", default="", help="kept in the file, such as the server's flags")
    p.add_argument("-o", "--out", default="", help="JSON file")
    a = p.parse_args()
    if not a.model:
        to = urllib.parse.urlparse(a.url)
        link = http.client.HTTPConnection(to.hostname, to.port, timeout=60)
        link.request("GET", to.path + "/models")
        a.model = json.load(link.getresponse())["data"][0]["id"]
    load = Load(a)
    load.alone()  # warms up
    alone = sorted(load.alone() for _ in range(a.rounds))[a.rounds // 2]
    decode, idle = zip(*[(d, g) for d, _, g in (load.decode(False) for _ in range(a.rounds))])
    together, firsts, busy = zip(*(load.decode(True) for _ in range(a.rounds)))
    decode, idle = sorted(decode)[a.rounds // 2], sorted(sum(idle, []))
    total, first, busy = sorted(together)[a.rounds // 2], sorted(firsts)[a.rounds // 2], sorted(sum(busy, []))
    out = {"model": a.model, "note": a.note, "prompt_tokens": a.prompt, "sequences": a.sequences, "tokens": a.tokens, "temperature": a.temperature,
           "rounds": a.rounds, "prompt_alone_ms": 1e3 * alone, "decode_alone_ms": 1e3 * decode,
           "together_ms": 1e3 * total, "over_sum": total / (alone + decode), "first_token_beside_ms": 1e3 * first,
           "gap_alone_ms": {"p50": 1e3 * share(idle, .5), "p99": 1e3 * share(idle, .99), "max": 1e3 * idle[-1]},
           "gap_beside_ms": {"p50": 1e3 * share(busy, .5), "p99": 1e3 * share(busy, .99), "max": 1e3 * busy[-1],
                             "over_20": sum(g > 0.02 for g in busy), "of": len(busy)}}
    print(f"prompt of {a.prompt} alone {out['prompt_alone_ms']:.1f} ms; {a.sequences} x {a.tokens} tokens alone "
          f"{out['decode_alone_ms']:.1f} ms; together {out['together_ms']:.1f} ms, {out['over_sum']:.3f} of the sum; "
          f"first token beside {out['first_token_beside_ms']:.1f} ms")
    for name in "gap_alone_ms", "gap_beside_ms":
        print(name, {k: round(v, 2) for k, v in out[name].items()})
    if a.out:
        with open(a.out, "w") as f:
            json.dump(out, f, indent=2)
            f.write("\n")


if __name__ == "__main__":
    sys.exit(main())
