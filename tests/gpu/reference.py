"""Logits of Hugging Face transformers that a kernel is judged against (package lab/gate reads them).

    python reference.py --config config.json --out DIR [--seed 1] [--sequences 512,512,1024:512,4096:512] [--device cuda]
    python reference.py --config config.json --out DIR --save CHECKPOINT
    mkgen describe --model gemma-3-4b --json > gemma.json && python reference.py --model gemma.json --out DIR ...
    python reference.py --checkpoint CHECKPOINT --out DIR ...

Builds the causal language model of the config, a Llama, or of any family that mkgen describes, with the synthetic weights of package models/synth, or with those of a checkpoint directory
rounded to bfloat16, and runs it teacher-forced, three times: in float32 (o, TF32 off); in float32 with the kernel's own roundings (s,
roundings.py), which takes o's weights; in bfloat16 (h). A sequence LENGTH:SCORED is one causal forward over LENGTH seeded tokens whose last
SCORED positions are written; without :SCORED, all are. Written into DIR, all little-endian, row-major:

    tokens.<q>.i32      LENGTH token ids of sequence q
    o.<q>.f32, h.<q>.f32   [SCORED, vocab] logits after the tokens at positions LENGTH - SCORED …
    s.<q>.kl.f64        [SCORED] KL(o‖s) at these positions, in nats
    kv.<q>.f16          projections of o's keys and values, of all layers and positions (kvrows.py says how)
    manifest.json       config, seed, weights hash, sequences, roundings, how far these take a key or a value, versions, and with --stats what the weights make of
                        themselves; written last, so that a directory with a manifest is complete

One float32 file of 2048 positions of a vocabulary of 128256 takes 1 GB; logits are made 256 positions at a time.
"""

import argparse
import contextlib
import copy
import json
import math
import pathlib
import sys
import time

import torch
import transformers
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import formats  # noqa: E402
import kvrows  # noqa: E402
import roundings  # noqa: E402
import synth  # noqa: E402
import variants  # noqa: E402

ROWS = 256

case = variants.Case()  # that runs now


def sliced_attention(module, query, key, value, attention_mask, scaling, sliding_window=None, softcap=None, **_):
    """Causal attention from an empty cache as eager computes it, 256 queries at a time: no square of the context in memory, and
    none of the fused kernels, whose arithmetic in float32 is not always float32. A window and a soft cap are the model's own."""
    kvrows.observe(key, value)
    key = key.repeat_interleave(module.num_key_value_groups, 1)
    value = value.repeat_interleave(module.num_key_value_groups, 1)
    out = torch.empty_like(query)
    for start in range(0, query.shape[2], ROWS):
        end = min(start + ROWS, query.shape[2])
        scores = query[:, :, start:end] @ key[:, :, :end].transpose(2, 3) * scaling
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        ahead = torch.ones(end - start, end, dtype=torch.bool, device=query.device).triu(start + 1)
        if sliding_window:
            ahead |= torch.ones_like(ahead).tril(start - sliding_window)
        out[:, :, start:end] = scores.masked_fill_(ahead, -math.inf).softmax(-1) @ value[:, :, :end]
    return out.transpose(1, 2).contiguous(), None


def variant_attention(module, query, key, value, attention_mask, scaling, **_):
    """The attention of the case that runs now, in the type of what it gets."""
    key, value = case.quantised(key, value)
    kvrows.observe(key, value)
    out = case.attend(module.layer_idx, query[0], key[0], value[0], scaling)
    return out[None].transpose(1, 2).contiguous(), None


AttentionInterface.register("sliced", sliced_attention)
AttentionInterface.register("variant", variant_attention)


def build(config, seed, device, attention="sliced", weight_format="bf16", description=None, head_format="bf16"):
    """The float32 model on the device with every parameter from the generator, rounded to a format, and the hash of its weights before."""
    config._attn_implementation = attention
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).float().eval().requires_grad_(False)
    params = dict(model.named_parameters())  # without the LM head where it is tied
    tensors = tensors_of(config, description)
    if set(params) != {name for name, _, _ in tensors}:
        sys.exit(f"reference: parameters differ from the generator's: {sorted(set(params) ^ {n for n, _, _ in tensors})}")
    for name, shape, recipe in tensors:
        if tuple(params[name].shape) != shape:
            sys.exit(f"reference: {name} is {tuple(params[name].shape)}, the generator's {shape}")
        synth.fill(params[name], seed, name, recipe)
    weights_hash = synth.sample_hash(tensors, params.__getitem__)
    formats.round_model(model, weight_format, head_format)
    return model, weights_hash


def tensors_of(config, description):
    if description:
        return synth.of_description(description)
    if config.model_type != "llama":
        sys.exit(f"reference: a model of type {config.model_type}: give --model FILE, which mkgen describe --json prints")
    return synth.of_config(config)


def load(directory, config, device, weight_format="bf16", description=None, head_format="bf16"):
    """The float32 model on the device with a checkpoint's weights rounded to bfloat16, and the hash of its weights."""
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16).to(device).float().eval().requires_grad_(False)
    model.set_attn_implementation("sliced")
    weights_hash = synth.sample_hash(tensors_of(config, description), dict(model.named_parameters()).__getitem__)
    formats.round_model(model, weight_format, head_format)
    return model, weights_hash


def to_bf16(model, attention):
    """The same model in bfloat16, but for the rotary frequencies, which stay float32 as after from_pretrained."""
    model.set_attn_implementation(attention)
    rope = model.model.rotary_emb
    kept = {name: buffer.clone() for name, buffer in rope.named_buffers()}
    model.to(torch.bfloat16)
    for name, buffer in kept.items():
        setattr(rope, name, buffer)
    return model


def round_inputs(model):
    """Has the linear layers of a model, but the LM head, round what they are given to e4m3, with a scale a token."""
    for linear in (m for m in model.model.layers.modules() if isinstance(m, torch.nn.Linear)):
        linear.register_forward_pre_hook(lambda _, x: (roundings.by_token(x[0].float()).to(x[0].dtype), *x[1:]))


def parse_sequences(text):
    out = []
    for item in text.split(","):
        length, _, scored = item.partition(":")
        length, scored = int(length), int(scored or length)
        if not 0 < scored <= length:
            sys.exit(f"reference: sequence {item!r}, want LENGTH or LENGTH:SCORED with 0 < SCORED <= LENGTH")
        out.append((length, scored))
    return out


def last_hidden(model, tokens, scored):
    """The LM head's input at the last scored positions, from one forward over all tokens."""
    return model.model(input_ids=tokens[None], use_cache=False).last_hidden_state[0, -scored:].clone()


def logits_of(model, hidden):
    """The LM head, with the factor and the soft cap that a family has behind it."""
    logits, config = model.lm_head(hidden), model.config
    if getattr(config, "logits_scaling", None):
        logits = logits / config.logits_scaling
    cap = getattr(config, "final_logit_softcapping", None)
    return cap * torch.tanh(logits / cap) if cap else logits


def write_logits(model, hidden, path):
    """Logits written slice by slice as float32."""
    with open(path, "wb") as f:
        for start in range(0, len(hidden), ROWS):
            logits = logits_of(model, hidden[start : start + ROWS])
            f.write(logits.float().cpu().numpy().astype("<f4").tobytes())


def write_divergences(model, o, s, path):
    """KL(o‖s) at every scored position, of the LM head's inputs o and s; logits are made slice by slice and not written."""
    with open(path, "wb") as f:
        for start in range(0, len(o), ROWS):
            part = slice(start, start + ROWS)
            kl = roundings.divergence(logits_of(model, o[part]), logits_of(model, s[part]))
            f.write(kl.cpu().numpy().astype("<f8").tobytes())


def timed(what, f):
    start = time.time()
    out = f()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    print(f"reference: {what}: {time.time() - start:.1f} s", file=sys.stderr)
    return out


def use(now):
    global case
    case = now


def run(model, rounded, sequences, tokens, out, device, rows):
    """o and s of every sequence; the model is in float32. Returns how far s's keys and values are from o's at most (kvrows.apart), zeros without rows."""
    heads, worst = getattr(model.config, "num_key_value_heads", model.config.num_attention_heads), (0.0, 0.0)
    for q, (_, scored) in enumerate(sequences):
        case.sequence = q
        fed, of = tokens[q].to(device), f"sequence {q} {sequences[q]}"
        recording = kvrows.recording if rows else contextlib.nullcontext
        with recording(out / f"kv.{q}.f16"):
            hidden = timed(f"o {of}", lambda: last_hidden(model, fed, scored))
        timed(f"o {of}, logits", lambda: write_logits(model, hidden, out / f"o.{q}.f32"))
        with recording(out / "own.f16"):
            own = timed(f"s {of}", lambda: rounded.hidden(fed, scored))
        if rows:
            worst = tuple(map(max, worst, kvrows.apart(out / f"kv.{q}.f16", out / "own.f16", heads, len(fed))))
            (out / "own.f16").unlink()
        timed(f"s {of}, KL", lambda: write_divergences(model, hidden, own, out / f"s.{q}.kl.f64"))
    return worst


def run_bf16(model, sequences, tokens, out, device):
    """h of every sequence; the model is in bfloat16."""
    for q, (_, scored) in enumerate(sequences):
        case.sequence = q
        timed(f"h sequence {q} {sequences[q]}",
              lambda: write_logits(model, last_hidden(model, tokens[q].to(device), scored), out / f"h.{q}.f32"))


def stats(model, tokens):
    """What the gate needs of the weights, measured: spread of scores over keys, size of the residual stream, sharpness of logits."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    kept = {}
    hooks = []
    for i, layer in enumerate(model.model.layers):
        for name in ("q_proj", "k_proj"):
            hooks.append(getattr(layer.self_attn, name).register_forward_hook(
                lambda _, __, y, key=(i, name): kept.__setitem__(key, y)))
    hooks.append(model.model.norm.register_forward_pre_hook(lambda _, x: kept.__setitem__("last", x[0])))
    out = model.model(input_ids=tokens[None], use_cache=False, output_hidden_states=True)
    for h in hooks:
        h.remove()
    n = len(tokens)
    cos, sin = model.model.rotary_emb(out.last_hidden_state, torch.arange(n, device=tokens.device)[None])
    dim = model.model.layers[0].self_attn.head_dim
    half = n // 2  # rows with at least that many keys
    spreads, tops = [], []
    for i in range(len(model.model.layers)):
        q, k = (kept[i, p].view(1, n, -1, dim).transpose(1, 2) for p in ("q_proj", "k_proj"))
        q, k = apply_rotary_pos_emb(q, k, cos, sin)
        k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        scores = (q[0, :, half:] @ k[0].transpose(1, 2) / math.sqrt(dim)).float()
        seen = torch.arange(n, device=tokens.device)[None] <= torch.arange(half, n, device=tokens.device)[:, None]
        count = seen.sum(-1)
        mean = (scores * seen).sum(-1) / count
        spreads.append((((scores - mean[..., None]) ** 2 * seen).sum(-1) / count).sqrt().mean().item())
        tops.append(scores.masked_fill(~seen, -math.inf).softmax(-1).max(-1).values.mean().item())
    logits = model.lm_head(out.last_hidden_state[0, half:]).float()
    top = logits.softmax(-1).max(-1).values
    quantiles = torch.quantile(top, torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95], device=top.device))
    rnd = lambda xs: [round(x, 3) for x in xs]  # noqa: E731
    return {
        "score_sd_per_layer": rnd(spreads), "top_attention_weight_per_layer": rnd(tops),
        "residual_rms_embedding_and_layers": rnd([x.float().pow(2).mean().sqrt().item() for x in (*out.hidden_states[:-1], kept["last"])]),
        "logit_sd": round(logits.std(-1).mean().item(), 3), "top1_probability_5_25_50_75_95": rnd(quantiles.tolist()),
        "top1_is_last_token": round((logits.argmax(-1) == tokens[half:]).float().mean().item(), 4),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    weights = parser.add_mutually_exclusive_group(required=True)
    weights.add_argument("--config", type=pathlib.Path, help="a Hugging Face config.json, for synthetic weights")
    weights.add_argument("--model", type=pathlib.Path, help="what mkgen describe --json printed, for synthetic weights of any family")
    weights.add_argument("--checkpoint", type=pathlib.Path, help="a directory with config.json and weights")
    parser.add_argument("--describe", type=pathlib.Path, help="with --checkpoint of another family than Llama: what mkgen describe --json printed of its config.json")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--save", type=pathlib.Path, help="also write the model there as transformers does: config.json, safetensors")
    parser.add_argument("--weight-format", default="bf16", type=formats.known, help="that the layers' matrices are rounded to, as the kernel has them")
    parser.add_argument("--head-format", default="bf16", choices=formats.FORMATS, help="that the LM head is rounded to; an embedding that is tied to it stays as it is")
    parser.add_argument("--prefill", action="store_true", help="s is of prefill kernels, whose products have inputs in bf16 whatever the weights are")
    parser.add_argument("--prefill-activations", default="bf16", choices=["bf16", "e4m3"],
                        help="of these products; with e4m3 the inputs of h's linear layers, but the LM head's, are rounded to it, too, with a scale a token")
    parser.add_argument("--seed", type=int, default=1, help="of synthetic weights, and of the tokens")
    parser.add_argument("--sequences", default="512,512,1024:512,4096:512")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--attention", default="sdpa", choices=["sdpa", "eager"], help="of h; o's is eager's, sliced")
    parser.add_argument("--case", action="append", default=[], metavar="NAME:SPEC[,kv=e4m3][,selection=PAGE]",
                        help="instead of plain attention over a bf16 cache, written into OUT/NAME; several share a model (variants.py)")
    parser.add_argument("--kv-rows", action=argparse.BooleanOptionalAction, default=True, help="of o, for the local checks")
    parser.add_argument("--stats", action="store_true", help="measure the weights on the first sequence")
    args = parser.parse_args()

    coded = args.prefill_activations == "e4m3"
    if coded and not args.prefill:
        sys.exit("reference: --prefill-activations goes with --prefill")
    inputs = "e4m3-tokens" if coded else "bf16" if args.prefill else None
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    torch.set_grad_enabled(False)
    about = args.model or args.describe
    description = json.loads(about.read_text()) if about else None
    settings = description["config"] if args.model else json.loads((args.config or args.checkpoint / "config.json").read_text())
    fields = copy.deepcopy(settings)  # it writes into what it gets
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    if args.stats and config.model_type != "llama":
        sys.exit("reference: --stats measures Llamas only")
    sequences = parse_sequences(args.sequences)
    longest = max(length for length, _ in sequences)
    if longest > config.max_position_embeddings:
        sys.exit(f"reference: a sequence of {longest} tokens, the config allows {config.max_position_embeddings}")
    try:
        cases = {args.out / name: variants.Case(seed=args.seed, **of) for name, of in map(variants.parse_case, args.case)} or {args.out: variants.Case()}
    except ValueError as e:
        sys.exit(f"reference: --case: {e}")
    tokens = [synth.tokens(args.seed, q, length, config.vocab_size) for q, (length, _) in enumerate(sequences)]
    for out in cases:
        out.mkdir(parents=True, exist_ok=True)
        (out / "manifest.json").unlink(missing_ok=True)
        for q, t in enumerate(tokens):
            (out / f"tokens.{q}.i32").write_bytes(t.to(torch.int32).numpy().astype("<i4").tobytes())
    if args.checkpoint:
        model, weights_hash = load(args.checkpoint, config, args.device, args.weight_format, description, args.head_format)
    else:
        model, weights_hash = build(config, args.seed, args.device, weight_format=args.weight_format, description=description, head_format=args.head_format)
    manifest = {
        "config": settings, "seed": args.seed, **({} if args.weight_format == "bf16" else {"weight_format": args.weight_format}),
        **({} if args.head_format == "bf16" else {"head_format": args.head_format}), "weights_hash": weights_hash, "vocab": config.vocab_size,
        "sequences": [{"length": length, "first": length - scored, "scored": scored, "tokens": f"tokens.{q}.i32",
                       "o": f"o.{q}.f32", "h": f"h.{q}.f32", "s": f"s.{q}.kl.f64",
                       **({"kv": f"kv.{q}.f16"} if args.kv_rows else {})} for q, (length, scored) in enumerate(sequences)],
        "torch": torch.__version__, "transformers": transformers.__version__, "attention": args.attention,
        "device": torch.cuda.get_device_name() if args.device.startswith("cuda") else args.device,
    }
    if args.stats:
        manifest["stats"] = stats(model, tokens[0].to(args.device))
    places, own_rows, attention = {}, {}, args.attention
    if not model._supports_sdpa:  # Gemma 2, for its soft caps
        attention = manifest["attention"] = "eager"
    for out, now in cases.items():
        use(now)
        model.set_attn_implementation("sliced" if now.plain else "variant")
        rounded = roundings.Rounded(model, kv=now.kv, attend=None if now.plain else now.rounded, weights=args.weight_format,
                                    description=description, inputs=inputs, head=args.head_format)
        places[out] = rounded.describe()
        own_rows[out] = run(model, rounded, sequences, tokens, out, args.device, args.kv_rows)
    model = to_bf16(model, attention)
    if args.save:
        model.save_pretrained(args.save)
    if coded:
        round_inputs(model)
    for out, now in cases.items():
        use(now)
        model.set_attn_implementation(attention if now.plain else "variant")
        run_bf16(model, sequences, tokens, out, args.device)
        (out / "manifest.json").write_text(json.dumps({"roundings": places[out], "own_rows": own_rows[out][0], "own_row_sizes": own_rows[out][1], "variant": now.describe(), **manifest}, indent=1) + "\n")


if __name__ == "__main__":
    main()
