"""Loads checkpoints that mkgen quantize wrote with transformers and compressed-tensors, and compares every weight bit by bit.

    pip install torch==2.15.0 transformers==5.23.0 compressed-tensors==0.20.0 accelerate==1.15.0
    go build -o mkgen ./cmd/mkgen
    python models/quantise/testdata/load.py ./mkgen models/bundled/tiny i4g32 i8 e4m3
    python models/quantise/testdata/load.py ./mkgen models/bundled/small i4g128 i4g64 i4g32 i8 e4m3
    python models/quantise/testdata/load.py --head ./mkgen models/bundled/small i4g128 i4g64 i4g32 i8 e4m3

For each format it calls `mkgen quantize --report`, loads what that wrote with AutoModelForCausalLM, decompressed, and compares the
SHA-256 of each weight's bytes with the report's. Weights that are not quantised must be those of the source. Then it loads the
checkpoint as it is, compressed, and wants the same logits as those of the decompressed weights. With --head the LM head is rounded,
too, which takes a model whose embeddings are not tied. load.txt beside this script is what the commands printed.
"""

import hashlib
import json
import pathlib
import platform
import subprocess
import sys
import tempfile
import warnings
from importlib.metadata import version

import torch
import transformers
from transformers import AutoModelForCausalLM, CompressedTensorsConfig

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
warnings.filterwarnings("ignore", message="You passed `quantization_config`")


def digest(weight):
    return hashlib.sha256(weight.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


def check(mkgen, source, name, out, head):
    subprocess.run([mkgen, "quantize", "--checkpoint", source, "--format", name, "--out", out / "q", "--report", out / "r.json"] + head,
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    report = json.loads((out / "r.json").read_text())
    want = {t["tensor"]: t["weights_sha256"] for t in report["tensors"]}
    before = AutoModelForCausalLM.from_pretrained(source, dtype="auto").state_dict()
    model = AutoModelForCausalLM.from_pretrained(out / "q", dtype="auto", quantization_config=CompressedTensorsConfig(run_compressed=False))
    after = model.state_dict()
    worst = 0.0
    missing = set(want) - set(after)
    assert not missing, missing
    assert ("lm_head.weight" in want) == bool(head), f"{name}: the LM head is among the quantised, or not"
    for tensor, weight in after.items():
        if tensor in want:
            assert digest(weight) == want[tensor], f"{name}: {tensor} is another"
            error = (weight.double() - before[tensor].double()).square().sum() / before[tensor].double().square().sum()
            told = next(t["relative_squared_error"] for t in report["tensors"] if t["tensor"] == tensor)
            worst = max(worst, told)
            assert abs(error.item() - told) <= 1e-9, f"{name}: {tensor}: an error of {error.item()}, told {told}"
        elif tensor in before:
            assert torch.equal(weight, before[tensor]), f"{name}: {tensor} changed"
    ids = torch.arange(3, 35)[None]
    packed = AutoModelForCausalLM.from_pretrained(out / "q", dtype="auto")
    with torch.no_grad():
        a, b = model(ids).logits.float(), packed(ids).logits.float()
    assert (a - b).abs().max() <= 1e-2 * a.abs().max(), f"{name}: logits of the compressed model differ by {(a - b).abs().max()}"
    kept = sum(tensor in before and tensor not in want for tensor in after)
    print(f"{name}: {len(want)} matrices equal, {kept} other tensors as they were; worst squared error {worst:.6f} of the weights'; "
          f"logits up to {a.abs().max():.4g}, compressed within {(a - b).abs().max().item():.2g}", flush=True)


def main():
    arguments = sys.argv[1:]
    head = [argument for argument in arguments if argument == "--head"]
    mkgen, source, *formats = [argument for argument in arguments if argument != "--head"]
    packages = ["torch", "transformers", "compressed-tensors", "accelerate", "safetensors"]
    print(f"python {platform.python_version()}", *(f"{package} {version(package)}" for package in packages), sep=", ")
    print(" ".join([*head, source]))
    for name in formats:
        with tempfile.TemporaryDirectory() as directory:
            check(mkgen, source, name, pathlib.Path(directory), head)


main()
