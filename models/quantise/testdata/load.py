"""Loads checkpoints that mkgen quantize wrote with transformers and compressed-tensors, and compares every weight bit by bit.

    pip install torch==2.15.0 transformers==5.23.0 compressed-tensors==0.20.0 accelerate==1.15.0
    go build -o mkgen ./cmd/mkgen && python models/quantise/testdata/load.py ./mkgen models/bundled/tiny i4g32 i8 e4m3

For each format it calls `mkgen quantize --report`, loads what that wrote with AutoModelForCausalLM, decompressed, and compares the
SHA-256 of each weight's bytes with the report's. Weights that are not quantised must be those of the source. Then it loads the
checkpoint as it is, compressed, and wants the same logits as those of the decompressed weights.
"""

import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM, CompressedTensorsConfig


def digest(weight):
    return hashlib.sha256(weight.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


def check(mkgen, source, name, out):
    subprocess.run([mkgen, "quantize", "--checkpoint", source, "--format", name, "--out", out / "q", "--report", out / "r.json"],
                   check=True, stdout=subprocess.DEVNULL)
    report = json.loads((out / "r.json").read_text())
    want = {t["tensor"]: t["weights_sha256"] for t in report["tensors"]}
    before = AutoModelForCausalLM.from_pretrained(source, dtype="auto").state_dict()
    model = AutoModelForCausalLM.from_pretrained(out / "q", dtype="auto", quantization_config=CompressedTensorsConfig(run_compressed=False))
    after = model.state_dict()
    missing = set(want) - set(after)
    assert not missing, missing
    for tensor, weight in after.items():
        if tensor in want:
            assert digest(weight) == want[tensor], f"{name}: {tensor} is another"
            error = (weight.double() - before[tensor].double()).square().sum() / before[tensor].double().square().sum()
            told = next(t["relative_squared_error"] for t in report["tensors"] if t["tensor"] == tensor)
            assert abs(error.item() - told) <= 1e-9, f"{name}: {tensor}: an error of {error.item()}, told {told}"
        elif tensor in before:
            assert torch.equal(weight, before[tensor]), f"{name}: {tensor} changed"
    ids = torch.arange(3, 35)[None]
    packed = AutoModelForCausalLM.from_pretrained(out / "q", dtype="auto")
    with torch.no_grad():
        a, b = model(ids).logits.float(), packed(ids).logits.float()
    assert (a - b).abs().max() <= 1e-2 * a.abs().max(), f"{name}: logits of the compressed model differ by {(a - b).abs().max()}"
    print(f"{name}: {len(want)} matrices of {len(after)} tensors equal, logits within {(a - b).abs().max().item():.2g}")


def main():
    mkgen, source, *formats = sys.argv[1:]
    for name in formats:
        with tempfile.TemporaryDirectory() as directory:
            check(mkgen, source, name, pathlib.Path(directory))


main()
