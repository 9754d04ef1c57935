"""Measures a running mkgen serve by mkgen bench --serve, whose load comes from sglang's bench_serving: check.py URL KEY."""

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
    run = subprocess.run([os.environ["MKGEN"], "bench", "--serve", url, "--load-generator", sys.executable,
                          "--tokenizer", str(root / "models" / "bundled" / "tiny"), "--served-name", "tiny", "--concurrency", "1,4",
                          "--lengths", "16/8", "--requests", "2", "--cases", str(cases)], stdout=subprocess.PIPE, text=True)
    print(run.stdout, flush=True)
    assert run.returncode == 0
    got = json.loads(cases.read_text())["cases"]
assert [(c["concurrency"], c["input_tokens"], c["output_tokens"], c["requests"]) for c in got] == [(1, 16, 8, 2), (4, 16, 8, 8)]
assert all(0 < c["itl_ms"]["p50"] <= c["itl_ms"]["p99"] and c["ttft_ms"]["p50"] > 0 and c["tok_s"] > 0 for c in got)
print("ok sglang")
