"""Measures a running mkgen serve by mkgen bench --serve, whose load comes from aiperf: check.py URL KEY. It takes 1.2 GB of packages, so CI leaves it out."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

url, key = sys.argv[1:]
root = Path(__file__).resolve().parents[3]
with tempfile.TemporaryDirectory() as folder:
    cases = Path(folder) / "cases.json"
    run = subprocess.run([os.environ["MKGEN"], "bench", "--serve", url, "--load-generator", str(Path(sys.executable).with_name("aiperf")),
                          "--tokenizer", str(root / "models" / "bundled" / "tiny"), "--served-name", "tiny", "--concurrency", "1,4",
                          "--lengths", "16/8,48/16", "--requests", "2", "--cases", str(cases)], env=os.environ,
                         stdout=subprocess.PIPE, text=True)
    print(run.stdout, flush=True)
    assert run.returncode == 0
    got = json.loads(cases.read_text())["cases"]
assert [(c["concurrency"], c["input_tokens"], c["output_tokens"]) for c in got] == [(1, 16, 8), (4, 16, 8), (1, 48, 16), (4, 48, 16)]
assert all(0 < c["itl_ms"]["p50"] <= c["itl_ms"]["p99"] and c["ttft_ms"]["p50"] > 0 and c["tok_s"] > 0 for c in got)
print("ok aiperf")
