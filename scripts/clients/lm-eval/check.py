"""Runs lm-eval's local-completions against a running mkgen serve: check.py URL KEY.

The log-likelihoods must be those of transformers (serve/testdata/loglikelihoods.json), with the tokenizer that the server offers.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

url, key = sys.argv[1:]
here = Path(__file__).resolve().parent
golden = json.loads((here.parents[2] / "serve" / "testdata" / "loglikelihoods.json").read_text())["cases"]

import requests  # noqa: E402: lm-eval's own


def text(ids):
    """Returns the text of token ids; special tokens are spelled."""
    answer = requests.post(url.removesuffix("/v1") + "/detokenize", json={"tokens": ids}, headers={"Authorization": f"Bearer {key}"}, timeout=60)
    return answer.json()["prompt"]


docs, want = [], []
for case in golden:
    ids = case["ids"]
    for at in range(1, len(ids), 4):
        context, continuation = text(ids[:at]), text(ids[at:])
        if "\ufffd" in context + continuation or continuation.startswith(" ") is False and at > 1:
            continue  # lm-eval tokenises both together: the border must be one of the tokens
        docs.append({"context": context, "continuation": continuation})
        want.append((sum(case["logprobs"][at - 1:]), len(ids) - at, all(top[0] == ids[i + 1] for i, top in enumerate(case["top"]) if i >= at - 1)))
assert len(docs) > 8, "too few texts have a border between words"

with tempfile.TemporaryDirectory() as folder:
    folder = Path(folder)
    (folder / "data.json").write_text("\n".join(json.dumps(doc) for doc in docs))
    (folder / "task.yaml").write_text((here / "task.yaml").read_text().replace("DATA", str(folder / "data.json")))
    environment = os.environ | {"OPENAI_API_KEY": key, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hf")}
    run = subprocess.run([sys.executable, "-m", "lm_eval", "run", "--model", "local-completions",
                          "--model_args", f"model=tiny,base_url={url}/completions,auth_token={key},num_concurrent=3,max_length=256",
                          "--tasks", "mkgen_likelihoods", "--include_path", str(folder), "--output_path", str(folder / "out"), "--log_samples"],
                         env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    [samples] = folder.glob("out/**/samples_*.jsonl")
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
assert len(lines) == len(docs)
for line in lines:
    likelihood, tokens, greedy = want[line["doc_id"]]
    got, got_greedy = line["resps"][0][0]
    got = float(got)
    assert abs(got - likelihood) < 0.06 * tokens + 0.01 * abs(likelihood), (line, likelihood)
    assert (str(got_greedy) == "True") == greedy, (line, greedy)
print(f"ok {len(lines)} log-likelihoods")
