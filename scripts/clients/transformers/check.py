"""Text in, text out: check.py URL KEY (both unused) [CASE ...] runs $MKGEN on checkpoints that transformers writes, of every family.

The models are those of tests/families/make.py, of odd sizes, in bf16 and in shards of 30 kB, each with a tokenizer of its family's style. What
mkgen run continues prompts with, one row a step and eight, must be transformers' greedy text in float32, up to the first token whose
logit is nearly another one's: two arithmetics may choose differently there.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests" / "families"), str(ROOT / "tests" / "gpu")]
import make  # noqa: E402
import synth  # noqa: E402

STYLES = {"llama2": "llama2", "mistral": "mistral", "mistral-nemo": "tekken", "ministral": "tekken", "ministral3": "tekken", "qwen2": "qwen2", "qwen3": "qwen2",
          "phi3": "phi3", "gemma": "gemma", "glm": "glm4", "glm4": "glm4", "smollm3": "smollm", "olmo2": "gpt2", "granite": "gpt2", "phi4-mini": "o200k",
          "internlm3": "unigram-bytes", "ernie4_5": "metaspace"}
# dynamic scaling: the kernel has the frequencies of the longest context, transformers those of the present one.
APART = {"llama-dynamic", "internlm3"}
PROMPTS = ["Die Möwe fliegt", "func main() {", "in 2024, 3", "今天天气", "The quick brown fox", "Hello, world!", "über den Fluß", "x", "El niño comió",
           "a b c d", "It's what we'll", "[1, 2, 3]", "Быстрая", "end.", "  two", "x86_64"]
TOKENS, NEAR, SURE = 12, 0.15, 4


def style(name):
    longest = max((s for s in STYLES if name.startswith(s)), key=len, default=None)
    return ROOT / "models/tokenizer/testdata" / (f"styles/{STYLES[longest]}" if longest else "llama3-like")


def write(name, folder):
    """The case's model and tokenizer as transformers saves them."""
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(style(name) / "tokenizer.json"))
    fields = {k: v for k, v in json.loads(json.dumps(make.CASES[name])).items() if k not in ("torch_dtype", "auto_map", "transformers_version")}
    fields |= {"intermediate_size": 104, "vocab_size": len(tokenizer) + 3, "eos_token_id": len(tokenizer) + 2}
    if fields.get("head_dim"):
        fields["hidden_size"] = 72
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    of = transformers.MllamaForCausalLM._from_config if name == "mllama" else transformers.AutoModelForCausalLM.from_config
    model = of(config, attn_implementation="eager").requires_grad_(False)
    for parameter, values in model.named_parameters():
        synth.fill(values, make.SEED, parameter, make.recipe(parameter, values.shape, config))
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="30KB")
    assert len(list(folder.glob("*.safetensors"))) > 2, "not sharded"
    tokenizer.save_pretrained(folder)


def mkgen(folder, *more):
    run = subprocess.run([os.environ["MKGEN"], "run", "--checkpoint", str(folder), "--device", "sim", "--max-tokens", str(TOKENS), *more], capture_output=True)
    assert run.returncode == 0, run.stderr.decode()
    return run.stdout.decode()


def ours(folder, rows):
    """What mkgen run says to the prompts; with one row to the first."""
    if rows == 1:
        return [mkgen(folder, prompt) for prompt in PROMPTS[:1]]
    prompts = folder / "prompts"
    prompts.write_text("\n".join(PROMPTS) + "\n", encoding="utf-8")
    out, texts = mkgen(folder, "--prompts", str(prompts), "--rows", str(rows)), []
    for i in range(len(PROMPTS)):
        begin = out.index(f"[{i + 1}] ") + len(f"[{i + 1}] ")
        end = out.find(f"\n[{i + 2}] ", begin)
        texts.append(out[begin : end if end >= 0 else len(out) - 1])
    return texts


def theirs(folder, name):
    """Of every prompt transformers' tokens, up to the first that is no sure one, as text."""
    of = transformers.MllamaForCausalLM if name == "mllama" else transformers.AutoModelForCausalLM
    model = of.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for prompt in PROMPTS:
        ids = tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)["input_ids"]
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=TOKENS, output_logits=True, return_dict_in_generate=True)
        new, sure = out.sequences[0, ids.shape[1] :].tolist(), 0
        for logits in out.logits:
            first, second = logits[0].topk(2).values.tolist()
            if first - second < NEAR * logits[0].std().item():
                break
            sure += 1
        while sure and tokenizer.convert_ids_to_tokens(new[sure - 1]).startswith("<0x"):  # what follows decides what bytes stand for
            sure -= 1
        before = tokenizer.decode(ids[0], skip_special_tokens=True)
        yield sure, tokenizer.decode(ids[0].tolist() + new[:sure], skip_special_tokens=True)[len(before) :]


def check(name):
    with tempfile.TemporaryDirectory() as at:
        folder = Path(at)
        write(name, folder)
        want = list(theirs(folder, name))
        sure = sum(n for n, _ in want)
        for rows in (1, 8):
            for prompt, (n, text), got in zip(PROMPTS, want, ours(folder, rows)):
                assert got.startswith(text.rstrip("\ufffd")), f"{name}, {rows} rows, {prompt!r}, {n} sure tokens: {got!r}, want {text!r}"
        assert sure >= SURE, f"{name}: {sure} tokens are sure"
        print(f"ok {name}: {sure} tokens of {len(PROMPTS)} prompts, tokenizer {style(name).name}", flush=True)


transformers.utils.logging.disable_progress_bar()
torch.manual_seed(0)
for case in sys.argv[3:] or sorted(set(make.CASES) - APART):
    check(case)
