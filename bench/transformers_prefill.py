"""Times the first token of prompts in Hugging Face transformers, in bfloat16, when it is asked to.

    python bench/transformers_prefill.py --config config.json [--seed 1] [--attention sdpa]

bench/compare.py --prefill starts it, and asks it between runs of mkgen. It makes the weights that `mkgen bench --random SEED` makes
(tests/gpu/synth.py), writes a line of JSON about itself, and then answers each line of its input with a line of JSON:

    prompt TOKENS ROUNDS EVERY   times of rounds in us by the host's clock, from the call with the prompt to having the token that follows; and every
                                 EVERY-th of the logits it is chosen by. The prompt is that of `mkgen bench --prefill`.
    product TOKENS               TFLOP/s of the product of the first layer's MLP for TOKENS tokens, back to back for a third of a second

A round keeps keys and values of the whole prompt, as a generation that goes on would need, and makes logits of the last token alone.
"""

import argparse
import copy
import json
import pathlib
import sys
import time

import torch
import transformers
from transformers import LlamaConfig

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "gpu"))
import reference  # noqa: E402

WARM_UP = 2  # rounds before those that count
SUSTAINED = 0.35  # seconds of a product


def synchronize(device):
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def prompt_of(n, vocab):
    """The tokens of `mkgen bench --prefill`."""
    return [(1 + 7 * i % vocab) % vocab for i in range(n)]


def prompt(model, device, n, rounds, every):
    tokens = torch.tensor([prompt_of(n, model.config.vocab_size)], device=device)
    times, logits = [], None
    for i in range(WARM_UP + rounds):
        synchronize(device)
        begin = time.perf_counter()
        out = model(input_ids=tokens, use_cache=True, logits_to_keep=1)
        logits = out.logits[0, -1]
        logits.argmax().item()
        took = 1e6 * (time.perf_counter() - begin)
        del out
        if i >= WARM_UP:
            times.append(float(f"{took:.6g}"))
    return {"rounds_us": times, "logits": logits[::every].float().tolist()}


def product(model, device, n):
    matrix = model.model.layers[0].mlp.gate_proj.weight
    x = torch.randn(n, matrix.shape[1], device=device).to(matrix.dtype)
    torch.nn.functional.linear(x, matrix)
    synchronize(device)
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < SUSTAINED:
        for _ in range(8):
            torch.nn.functional.linear(x, matrix)
        synchronize(device)
        count += 8
    took = time.perf_counter() - begin
    return {"tflop_s": float(f"{2 * n * matrix.numel() * count / took / 1e12:.6g}")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--config", type=pathlib.Path, required=True, help="a Hugging Face config.json")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--attention", default="sdpa", choices=["sdpa", "eager"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    torch.set_grad_enabled(False)
    config = LlamaConfig.from_dict(copy.deepcopy(json.loads(args.config.read_text())))
    model, weights_hash = reference.build(config, args.seed, args.device)
    model = reference.to_bf16(model, args.attention)
    if args.device.startswith("cuda"):
        torch.cuda.empty_cache()
    about = {"torch": torch.__version__, "transformers": transformers.__version__, "weights_hash": weights_hash, "attention": args.attention,
             "device": torch.cuda.get_device_name() if args.device.startswith("cuda") else args.device}
    print(json.dumps(about), flush=True)
    for line in sys.stdin:
        what, *numbers = line.split()
        answer = {"prompt": prompt, "product": product}[what](model, args.device, *map(int, numbers))
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
