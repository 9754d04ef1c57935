"""Writes tale.json beside this script: the perplexity of tale.txt by the bundled models, in the formats that mkgen quantize writes.

    pip install torch==2.15.0 transformers==5.23.0 compressed-tensors==0.20.0 accelerate==1.15.0
    go build -o mkgen ./cmd/mkgen && python lab/perplexity/testdata/make_tale.py ./mkgen

transformers and compressed-tensors read the weights; transformers computes with them in float64, on the CPU.
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, CompressedTensorsConfig, LlamaForCausalLM

HERE = pathlib.Path(__file__).parent
BUNDLED = HERE / "../../../models/bundled"
FORMATS = {"tiny": ["i8", "e4m3", "i4g32"], "small": ["i8", "e4m3", "i4g32", "i4g64", "i4g128"]}
WINDOW = 512


def in_float64(folder, quantised):
    """The model of a folder with its weights, dequantised where they are quantised, as float64."""
    how = {"quantization_config": CompressedTensorsConfig(run_compressed=False)} if quantised else {}
    read = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", attn_implementation="eager", **how)
    model = LlamaForCausalLM(read.config).double().eval()
    model.load_state_dict({name: w.double() for name, w in read.state_dict().items()})
    return model


def perplexity(model, bos, ids):
    nats = 0.0
    with torch.no_grad():
        for i in range(0, len(ids), WINDOW - 1):
            window = [bos] + ids[i:i + WINDOW - 1]
            logits = model(torch.tensor([window])).logits[0, :-1].double()
            nats += torch.nn.functional.cross_entropy(logits, torch.tensor(window[1:]), reduction="sum").item()
    return math.exp(nats / len(ids))


def main(mkgen):
    text, golden = (HERE / "tale.txt").read_text(), {}
    for name, formats in FORMATS.items():
        tokenizer = AutoTokenizer.from_pretrained(BUNDLED / name)
        ids, bos = tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.bos_token_id
        golden[name] = {"tokens": len(ids), "perplexity": {"bf16": perplexity(in_float64(BUNDLED / name, False), bos, ids)}}
        for format in formats:
            with tempfile.TemporaryDirectory() as out:
                subprocess.run([mkgen, "quantize", "--checkpoint", BUNDLED / name, "--format", format, "--out", out], check=True)
                golden[name]["perplexity"][format] = perplexity(in_float64(out, True), bos, ids)
    (HERE / "tale.json").write_text(json.dumps(golden, indent=1) + "\n")


main(*sys.argv[1:])
