"""Asks a running mkgen serve of the bundled model, and compares with what another one said: a server on a GPU with one on the executor.

    python answers.py URL --write FILE      on the executor: mkgen serve --model tiny --rows 4 --pin-split 32
    python answers.py URL --against FILE    on a GPU, with the same flags

Asks for greedy and drawn texts, penalties, log-probabilities of answers and prompts, JSON of any object, by a schema, drawn, with log-probabilities, and streamed, each alone
and then all at once. JSON that is to end must parse and fit. With --against, texts are equal but where two
tokens were nearly equal: at least --same of them; log-probabilities of equal tokens differ by at most 0.06 and a hundredth of theirs. What came all at once is what came alone, to the
bit, unless --free says that the server is not pinned.
Prints a line a request and ends with 1 where something is wrong. Needs Python alone.
"""

import argparse
import concurrent.futures
import json
import pathlib
import sys
import time
import urllib.request

NEAR, PART = 0.06, 0.01  # a log-probability on a GPU and on the executor: other sums and exponentials, the larger the less probable
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 30},
                                           "friend": {"enum": ["dog", "cat", None]}}, "required": ["name", "age", "friend"], "additionalProperties": False}


def requests():
    """Yields names and bodies of completions."""
    prompts = ["Once upon a time", "The dog", "In the forest there was a king", "She said: \"Come here", "One day the old man"]
    sampled = {"temperature": 0.8, "top_p": 0.95, "top_k": 50}
    schema = {"response_format": {"type": "json_schema", "json_schema": {"name": "pet", "schema": SCHEMA}}}
    for i, prompt in enumerate(prompts):
        yield f"greedy {i}", {"prompt": prompt, "temperature": 0, "max_tokens": 40, "ignore_eos": True}
        yield f"drawn {i}", {"prompt": prompt, "seed": i, "max_tokens": 40, "ignore_eos": True} | sampled
        yield f"penalties {i}", {"prompt": prompt, "seed": i, "max_tokens": 40, "frequency_penalty": 0.5, "presence_penalty": 0.3, "repetition_penalty": 1.1,
                                 "logit_bias": {"65": 2}, "min_tokens": 4} | sampled
        yield f"log-probabilities {i}", {"prompt": prompt, "seed": i, "max_tokens": 20, "logprobs": 20, "ignore_eos": True} | sampled
        yield f"echo {i}", {"prompt": prompt, "temperature": 0, "max_tokens": 1, "logprobs": 3, "echo": True}
        yield f"object {i}", {"prompt": prompt, "seed": i, "max_tokens": 60, "response_format": {"type": "json_object"}} | sampled
        yield f"schema {i}", {"prompt": prompt, "seed": i, "max_tokens": 120} | sampled | schema
        yield f"greedy schema {i}", {"prompt": prompt, "temperature": 0, "max_tokens": 120} | schema
        yield f"schema with log-probabilities {i}", {"prompt": prompt, "seed": i, "max_tokens": 120, "logprobs": 2} | sampled | schema
    yield "min_p", {"prompt": prompts[0], "seed": 9, "temperature": 1.2, "min_p": 0.05, "max_tokens": 40, "ignore_eos": True}


def post(url, body):
    """Returns the answer's text, why it ended, and its log-probabilities."""
    data = json.dumps(body | {"stream": False}).encode()
    with urllib.request.urlopen(urllib.request.Request(url + "/completions", data, {"Content-Type": "application/json"}), timeout=120) as answer:
        choice = json.load(answer)["choices"][0]
    scores = choice.get("logprobs") or {}
    return {"text": choice["text"], "finish": choice["finish_reason"], "tokens": scores.get("tokens"), "logprobs": scores.get("token_logprobs")}


def fits(name, answer):
    """Says what is wrong with an answer that must be JSON; empty: nothing."""
    if ("schema" not in name and "object" not in name) or answer["finish"] == "length":
        return ""
    try:
        value = json.loads(answer["text"])
    except ValueError as error:
        return f"no JSON: {error}: {answer['text']!r}"
    if not isinstance(value, dict):
        return f"no object: {answer['text']!r}"
    if "schema" in name and not (list(value) == ["name", "age", "friend"] and isinstance(value["name"], str) and len(value["name"]) <= 8 and type(value["age"]) is int
                                 and 0 <= value["age"] <= 30 and value["friend"] in ("dog", "cat", None)):
        return f"it does not fit the schema: {answer['text']!r}"
    return ""


def differs(name, answer, other):
    """Returns whether texts are equal, and what is wrong beside that."""
    if answer["logprobs"] is None:
        return answer["text"] != other["text"], ""
    worst = 0
    for token, theirs, a, b in zip(answer["tokens"], other["tokens"], answer["logprobs"], other["logprobs"]):
        if token != theirs:
            break
        if (a is None) != (b is None):
            return True, f"a log-probability is {a}, there {b}"
        worst = max(worst, 0 if a is None else abs(a - b) / (NEAR + PART * abs(b)))
    return answer["text"] != other["text"], f"log-probabilities differ by {worst:.3f} times what they may" if not worst <= 1 else ""


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("url", help="such as http://127.0.0.1:8000/v1")
parser.add_argument("--write", type=pathlib.Path)
parser.add_argument("--against", type=pathlib.Path)
parser.add_argument("--same", type=float, default=0.8, help="part of the texts that must be equal")
parser.add_argument("--free", action="store_true", help="the server is not pinned: answers all at once may be others")
args = parser.parse_args()
asked, answers, wrong = dict(requests()), {}, 0
others = json.loads(args.against.read_text()) if args.against else {}
equal = []
for name, body in asked.items():
    begin = time.monotonic()
    answers[name] = post(args.url, body)
    took, notes = time.monotonic() - begin, [fits(name, answers[name])]
    if others:
        other, note = differs(name, answers[name], others[name])
        equal.append(not other)
        notes.append(note)
        if other:
            print(f"   {name}: {answers[name]['text']!r}, there {others[name]['text']!r}")
    notes = [n for n in notes if n]
    wrong += len(notes)
    print("wrong" if notes else "ok", name, f"{1e3 * took:.1f} ms", answers[name]["finish"], *notes, flush=True)
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    for name, answer in zip(asked, pool.map(lambda body: post(args.url, body), asked.values())):
        if answer != answers[name] and not args.free:
            wrong += 1
            print(f"wrong {name}: all at once it is {answer}, alone {answers[name]}")
if args.write:
    args.write.write_text(json.dumps(answers, indent=1) + "\n")
ended = sum(a["finish"] == "stop" for n, a in answers.items() if "schema" in n)
if not ended:
    wrong += 1
    print("wrong: no answer by a schema came to its end")
if equal and sum(equal) < args.same * len(equal):
    wrong += 1
print(f"{len(asked)} requests, each alone and all at once; {ended} answers by a schema came to their end; " + (f"{sum(equal)} of {len(equal)} texts equal; " if equal else "") + f"{wrong} wrong")
sys.exit(wrong > 0)
