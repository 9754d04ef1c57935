"""Writes testdata/ beside this script: tiny random models of every family as Hugging Face transformers computes them.

    pip install torch==2.15.0 transformers==5.23.0
    python tests/families/make.py [CASE ...]
    python tests/families/make.py --config config.json --out golden.json    # of a file of your own

A case is a config.json as models of the family are published, cut down. Weights come from the generator of package models/synth
(tests/gpu/synth.py), so a golden holds names, shapes and recipes instead of them. Each golden, testdata/<case>.json, has

    published   the config.json given to transformers
    saved       what transformers saves of it
    tensors     [name, shape, "gain"] or [name, shape, mantissa, exponent] of every parameter
    tokens      the ids of one sequence
    logits      {position: logits after the token there}, from one causal forward over all tokens in float64
"""

import json
import pathlib
import sys

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "gpu"))
import synth  # noqa: E402

SEED = 7
SIZES = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 96, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.02,
    "use_cache": True, "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "attention_dropout": 0.0,
}


def of(model_type, architecture, **fields):
    return {"model_type": model_type, "architectures": [architecture], **SIZES, "rms_norm_eps": 1e-5, "hidden_act": "silu", **fields}


def llama(**fields):
    return of("llama", "LlamaForCausalLM", **fields)


def gemma3(**fields):
    return of("gemma3_text", "Gemma3ForCausalLM", hidden_act=None, hidden_activation="gelu_pytorch_tanh", head_dim=16, num_hidden_layers=7,
              query_pre_attn_scalar=24, attn_logit_softcapping=None, final_logit_softcapping=None, cache_implementation="hybrid", **fields)


def granite4(**fields):
    return of("granitemoehybrid", "GraniteMoeHybridForCausalLM", attention_multiplier=0.4, embedding_multiplier=1.7, logits_scaling=3.0,
              residual_multiplier=0.22, rope_theta=10000000, rope_scaling=None, tie_word_embeddings=True, attention_bias=False, init_method="mup",
              layer_types=["attention"] * 2, num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=96, normalization_function="rmsnorm",
              output_router_logits=False, router_aux_loss_coef=0.01, pad_token_id=0, mamba_chunk_size=256,
              mamba_conv_bias=True, mamba_d_conv=4, mamba_d_head=32, mamba_d_state=16, mamba_expand=2, mamba_n_groups=1, mamba_n_heads=4,
              mamba_proj_bias=False, **fields)


SHORT = [1 + 0.05 * i for i in range(6)]
LONG = [1.5 + 1.1 * i for i in range(6)]
CASES = {
    "llama2": llama(num_key_value_heads=4, rope_scaling=None, rope_theta=10000.0, pretraining_tp=1, tie_word_embeddings=False),
    "llama3.2": llama(head_dim=32, tie_word_embeddings=True, rope_theta=500000.0, mlp_bias=False, attention_bias=False, rope_scaling={
        "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 16, "rope_type": "llama3"}),
    "llama-bias": llama(attention_bias=True, mlp_bias=True, num_key_value_heads=1),
    "llama-linear": llama(rope_scaling={"type": "linear", "factor": 4.0}),
    "llama-dynamic": llama(max_position_embeddings=16, rope_scaling={"type": "dynamic", "factor": 4.0}),
    "llama-yarn": llama(rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 8,
                                      "beta_slow": 1}),
    "mistral": of("mistral", "MistralForCausalLM", sliding_window=8, rope_theta=10000.0, tie_word_embeddings=False),
    "mistral-nemo": of("mistral", "MistralForCausalLM", sliding_window=None, head_dim=32, rope_theta=1000000.0),
    "ministral": of("ministral", "MinistralForCausalLM", num_hidden_layers=4, head_dim=16, sliding_window=8, layer_types=[
        "full_attention", "sliding_attention", "sliding_attention", "sliding_attention"]),
    "ministral3": of("ministral3", "Ministral3ForCausalLM", head_dim=32, sliding_window=None, rope_parameters={
        "type": "yarn", "rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0, "original_max_position_embeddings": 16, "max_position_embeddings": 64,
        "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.4}),
    "mllama": of("mllama_text_model", "MllamaForCausalLM", num_hidden_layers=4, cross_attention_layers=[1], rope_theta=500000.0, dropout=0, pad_token_id=4,
                 tie_word_embeddings=False, rope_scaling={"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                                                          "original_max_position_embeddings": 16, "rope_type": "llama3"}),
    "qwen2": of("qwen2", "Qwen2ForCausalLM", rope_theta=1000000.0, sliding_window=131072, use_sliding_window=False, max_window_layers=28,
                tie_word_embeddings=False),
    "qwen2-window": of("qwen2", "Qwen2ForCausalLM", num_hidden_layers=3, sliding_window=8, use_sliding_window=True, max_window_layers=1),
    "qwen2-yarn": of("qwen2", "Qwen2ForCausalLM", max_position_embeddings=16, rope_theta=1000000.0, use_sliding_window=False, rope_scaling={
        "factor": 4.0, "original_max_position_embeddings": 16, "type": "yarn"}),
    "qwen3": of("qwen3", "Qwen3ForCausalLM", head_dim=32, attention_bias=False, max_window_layers=36, sliding_window=None, rope_scaling=None,
                rope_theta=1000000, tie_word_embeddings=True, use_sliding_window=False),
    "phi3": of("phi3", "Phi3ForCausalLM", sliding_window=9, original_max_position_embeddings=64, rope_scaling=None, resid_pdrop=0.0,
               embd_pdrop=0.0, pad_token_id=0, auto_map={"AutoConfig": "configuration_phi3.Phi3Config"}),
    "phi3-longrope": of("phi3", "Phi3ForCausalLM", num_attention_heads=4, sliding_window=262144, original_max_position_embeddings=16, pad_token_id=0,
                        rope_scaling={"long_factor": LONG + [9.0, 11.0], "short_factor": SHORT + [1.3, 1.4], "type": "longrope"}),
    "phi4-mini": of("phi3", "Phi3ForCausalLM", partial_rotary_factor=0.75, original_max_position_embeddings=16, tie_word_embeddings=True,
                    full_attn_mod=1, interpolate_factor=1, lm_head_bias=False, mlp_bias=False, attention_bias=False, pad_token_id=0,
                    rope_scaling={"long_factor": LONG, "short_factor": SHORT, "type": "longrope"}),
    "gemma": of("gemma", "GemmaForCausalLM", hidden_act="gelu_pytorch_tanh", head_dim=32, num_key_value_heads=1, pad_token_id=0),
    "gemma2": of("gemma2", "Gemma2ForCausalLM", hidden_act="gelu_pytorch_tanh", hidden_activation="gelu_pytorch_tanh", head_dim=32, pad_token_id=0,
                 num_hidden_layers=3, sliding_window=8, query_pre_attn_scalar=24, attn_logit_softcapping=3.0, final_logit_softcapping=6.0,
                 cache_implementation="hybrid", attention_bias=False),
    "gemma3": gemma3(sliding_window=8, sliding_window_pattern=6, rope_theta=1000000.0, rope_local_base_freq=10000.0, pad_token_id=0,
                     rope_scaling={"factor": 8.0, "rope_type": "linear"}),
    "olmo2": of("olmo2", "Olmo2ForCausalLM", rope_theta=500000, tie_word_embeddings=False, attention_bias=False, num_key_value_heads=4, pad_token_id=0),
    "olmo3": of("olmo3", "Olmo3ForCausalLM", num_hidden_layers=4, sliding_window=8, rope_theta=500000, pad_token_id=0, rope_scaling={
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "attention_factor": 1.2, "beta_fast": 32.0, "beta_slow": 1.0}),
    "granite": of("granite", "GraniteForCausalLM", attention_multiplier=0.4, embedding_multiplier=1.7, logits_scaling=3.0,
                  residual_multiplier=0.22, rope_theta=10000000.0, tie_word_embeddings=True, mlp_bias=False, attention_bias=False),
    "granite4": granite4(position_embedding_type="rope"),
    "granite4-nope": granite4(position_embedding_type="nope"),
    "hyperclovax": of("hyperclovax", "HyperCLOVAXForCausalLM", head_dim=16, attention_multiplier=0.4, embedding_multiplier=1.7, logits_scaling=0.5,
                      residual_multiplier=0.8, rope_scaling=None, rope_theta=100000000, tie_word_embeddings=False, mlp_bias=False, attention_bias=False,
                      use_post_norm=True, pad_token_id=0, pretraining_tp=1, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, summary_first_dropout=0.0,
                      end_token_id=2, auto_map={"AutoConfig": "configuration_hyperclovax.HyperCLOVAXConfig"}),
    "glm": of("glm", "GlmForCausalLM", head_dim=16, partial_rotary_factor=0.5, attention_bias=True, eos_token_id=[2, 3], pad_token_id=0),
    "glm4": of("glm4", "Glm4ForCausalLM", head_dim=16, partial_rotary_factor=0.5, attention_bias=False, eos_token_id=[2, 3], pad_token_id=0),
    "smollm3": of("smollm3", "SmolLM3ForCausalLM", num_hidden_layers=4, no_rope_layers=[1, 1, 1, 0], no_rope_layer_interval=4, rope_theta=5000000.0,
                  max_window_layers=28, use_sliding_window=False, sliding_window=None, pretraining_tp=2, tie_word_embeddings=True, pad_token_id=0,
                  mlp_bias=False, attention_bias=False),
    "smollm3-window": of("smollm3", "SmolLM3ForCausalLM", num_hidden_layers=4, use_sliding_window=True, sliding_window=8, pad_token_id=0),
    "internlm3": of("internlm3", "InternLM3ForCausalLM", head_dim=16, bias=True, qkv_bias=True, rope_theta=50000000, pad_token_id=2,
                    max_position_embeddings=16, rope_scaling={"rope_type": "dynamic", "factor": 6.0},
                    auto_map={"AutoConfig": "configuration_internlm3.InternLM3Config"}),
    "ernie4_5": of("ernie4_5", "Ernie4_5ForCausalLM", head_dim=32, use_bias=False, rope_scaling=None, rope_theta=500000.0, tie_word_embeddings=True, pad_token_id=0),
    "seed_oss": of("seed_oss", "SeedOssForCausalLM", head_dim=32, attention_bias=True, attention_out_bias=False, mlp_bias=False, residual_dropout=0.1,
                   rope_scaling={"rope_type": "default"}, rope_theta=10000000.0, pad_token_id=1, tie_word_embeddings=False),
    # code of its own repository: computed by Llama's class, with weights renamed and unpacked as modeling_internlm2.py does
    "internlm2": of("internlm2", "InternLM2ForCausalLM", attn_implementation="eager", bias=True, rope_theta=1000000, pad_token_id=2, tie_word_embeddings=False,
                    max_position_embeddings=16, rope_scaling={"factor": 4.0, "type": "dynamic"},
                    auto_map={"AutoConfig": "configuration_internlm2.InternLM2Config"}),
    "helium": of("helium", "HeliumForCausalLM", head_dim=16, attention_bias=True, mlp_bias=True, rope_theta=100000.0, pad_token_id=3, tie_word_embeddings=False),
}
LENGTHS = {"phi4-mini": (14, 40), "phi3-longrope": (40,)}  # longrope: within the first training's context, and beyond


def recipe(name, shape, config):
    """What a parameter is filled with: sharp enough that a wrong position or a missing norm shows in the logits."""
    if "norm" in name:
        return synth.normal(0.3) if config.model_type.startswith("gemma") else ("gain", 0, 0)
    if name.endswith("bias"):
        return synth.normal(0.5)
    if "embed_tokens" in name:
        return synth.normal(1 / 4)
    return synth.normal((3 if "q_proj" in name or "k_proj" in name or "qkv" in name else 1.5) / shape[-1] ** 0.5)


def own_name(name, config):
    """A parameter's name among the layers that text goes through, None for those of cross-attention (Llama 3.2 Vision)."""
    skipped = getattr(config, "cross_attention_layers", None) or []
    parts = name.split(".")
    if not skipped or parts[1] != "layers":
        return name
    if int(parts[2]) in skipped:
        return None
    parts[2] = str(int(parts[2]) - sum(s < int(parts[2]) for s in skipped))
    return ".".join(parts)


def internlm2(model, config):
    """Fills Llama's model with the weights of InternLM 2's; returns names, shapes and recipes of these."""
    tensors, own = [], dict(model.named_parameters())

    def take(name, shape, hand):
        values = torch.empty(shape)
        kind, mantissa, exponent = r = recipe(name.replace("tok_embeddings", "embed_tokens").replace("wqkv", "qkv"), values.shape, config)
        synth.fill(values, SEED, name, r)
        hand(values)
        tensors.append([name, list(shape)] + (["gain"] if kind == "gain" else [mantissa, exponent]))

    def whole(name, of):
        take(name, own[of].shape, own[of].copy_)

    heads, kv = config.num_attention_heads, config.num_key_value_heads
    d = config.hidden_size // heads

    def unpack(attn):
        def hand(values):  # b q (h gs d) -> b q h gs d, of which the last two gs are key and value
            part, kind = values.view(kv, heads // kv + 2, d, *values.shape[1:]), "weight" if values.dim() == 2 else "bias"
            for name, rows in ("q_proj", part[:, :-2]), ("k_proj", part[:, -2]), ("v_proj", part[:, -1]):
                own[f"{attn}{name}.{kind}"].copy_(rows.reshape(own[f"{attn}{name}.{kind}"].shape))
        return hand

    whole("model.tok_embeddings.weight", "model.embed_tokens.weight")
    for layer in range(config.num_hidden_layers):
        ours, attn = f"model.layers.{layer}.", f"model.layers.{layer}.self_attn."
        for kind, more in ("weight", (config.hidden_size,)), ("bias", ()):
            take(f"{ours}attention.wqkv.{kind}", ((heads + 2 * kv) * d, *more), unpack(attn))
            whole(f"{ours}attention.wo.{kind}", f"{attn}o_proj.{kind}")
        for w, name in ("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj"):
            whole(f"{ours}feed_forward.{w}.weight", f"{ours}mlp.{name}.weight")
        whole(f"{ours}attention_norm.weight", f"{ours}input_layernorm.weight")
        whole(f"{ours}ffn_norm.weight", f"{ours}post_attention_layernorm.weight")
    whole("model.norm.weight", "model.norm.weight")
    whole("output.weight", "lm_head.weight")
    return tensors


def golden(published, length):
    fields = {k: v for k, v in published.items() if k not in ("model_type", "torch_dtype", "auto_map", "transformers_version")}
    remote = published["model_type"] == "internlm2"
    if remote:
        fields["attention_bias"] = fields.pop("bias")
    config = AutoConfig.for_model("llama" if remote else published["model_type"], **json.loads(json.dumps(fields)))
    saved = published if remote else json.loads(config.to_json_string(use_diff=False))  # before a model writes into it
    of = getattr(transformers, published["architectures"][0])._from_config if published["model_type"] == "mllama_text_model" else AutoModelForCausalLM.from_config
    model = of(config, attn_implementation="eager").eval().requires_grad_(False)
    tensors = internlm2(model, config) if remote else []
    for name, parameter in () if remote else model.named_parameters():
        name = own_name(name, config)
        if not name:
            continue
        kind, mantissa, exponent = r = recipe(name, parameter.shape, config)
        synth.fill(parameter, SEED, name, r)
        tensors.append([name, list(parameter.shape)] + (["gain"] if kind == "gain" else [mantissa, exponent]))
    scales = {n: b.clone() for n, b in model.named_buffers()}
    model.double()
    for name, buffer in model.named_buffers():  # frequencies stay as float32 made them
        buffer.data = scales[name].to(buffer.dtype) if "freq" not in name else scales[name]
    tokens = synth.tokens(SEED, 0, length, config.vocab_size)
    logits = model(input_ids=torch.tensor([list(tokens)]), use_cache=False).logits[0]
    positions = sorted({4, 9, length // 2, length - 1})
    return {"transformers": transformers.__version__, "published": published, "saved": saved, "tensors": tensors, "tokens": [int(t) for t in tokens],
            "logits": {str(p): [float(f"{x:.9g}") for x in logits[p].tolist()] for p in positions}}


def write(path, published, length):
    path.write_text(json.dumps(golden(published, length), separators=(",", ":")) + "\n")
    print(path.name, path.stat().st_size)


def main():
    if sys.argv[1:2] == ["--config"]:
        return write(pathlib.Path(sys.argv[4]), json.loads(pathlib.Path(sys.argv[2]).read_text()), 40)
    for name in sys.argv[1:] or CASES:
        for length in LENGTHS.get(name, (40,)):
            write(HERE / "testdata" / f"{name}{'-short' if length < 20 else ''}.json", CASES[name], length)


if __name__ == "__main__":
    main()
