"""Makes the model that mkgen ships as `small` of the one that it ships as `tiny`: the same function in wider matrices.

    pip install torch==2.15.0 transformers==5.23.0
    python widen.py ../tiny ../small

Weights of 4 bits in groups of 128 want matrices of 256 and 512 columns; tiny has 96, 192 and 352. Nothing is trained. The residual
stream of 96 numbers becomes 256 by a random rotation, which RMSNorm without gains commutes with: gains are multiplied into the
matrices behind them, each matrix that reads the stream is rotated, and each that writes it is rotated back, so that all are dense.
Two of eight query heads and 160 of 512 MLP neurons are copies, whose outputs add up to that of the one that they are copied from. The
LM head is a matrix of its own, since a gain is in it.

Then transformers compares the two in float32: logits of some texts, before and after rounding to bf16.
"""

import json
import pathlib
import shutil
import sys

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

HIDDEN, INTERMEDIATE, HEADS = 256, 512, 8
TEXTS = ["Once upon a time there was a king who had three sons, and he loved them all alike.", "The old woman said to the fox, \"Come in.\""]


def shares(copies, generator):
    """For each entry of copies, the index that it is a copy of, a share of the output: shares of one index add up to 1, none is 0."""
    raw = 0.5 + torch.rand(len(copies), generator=generator, dtype=torch.float64)
    total = torch.zeros(max(copies) + 1, dtype=torch.float64).index_add_(0, torch.tensor(copies), raw)
    return raw / total[torch.tensor(copies)]


def widen(source, c):
    """Returns the wider model's weights, in float64."""
    generator = torch.Generator().manual_seed(1)
    old = {n: w.double() for n, w in source.items()}
    hidden = c.hidden_size
    rotation = torch.linalg.qr(torch.randn(HIDDEN, HIDDEN, generator=generator, dtype=torch.float64))[0][:hidden]  # rows are orthonormal
    # The mean of squares is over more numbers now, so what is normalised is larger; gains, alike for all, make up for it.
    gain = torch.full((HIDDEN,), (hidden / HIDDEN) ** 0.5, dtype=torch.float64)
    each = c.num_attention_heads // c.num_key_value_heads
    heads = [k * each + i % each for k in range(c.num_key_value_heads) for i in range(HEADS // c.num_key_value_heads)]
    head_share = shares(heads, generator)
    neurons = list(range(c.intermediate_size)) + torch.randperm(c.intermediate_size, generator=generator)[:INTERMEDIATE - c.intermediate_size].tolist()
    neuron_share = shares(neurons, generator)
    new = {"model.embed_tokens.weight": old["model.embed_tokens.weight"] @ rotation, "model.norm.weight": gain,
           "lm_head.weight": old["model.embed_tokens.weight"] * old["model.norm.weight"] @ rotation}
    for layer in range(c.num_hidden_layers):
        p = f"model.layers.{layer}."
        norm = {"self_attn": old[p + "input_layernorm.weight"], "mlp": old[p + "post_attention_layernorm.weight"]}

        def reads(name):
            return old[p + name + ".weight"] * norm[name.split(".")[0]] @ rotation

        q = reads("self_attn.q_proj").view(c.num_attention_heads, c.head_dim, HIDDEN)
        o = old[p + "self_attn.o_proj.weight"].view(hidden, c.num_attention_heads, c.head_dim)
        new |= {
            p + "input_layernorm.weight": gain, p + "post_attention_layernorm.weight": gain,
            p + "self_attn.q_proj.weight": q[heads].reshape(-1, HIDDEN),
            p + "self_attn.k_proj.weight": reads("self_attn.k_proj"), p + "self_attn.v_proj.weight": reads("self_attn.v_proj"),
            p + "self_attn.o_proj.weight": rotation.T @ (o[:, heads] * head_share[:, None]).reshape(hidden, -1),
            p + "mlp.gate_proj.weight": reads("mlp.gate_proj")[neurons], p + "mlp.up_proj.weight": reads("mlp.up_proj")[neurons],
            p + "mlp.down_proj.weight": rotation.T @ (old[p + "mlp.down_proj.weight"][:, neurons] * neuron_share),
        }
    return new


def configuration(text):
    """Returns the wider model's config.json."""
    c = json.loads(text)
    eps = c["rms_norm_eps"] * c["hidden_size"] / HIDDEN  # of the same mean of squares, spread over more numbers
    return c | {"hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE, "num_attention_heads": HEADS, "tie_word_embeddings": False, "rms_norm_eps": eps}


def llama(config, weights):
    m = LlamaForCausalLM(LlamaConfig(**{k: v for k, v in config.items() if k not in ("architectures", "model_type", "torch_dtype")})).float()
    m.load_state_dict({n: w.float() for n, w in weights.items()})
    return m.eval()


def main():
    source, out = map(pathlib.Path, sys.argv[1:])
    tiny = LlamaForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(source)
    config = configuration((source / "config.json").read_text())
    weights = widen({n: w for n, w in tiny.state_dict().items() if n != "lm_head.weight"}, tiny.config)
    rounded = {n: w.to(torch.bfloat16).contiguous() for n, w in weights.items()}
    with torch.no_grad():
        for what, some, most in ("in float32", weights, 1e-3), ("rounded to bf16", rounded, 0.5):
            wide = llama(config, some)
            for text in TEXTS:
                ids = torch.tensor([tokenizer(text)["input_ids"]])
                off = (wide(ids).logits - tiny(ids).logits).abs().max().item()
                print(f"{what}: logits differ by {off:.2g} at most")
                assert off < most
    out.mkdir(exist_ok=True)
    stored = llama(config, rounded).to(torch.bfloat16)
    stored.save_pretrained(out)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(source / name, out / name)
    (out / "README.md").write_text(PAGE.format(parameters=sum(w.numel() for w in rounded.values())))


PAGE = """# small

The model `tiny` in wider matrices: a Llama of {parameters:,} parameters, hidden size 256 and intermediate size 512, so that weights of 4 bits in groups of
128 can be tried with no download and no GPU. `models/bundled/train/widen.py` made it of `tiny`, whose README says what that learned and under which licence it
is; nothing was trained. It computes what `tiny` does, but for its roundings to bf16.
"""

main()
