"""Loads a running mkgen serve by guidellm: check.py URL KEY."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

url, key = sys.argv[1:]
root = Path(__file__).resolve().parents[3]
requests, tokens = 8, 8
with tempfile.TemporaryDirectory() as folder:
    report = Path(folder) / "report.json"
    run = subprocess.run(
        [Path(sys.executable).with_name("guidellm"), "benchmark", "run", "--target", url.removesuffix("/v1"), "--rate-type", "concurrent",
         "--rate", "4", "--max-requests", str(requests), "--processor", root / "models" / "bundled" / "tiny",
         "--data", f"prompt_tokens=16,output_tokens={tokens}", "--output-path", report, "--disable-progress"],
        env=os.environ | {"GUIDELLM__OPENAI__API_KEY": key, "HF_HUB_OFFLINE": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert run.returncode == 0, run.stdout
    (got,) = json.loads(report.read_text())["benchmarks"]
assert got["request_totals"] == {"successful": requests, "errored": 0, "incomplete": 0, "total": requests}, got["request_totals"]
answered = got["metrics"]["output_token_count"]["successful"]
assert answered["min"] == answered["max"] == tokens and answered["total_sum"] == requests * tokens, answered
between = got["metrics"]["inter_token_latency_ms"]["successful"]
first = got["metrics"]["time_to_first_token_ms"]["successful"]
assert between["count"] >= requests and between["median"] > 0 and first["median"] > 0, (between, first)
print(f"ok {requests} requests of {tokens} tokens")
