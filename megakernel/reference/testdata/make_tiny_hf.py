"""Writes tiny_hf.json and tiny_mha_hf.json: logits of Hugging Face transformers in float32 on the CPU, on synthetic weights.

    python make_tiny_hf.py        # needs torch and transformers 5; made with the versions that the files name

Each token goes in by itself with the KV cache, as in decoding, and once more all at once; the two must agree.
"""

import copy
import json
import pathlib
import sys

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "tests" / "gpu"))
import synth  # noqa: E402

COMMON = dict(hidden_size=96, intermediate_size=352, num_hidden_layers=2, num_attention_heads=6, head_dim=32, vocab_size=320,
              max_position_embeddings=512, rms_norm_eps=1e-5, rope_theta=10000.0, bos_token_id=0, eos_token_id=[1, 2])
CASES = {
    "tiny_hf.json": dict(COMMON, num_key_value_heads=2, tie_word_embeddings=True, rope_scaling=dict(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)),
    "tiny_mha_hf.json": dict(COMMON, num_key_value_heads=6, tie_word_embeddings=False),
}
SEED, LENGTH, KEPT = 1, 24, 4


def build(settings):
    config = LlamaConfig(**copy.deepcopy(settings), attn_implementation="eager")  # it writes into the dicts that it gets
    model = LlamaForCausalLM(config).float().eval()
    params = dict(model.named_parameters())
    tensors = synth.of_config(config)
    assert set(params) == {name for name, _, _ in tensors}, set(params) ^ {name for name, _, _ in tensors}
    with torch.no_grad():
        for name, shape, recipe in tensors:
            assert tuple(params[name].shape) == shape, name
            synth.fill(params[name], SEED, name, recipe)
    return config, model, synth.sample_hash(tensors, params.__getitem__)


def golden(settings):
    config, model, weights_hash = build(settings)
    tokens = synth.tokens(SEED, 0, LENGTH, config.vocab_size)
    with torch.no_grad():
        whole = model(tokens[None], use_cache=False).logits[0]
        cache, rows = None, []
        for token in tokens:
            out = model(token.view(1, 1), past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            rows.append(out.logits[0, 0])
    decoded = torch.stack(rows)
    assert (decoded - whole).abs().max() < 1e-4, (decoded - whole).abs().max()
    inv_freq = model.model.rotary_emb.inv_freq
    return {
        "made_by": f"torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}, float32, eager, CPU",
        "config": settings, "seed": SEED, "weights_hash": weights_hash, "tokens": tokens.tolist(),
        "inv_freq_bits": inv_freq.float().view(torch.int32).tolist(),
        "first_position": LENGTH - KEPT,
        "logits": [[float(f"{x:.9g}") for x in row] for row in decoded[-KEPT:].tolist()],
    }


if __name__ == "__main__":
    torch.manual_seed(0)
    for file, settings in CASES.items():
        text = json.dumps(golden(settings))
        (HERE / file).write_text(text.replace(', "', ',\n "').replace("], [", "],\n  [") + "\n")
