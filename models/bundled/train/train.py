"""Trains the model that mkgen ships as `tiny`: a Llama of 330 thousand parameters that writes fairy tales.

    python train.py --text tales.txt --config tiny.json --out FOLDER --threads 2 --minutes 18
    python train.py --text tales.txt --config tiny.json --out FOLDER --device cuda --minutes 3.5 --batch 128 --cuts 16 --warm 500 --every 1000

Writes model.safetensors (bf16), config.json, generation_config.json, tokenizer.json, tokenizer_config.json, train.json (how it was
made and its losses), README.md and golden.json (see golden.py): the last belongs into models/bundled/testdata, the others into
models/bundled/tiny. tales.txt is made by corpus.py; tiny.json is models/testdata/configs/tiny.json.
Needs torch and transformers; no network. The first line is for a CPU, the second for a GPU. --minutes times a few steps and then takes as many steps as fit; --steps repeats a run.
"""

import argparse
import hashlib
import json
import math
import pathlib
import re
import shutil
import time

import numpy as np
import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

import corpus
import golden
import readme

BOS, EOS, EOT = 0, 1, 2
SPECIALS = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]
# The pattern of Llama 3's tokenizer.json.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# A conversation is a tale told in turns: each message is a paragraph that ends with <|eot_id|>, whoever says it.
CHAT = "{{- bos_token }}{%- for message in messages %}{{- message['content'] | trim + '<|eot_id|>' }}{%- endfor %}"
LENGTH = 512  # tokens of a row
IGNORE = -100  # transformers' label of positions without a loss


def train_tokenizer(text, vocab):
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=SPECIALS, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(text.split("\n"), trainer)
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single=f"{SPECIALS[BOS]} $A", pair=f"{SPECIALS[BOS]} $A {SPECIALS[BOS]}:1 $B:1",
                                      special_tokens=[(SPECIALS[BOS], BOS)])])
    assert tokenizer.get_vocab_size() == vocab and all(tokenizer.token_to_id(s) == i for i, s in enumerate(SPECIALS))
    return tokenizer


def paragraphs(tale, longest=700):
    """Lists the paragraphs of a tale, long ones cut after sentences."""
    out = []
    for paragraph in tale.split("\n"):
        part = ""
        for sentence in re.split(r"(?<=[.!?;]) (?=[\"'A-Z(])", paragraph):
            if part and len(part) + len(sentence) > longest:
                out.append(part)
                part = ""
            part += (" " if part else "") + sentence
        out.append(part)
    return out


def rows_of(tales, rng, newline):
    """Cuts tales (lists of paragraphs, each a list of ids) into rows of LENGTH ids: <|begin_of_text|>, as many paragraphs as fit (in
    three rows of ten as many as fit a shorter length), <|end_of_text|>. Paragraphs have a newline between them or, in three rows
    of ten, <|eot_id|> after each instead, as in a conversation. What is left of a row is filled with -1."""
    rows = []
    for tale in tales:
        at = 0
        while at < len(tale):
            limit = LENGTH - 1 if rng.random() < 0.7 else int(rng.integers(64, LENGTH))
            chat = rng.random() < 0.3
            row = [BOS]
            while at < len(tale) and (len(row) == 1 or len(row) + len(tale[at]) < limit):
                row += ([newline] if len(row) > 1 and not chat else []) + tale[at] + ([EOT] if chat else [])
                at += 1
            row = (row + ([] if chat else [EOS]))[:LENGTH]
            rows.append(row + [-1] * (LENGTH - len(row)))
    return np.array(rows, np.int16)


def batch_of(rows, device):
    ids = rows.to(device=device, dtype=torch.long)
    return ids.clamp(min=0), ids.masked_fill(ids < 0, IGNORE)


def logits_of(model, ids, mixed):
    """Logits in float32; mixed: matrix products in bf16, the LM head's aside."""
    with torch.autocast(ids.device.type, dtype=torch.bfloat16, enabled=mixed):
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    return model.lm_head(hidden.float())


def loss_of(model, rows, device):
    """Mean loss of the tokens after the first of each row. Padding comes last and the mask is causal, so it changes nothing."""
    ids, labels = batch_of(rows, device)
    logits = logits_of(model, ids, mixed=ids.is_cuda)
    return torch.nn.functional.cross_entropy(logits[:, :-1].reshape(-1, logits.shape[-1]), labels[:, 1:].reshape(-1), ignore_index=IGNORE)


@torch.no_grad()
def bits_per_byte(model, rows, lengths, device):
    """Cross entropy of all tokens but the special ones, in bits for each byte of text; lengths are the bytes that ids stand for."""
    bits = count = 0.0
    for chunk in rows.split(32):
        ids, labels = batch_of(chunk, device)
        logits = logits_of(model, ids, mixed=False)[:, :-1]
        losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), labels[:, 1:], ignore_index=IGNORE, reduction="none")
        sizes = lengths.to(device)[ids[:, 1:]] * (labels[:, 1:] != IGNORE)
        bits += (losses * (sizes > 0)).sum().item() / math.log(2)
        count += sizes.sum().item()
    return bits / count


def optimizer_of(model, rate, decay):
    matrices = [p for p in model.parameters() if p.dim() > 1]
    gains = [p for p in model.parameters() if p.dim() == 1]
    groups = [dict(params=matrices, weight_decay=decay), dict(params=gains, weight_decay=0.0)]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98), eps=1e-8, fused=True)


def rate_at(step, steps, warm, peak):
    """Linear warm-up, then a cosine down to a hundredth of the peak."""
    if step < warm:
        return peak * (step + 1) / warm
    return peak * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm))))


def train(model, rows, o, report):
    """Takes o.steps steps, or as many as fit o.minutes; returns how many."""
    optimizer, steps, began = optimizer_of(model, o.rate, o.decay), o.steps, time.time()
    generator = torch.Generator().manual_seed(o.seed)
    order, at, step, timed = torch.randperm(len(rows), generator=generator), 0, 0, None
    while steps is None or step < steps:
        if at + o.batch > len(order):
            order, at = torch.randperm(len(rows), generator=generator), 0
        picked = rows[order[at:at + o.batch].to(rows.device)]
        at += o.batch
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, steps or 1 << 30, o.warm, o.rate)
        loss = loss_of(model, picked, o.device)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if steps is None and step in (10, 40):  # the first steps pay for starting
            loss.item()
            now = time.time()
            if timed is not None:
                steps = step + int(max(0, 60 * o.minutes - (now - began)) / ((now - timed) / 30) * 0.97)
                print(f"{(now - timed) / 30 * 1e3:.1f} ms a step: {steps} steps", flush=True)
            timed = now
        if step % o.every == 0 or step == steps:
            report(step, loss.item(), time.time() - began)
    return steps


def save(model, tokenizer, o):
    """Rounds the weights to bf16, in place, and writes the checkpoint."""
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.to(torch.bfloat16).float())
    stored = LlamaForCausalLM(model.config).to(torch.bfloat16)
    stored.load_state_dict(model.state_dict())
    stored.generation_config = GenerationConfig(bos_token_id=BOS, eos_token_id=[EOS, EOT])
    stored.save_pretrained(o.out)
    shutil.copyfile(o.config, o.out / "config.json")
    tokenizer.save(str(o.out / "tokenizer.json"))
    (o.out / "tokenizer_config.json").write_text(json.dumps({
        "bos_token": SPECIALS[BOS], "eos_token": SPECIALS[EOS], "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"], "model_max_length": model.config.max_position_embeddings,
        "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": CHAT}, indent=2) + "\n")


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--text", type=pathlib.Path, required=True)
    p.add_argument("--config", type=pathlib.Path, required=True)
    p.add_argument("--out", type=pathlib.Path, required=True)
    p.add_argument("--device", default="cpu")
    p.add_argument("--steps", type=int, help="how many steps; without it as many as fit --minutes")
    p.add_argument("--minutes", type=float, default=4, help="of training, building rows and evaluation aside")
    p.add_argument("--batch", type=int, default=8, help="rows of 512 tokens a step")
    p.add_argument("--rate", type=float, default=5e-3, help="peak learning rate")
    p.add_argument("--decay", type=float, default=0.05, help="weight decay of matrices")
    p.add_argument("--warm", type=int, default=200, help="warm-up steps")
    p.add_argument("--cuts", type=int, default=4, help="different ways of cutting the tales into rows")
    p.add_argument("--every", type=int, default=200, help="steps between reports")
    p.add_argument("--threads", type=int, default=0, help="on the CPU; 0 leaves it to torch")
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


def main():
    o = options()
    torch.manual_seed(o.seed)
    torch.set_float32_matmul_precision("high")
    if o.threads:
        torch.set_num_threads(o.threads)
    o.out.mkdir(parents=True, exist_ok=True)
    began, raw = time.time(), o.text.read_bytes()
    tales = [t for t in raw.decode("ascii").split("\n\n") if t]
    config = json.loads(o.config.read_text())
    known = [t for i, t in enumerate(tales) if i % corpus.HELD_OUT]
    tokenizer = train_tokenizer("\n".join(known), config["vocab_size"])
    ids = [[tokenizer.encode(p, add_special_tokens=False).ids for p in paragraphs(t)] for t in tales]
    newline = tokenizer.token_to_id("\u010a")
    lengths = torch.tensor([0 if i < 3 else len(tokenizer.id_to_token(i)) for i in range(config["vocab_size"])])
    rng = np.random.default_rng(o.seed)
    rows = np.concatenate([rows_of([t for i, t in enumerate(ids) if i % corpus.HELD_OUT], rng, newline) for _ in range(o.cuts)])
    held = torch.from_numpy(rows_of(ids[::corpus.HELD_OUT], rng, newline))
    rows = torch.from_numpy(rows).to(o.device)
    tokens, bytes_ = sum(len(p) for t in ids for p in t), sum(map(len, tales))
    print(f"{len(tales)} tales, {bytes_} bytes, {bytes_ / tokens:.3f} bytes a token, {len(rows)} rows, {time.time() - began:.0f} s", flush=True)

    model = LlamaForCausalLM(LlamaConfig(**{k: v for k, v in config.items() if k not in ("architectures", "model_type", "torch_dtype")}))
    model = model.float().to(o.device).train()
    print(sum(p.numel() for p in model.parameters()), "parameters", flush=True)

    def report(step, loss, seconds):
        bits = bits_per_byte(model, held[:64], lengths, o.device)
        assert math.isfinite(loss), f"step {step}: the loss is {loss}"
        print(f"step {step}: loss {loss:.4f} a token, {bits:.4f} bits per byte on part of the held-out tales, {seconds:.0f} s", flush=True)

    steps = train(model, rows, o, report)
    model.eval()
    exact = bits_per_byte(model, held, lengths, o.device)
    save(model, tokenizer, o)
    bits, seen = (bits_per_byte(model, r, lengths, o.device) for r in (held, rows[:512].cpu()))
    record = {
        "text": o.text.name, "text_sha256": hashlib.sha256(raw).hexdigest(), "text_bytes": len(raw), "tales": len(tales), "held_out_tales": len(ids[::corpus.HELD_OUT]),
        "device": torch.cuda.get_device_name() if o.device.startswith("cuda") else "CPU", "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__, "seed": o.seed, "steps": steps, "rows_a_step": o.batch, "tokens_a_row": LENGTH, "cuts": o.cuts,
        "peak_rate": o.rate, "weight_decay": o.decay, "warm_up_steps": o.warm, "seconds": round(time.time() - began),
        "bits_per_byte": {"held_out": round(bits, 4), "held_out_before_rounding_to_bf16": round(exact, 4), "training": round(seen, 4)}}
    (o.out / "train.json").write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record, indent=2), flush=True)
    golden.write(o.out)
    readme.write(o.out)


if __name__ == "__main__":
    main()
