"""Steps a kernel that mkgen generated from torch tensors, and compares it with Hugging Face transformers on the same weights.

    mkgen --model tiny -o out/tiny
    nvcc -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a -cubin -o tiny.cubin out/tiny/kernel.cu
    python examples/python/step.py --kernel out/tiny --cubin tiny.cubin                   # random weights
    python examples/python/step.py --kernel out/mine --cubin mine.cubin --checkpoint DIR  # DIR/*.safetensors

Logits of the kernel (k) are compared with transformers in float32 (o), beside transformers in bfloat16 (h): the kernel must
not be further from o than h is. Then one launch of many steps must choose the tokens that the single steps chose. Needs a GPU
of compute capability 9.0, torch, transformers, cuda-python, and safetensors for --checkpoint.
"""

import argparse
import pathlib
import sys
import time

import torch

from kernel import Kernel, load

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "gpu"))
import synth  # noqa: E402  the random weights of package models/synth


def checkpoint(directory):
    """The tensors of a safetensors checkpoint by name, read when asked for."""
    from safetensors import safe_open

    where = {}
    for path in sorted(pathlib.Path(directory).glob("*.safetensors")):
        file = safe_open(path, "pt")
        where.update(dict.fromkeys(file.keys(), file))
    return lambda name: where[name].get_tensor(name)


def reference(model, seed, directory, device):
    """LlamaForCausalLM in float32, with the weights of a checkpoint or, without a directory, random ones; and the tensors."""
    from transformers import LlamaConfig, LlamaForCausalLM

    settings = {k: v for k, v in model.items() if k not in ("name", "dtype")}
    config = LlamaConfig.from_dict({"model_type": "llama", **settings})
    config._attn_implementation = "eager"
    with torch.device(device):
        net = LlamaForCausalLM(config).float().eval()
    parameters = dict(net.named_parameters())  # without the LM head where it is tied
    if not directory:
        for name, _, recipe in synth.of_config(config):
            synth.fill(parameters[name], seed, name, recipe)
        return net, parameters.__getitem__
    tensor = checkpoint(directory)
    for name, parameter in parameters.items():
        parameter.copy_(tensor(name).to(torch.bfloat16))  # the kernel's weights
    return net, tensor


def logits_of(net, tokens, half):
    """The logits after each token, in float32; half runs the model in bfloat16, as from_pretrained would."""
    if half:
        frequencies = net.model.rotary_emb.inv_freq.clone()
        net.to(torch.bfloat16)
        net.model.rotary_emb.inv_freq = frequencies
    return net(input_ids=torch.tensor([tokens], device=net.device), use_cache=False).logits[0].float()


def divergence(o, k):
    """KL(o‖k) of each row."""
    o, k = o.double().log_softmax(-1), k.double().log_softmax(-1)
    return (o.exp() * (o - k)).sum(-1)


def compare(o, h, k):
    """Prints how far h and k are from o, and says whether k is as near as h."""
    print(f"{'':28}{'h (bfloat16)':>16}{'k (this kernel)':>18}")
    rms = lambda x: x.double().square().mean().sqrt().item()  # noqa: E731
    print(f"{'relative rms error':28}{rms(h - o) / rms(o):16.3e}{rms(k - o) / rms(o):18.3e}")
    kl_h, kl_k = divergence(o, h).mean().item(), divergence(o, k).mean().item()
    print(f"{'mean KL(o‖·)':28}{kl_h:16.3e}{kl_k:18.3e}")
    top = o.topk(2, -1).values
    clear = top[:, 0] - top[:, 1] > 3 * (h - o).square().mean(-1).sqrt()
    flips = [(clear & (x.argmax(-1) != o.argmax(-1))).sum().item() for x in (h, k)]
    print(f"{'flips of a clear top 1':28}{flips[0]:16d}{flips[1]:18d}   ({clear.sum().item()} of {len(o)} positions are clear)")
    return kl_k <= 1.1 * kl_h + 1e-6 and flips[1] == 0 and bool(torch.isfinite(k).all())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kernel", required=True, help="directory that mkgen wrote")
    parser.add_argument("--cubin", required=True, help="kernel.cu of that directory, compiled")
    parser.add_argument("--checkpoint", help="directory with *.safetensors; otherwise weights are random")
    parser.add_argument("--seed", type=int, default=1, help="of random weights and of the tokens")
    parser.add_argument("--tokens", type=int, default=48, help="tokens to feed")
    parser.add_argument("--choose", type=int, default=16, help="tokens the kernel chooses then")
    args = parser.parse_args()
    torch.set_grad_enabled(False)
    torch.backends.cuda.matmul.allow_tf32 = False

    model = load(args.kernel)["model"]
    net, tensor = reference(model, args.seed, args.checkpoint, "cuda")
    page, length = load(args.kernel)["options"]["page"], args.tokens + args.choose
    start = time.time()
    kernel = Kernel(args.kernel, args.cubin, pages=-(-length // page), tensor=tensor)
    torch.cuda.synchronize()
    print(f"{model['name']}: {len(kernel.buffers)} buffers, weights packed and filled in {time.time() - start:.1f} s")

    tokens = synth.tokens(args.seed, 0, args.tokens, model["vocab_size"]).tolist()
    rows, chosen = [], []
    for pos, token in enumerate(tokens):
        chosen = kernel.generate([token], pos)
        rows.append(kernel.view("logits").clone())
    k = torch.stack(rows)
    o = logits_of(net, tokens, half=False)
    h = logits_of(net, tokens, half=True)
    print(f"{len(tokens)} tokens, one launch each:")
    passed = compare(o, h, k)

    for pos in range(args.tokens, args.tokens + args.choose - 1):  # the kernel's own choice, a launch a token
        chosen += kernel.generate([chosen[-1]], pos)
    start = time.time()
    at_once = kernel.generate(tokens, 0, args.choose)
    took = time.time() - start
    print(f"{args.choose} tokens chosen in one launch {'are' if at_once == chosen else 'ARE NOT'} those of single steps "
          f"({took * 1e6 / (length - 1):.0f} µs a step): {at_once}")
    passed = passed and at_once == chosen
    print("passed" if passed else "FAILED")
    sys.exit(not passed)


if __name__ == "__main__":
    main()
