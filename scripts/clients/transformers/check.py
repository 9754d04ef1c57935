"""Text in, text out: check.py URL KEY (both unused) [CASE ...] runs $MKGEN on checkpoints that transformers writes, of every family.

The models are those of tests/families/make.py, of odd sizes, in bf16 and in shards of 30 kB, each with a tokenizer and a chat template of its
family's style. What mkgen run continues prompts with, one row a step and eight, and what it answers with --chat, must be transformers' greedy text
in float32, up to the first token whose logit is nearly another one's, by what bf16 changes of them: two arithmetics may choose differently there.

check.py URL KEY --golden FILE [CASE ...] puts what transformers says into FILE instead, with all that the checkpoints are made of: cmd/mkgen's
tests make them again and run them without transformers.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import safetensors.torch
import torch
import transformers

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "tests" / "families"), str(ROOT / "tests" / "gpu")]
import make  # noqa: E402
import synth  # noqa: E402

STYLES = {"llama2": "llama2", "mistral": "mistral", "mistral-nemo": "tekken", "ministral": "tekken", "ministral3": "tekken", "qwen2": "qwen2", "qwen3": "qwen2",
          "phi3": "phi3", "gemma": "gemma", "glm": "glm4", "glm4": "glm4", "smollm3": "smollm", "olmo2": "gpt2", "granite": "gpt2", "phi4-mini": "o200k",
          "internlm3": "unigram-bytes", "internlm2": "llama2", "helium": "unigram-bytes", "ernie4_5": "metaspace"}
# What templates say of the day, so that goldens do not depend on it; cmd/mkgen/texts_test.go has it, too.
GOLDEN_DAY = {'strftime_now("%Y-%m-%d")': '"2026-11-26"', 'strftime_now("%A")': '"Thursday"'}

# By the style of tokenizer a template with its family's constructs.
TEMPLATES = {"mistral": "brackets", "tekken": "brackets", "gemma": "turns", "qwen2": "thinking", "llama2": "alternate", "phi3": "alternate"}
# dynamic scaling: the kernel has the frequencies of the longest context, transformers those of the present one. InternLM 3 goes without.
APART = {"llama-dynamic"}
PROMPTS = ["Die Möwe fliegt", "func main() {", "in 2024, 3", "今天天气", "The quick brown fox", "Hello, world!", "über den Fluß", "x", "El niño comió",
           "a b c d", "It's what we'll", "[1, 2, 3]", "Быстрая", "end.", "  two", "x86_64"]
CHATS = [("", "Hello, world!"), ("Be brief.", "Die Möwe fliegt")]  # system message, question
TOKENS, NEAR, SURE = 12, 0.1, 4


def style(name):
    longest = max((s for s in STYLES if name.startswith(s)), key=len, default=None)
    return ROOT / "models/tokenizer/testdata" / (f"styles/{STYLES[longest]}" if longest else "llama3-like")


def template(name):
    default = "simple" if style(name).name == "llama3-like" else "chatml"
    return ROOT / f"models/tokenizer/testdata/templates/{TEMPLATES.get(style(name).name, default)}.jinja"


def bos(tokenizer):
    """The token that templates may begin with, None where the style has none."""
    return next((t for t in ("<|begin_of_text|>", "<s>") if t in tokenizer.get_vocab()), None)


def write(name, folder):
    """The case's model and tokenizer as transformers saves them; returns the recipes of the weights by name."""
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(style(name) / "tokenizer.json"))
    tokenizer.bos_token = bos(tokenizer)
    tokenizer.chat_template = template(name).read_text(encoding="utf-8")
    for call, day in GOLDEN_DAY.items():
        tokenizer.chat_template = tokenizer.chat_template.replace(call, day)
    fields = {k: v for k, v in json.loads(json.dumps(make.CASES[name])).items() if k not in ("torch_dtype", "auto_map", "transformers_version")}
    fields |= {"intermediate_size": 104, "vocab_size": len(tokenizer) + 3, "eos_token_id": len(tokenizer) + 2}
    if name == "internlm3":
        fields |= {"rope_scaling": None, "max_position_embeddings": make.SIZES["max_position_embeddings"]}
    if fields["max_position_embeddings"] == make.SIZES["max_position_embeddings"] and not fields.get("rope_scaling") and not fields.get("rope_parameters"):
        for length in {"max_position_embeddings", "original_max_position_embeddings"} & set(fields):
            fields[length] = 512  # a conversation is longer than a prompt
    if fields.get("head_dim") and name != "helium":  # whose o is square
        fields["hidden_size"] = 72
    if name == "internlm2":
        return write_internlm2(fields, tokenizer, folder)
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    of = transformers.MllamaForCausalLM._from_config if name == "mllama" else transformers.AutoModelForCausalLM.from_config
    model = of(config, attn_implementation="eager").requires_grad_(False)
    recipes = {parameter: make.recipe(parameter, values.shape, config) for parameter, values in model.named_parameters()}
    for parameter, values in model.named_parameters():
        synth.fill(values, make.SEED, parameter, recipes[parameter])
    model.to(torch.bfloat16).save_pretrained(folder, max_shard_size="30KB")
    assert len(list(folder.glob("*.safetensors"))) > 2, "not sharded"
    tokenizer.save_pretrained(folder)
    return recipes


def write_internlm2(fields, tokenizer, folder):
    """InternLM 2's checkpoint, which transformers does not write, and in folder/llama the same as Llama's."""
    fields["rope_scaling"], fields["max_position_embeddings"] = None, 512
    (folder / "config.json").write_text(json.dumps(fields | {"architectures": make.CASES["internlm2"]["architectures"], "torch_dtype": "bfloat16"}))
    llama = {k: v for k, v in fields.items() if k != "bias"} | {"model_type": "llama", "attention_bias": fields["bias"], "architectures": ["LlamaForCausalLM"]}
    config = transformers.LlamaConfig(**llama)
    model = transformers.LlamaForCausalLM._from_config(config, attn_implementation="eager").requires_grad_(False)
    recipes, shards, places = {}, [{} for _ in range(4)], {}
    for i, (tensor, shape, *r) in enumerate(make.internlm2(model, config)):
        recipes[tensor] = ("gain", 0, 0) if r == ["gain"] else ("normal", *r)
        values = torch.empty(shape)
        synth.fill(values, make.SEED, tensor, recipes[tensor])
        shards[i % 4][tensor], places[tensor] = values.to(torch.bfloat16), f"model-{i % 4 + 1:05}-of-00004.safetensors"
    for i, shard in enumerate(shards):
        safetensors.torch.save_file(shard, folder / f"model-{i + 1:05}-of-00004.safetensors", {"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    model.to(torch.bfloat16).save_pretrained(folder / "llama")
    tokenizer.save_pretrained(folder)
    tokenizer.save_pretrained(folder / "llama")
    return recipes


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


def conversation(system, question):
    return ([{"role": "system", "content": system}] if system else []) + [{"role": "user", "content": question}]


def loaded(folder, name):
    """The model in float32, the same in bf16, and the tokenizer."""
    of = transformers.MllamaForCausalLM if name == "mllama" else transformers.AutoModelForCausalLM
    folder = folder / "llama" if name == "internlm2" else folder
    exact, rounded = (of.from_pretrained(folder, dtype=t, attn_implementation="eager").eval() for t in (torch.float32, torch.bfloat16))
    return exact, rounded, transformers.AutoTokenizer.from_pretrained(folder)


def theirs(model, bf16, tokenizer, ids):
    """Transformers' tokens after ids, up to the first that is no sure one: their number, and as text.

    Sure is what leads by NEAR of the logits' spread, and by three times what bf16 changes of them at that position, as the gate has it.
    """
    ids = torch.tensor([ids])
    spelled = {i for i, t in tokenizer.added_tokens_decoder.items() if t.normalized}  # docs/tokenizers.md: they decode otherwise here
    room = model.config.get_text_config().max_position_embeddings - ids.shape[1]
    out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=min(TOKENS, room), output_logits=True, return_dict_in_generate=True)
    new, sure = out.sequences[0, ids.shape[1] :].tolist(), 0
    with torch.no_grad():
        again = bf16(out.sequences[:, :-1], use_cache=False).logits[0, ids.shape[1] - 1 :].float()
    for logits, h in zip(out.logits, again):
        first, second = logits[0].topk(2).values.tolist()
        apart = max(NEAR * logits[0].std().item(), 3 * (h - logits[0]).square().mean().sqrt().item())
        if first - second < apart or new[sure] in spelled:
            break
        sure += 1
    while sure and (tokenizer.convert_ids_to_tokens(new[sure - 1]) or "").startswith("<0x"):  # what follows decides what bytes stand for
        sure -= 1
    before = tokenizer.decode(ids[0], skip_special_tokens=True)
    text = tokenizer.decode(ids[0].tolist() + new[:sure], skip_special_tokens=True)
    return sure, text[len(before) :].rstrip("\ufffd")


def answers(folder, name, asked=PROMPTS):
    """What transformers says to the prompts and to the conversations that leave room."""
    model, bf16, tokenizer = loaded(folder, name)
    longest = model.config.get_text_config().max_position_embeddings - 4
    prompts = [theirs(model, bf16, tokenizer, tokenizer(p, return_token_type_ids=False)["input_ids"]) for p in asked]
    chats = []
    for system, question in CHATS:
        ids = tokenizer.apply_chat_template(conversation(system, question), add_generation_prompt=True, return_dict=False)
        if len(ids) <= longest:
            chats.append((system, question, *theirs(model, bf16, tokenizer, ids)))
    return prompts, chats


def check(name):
    with tempfile.TemporaryDirectory() as at:
        folder = Path(at)
        write(name, folder)
        prompts, chats = answers(folder, name)
        sure = sum(n for n, _ in prompts)
        for rows in (1, 8):
            for prompt, (n, text), got in zip(PROMPTS, prompts, ours(folder, rows)):
                assert got.startswith(text), f"{name}, {rows} rows, {prompt!r}, {n} sure tokens: {got!r}, want {text!r}"
        for system, question, n, text in chats:
            # no more tokens than are compared: a model of 64 positions has no room for others
            got = mkgen(folder, "--chat", *(["--system", system] if system else []), "--rows", "8", "--max-tokens", str(max(n, 1)), question)
            assert got.startswith(text), f"{name}, conversation {system!r} {question!r}, {n} sure tokens: {got!r}, want {text!r}"
        assert sure >= SURE, f"{name}: {sure} tokens are sure"
        in_chats = f", {sum(n for _, _, n, _ in chats)} of {len(chats)} conversations by {template(name).stem}" if chats else ""
        print(f"ok {name}: {sure} tokens of {len(PROMPTS)} prompts{in_chats}, tokenizer {style(name).name}", flush=True)


def golden(name):
    """All that a checkpoint is made of, and what transformers says."""
    with tempfile.TemporaryDirectory() as at:
        folder = Path(at)
        recipes = write(name, folder)
        shards = []
        for file in sorted(folder.glob("*.safetensors")):
            with safetensors.safe_open(file, "pt") as f:
                shards.append([[n, f.get_slice(n).get_shape(), *recipes[n][0 if recipes[n][0] == "gain" else 1 :][: 1 if recipes[n][0] == "gain" else 2]] for n in f.keys()])
        prompts, chats = answers(folder, name, PROMPTS[:4])
        at = lambda path: str(path.relative_to(ROOT / "models/tokenizer/testdata"))  # noqa: E731
        return {"name": name, "tokenizer": at(style(name)), "template": at(template(name)), "bos": json.loads((folder / "tokenizer_config.json").read_text()).get("bos_token"), "config": json.loads((folder / "config.json").read_text()),
                "shards": shards, "prompts": [[p, *a] for p, a in zip(PROMPTS, prompts)], "chats": chats}


transformers.utils.logging.disable_progress_bar()
torch.manual_seed(0)
args = sys.argv[3:]
file = Path(args[1]) if args[:1] == ["--golden"] else None
cases = args[2 if file else 0 :] or sorted(set(make.CASES) - APART)
if file:
    held = {c["name"]: c for c in json.loads(file.read_text(encoding="utf-8"))} if file.exists() else {}
    for case in cases:
        held[case] = golden(case)
        lines = [json.dumps(held[n], separators=(",", ":"), ensure_ascii=False) for n in sorted(held)]
        file.write_text("[" + ",\n".join(lines) + "]\n", encoding="utf-8")
else:
    for case in cases:
        check(case)
