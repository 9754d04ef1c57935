"""Writes the goldens beside this script, from Hugging Face transformers on the CPU:

rope_golden.json    for every file in configs/: the inverse frequencies of its
                    rotary embedding, and its number of parameters
saved_by_v5/*.json  some of those configurations as transformers 5 saves them

    pip install torch transformers && python make_rope_golden.py

The committed goldens come from transformers 5.23.0 and torch 2.15.0 on x86-64.
"""

import json
import pathlib

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

HERE = pathlib.Path(__file__).parent
SAVED = ["llama3-8b", "llama2-7b", "odd-rope", "tiny"]


def case(path):
    config = LlamaConfig.from_json_file(path)
    freqs = LlamaRotaryEmbedding(config).inv_freq
    assert freqs.dtype == torch.float32
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    return {
        "config": path.name,
        "parameters": sum(p.numel() for p in model.parameters()),
        # The shortest decimals that give back the float32 values through float64.
        "inv_freq": freqs.tolist(),
    }


def main():
    paths = sorted((HERE / "configs").glob("*.json"))
    golden = {
        "transformers": transformers.__version__,
        "torch": torch.__version__.split("+")[0],
        "cases": [case(p) for p in paths],
    }
    (HERE / "rope_golden.json").write_text(json.dumps(golden, indent=1) + "\n")
    saved = HERE / "saved_by_v5"
    saved.mkdir(exist_ok=True)
    for name in SAVED:
        config = LlamaConfig.from_json_file(HERE / "configs" / f"{name}.json")
        (saved / f"{name}.json").write_text(config.to_json_string())


if __name__ == "__main__":
    main()
