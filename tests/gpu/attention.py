"""The PyTorch side of the attention benchmark: checks what our kernel computed, and times PyTorch's own decode attention.

    python attention.py DIR [--out FILE] [--device cuda] [--cases a,b] [--check-only]

DIR/NAME/case.json are cases as package tests/gpu/attention/cases writes them, with little-endian files beside them: q (bf16, [T][heads][D]),
what our kernel made of it for some layers (f32 or bf16, [T][heads][D]), the bits of a custom mask (u32). Keys and values are not
moved: a layer's cache is the tensor "kv.<layer>" of synth.py's generator, in the cache's own order of elements, or a file.

The reference is float64 throughout on the values the kernel had. A case passes when both hold for each layer written:

    everywhere            |ours - reference| <= 1.01 * 2^-7 W + 6 k          W = sum of p |v|
    each row and head     rms(ours - reference) <= 1.25 * 2^-8 * rms(reference, p v) + 2 k

with p the weights of attention (softmax or sigmoid), rms(reference, p v) the root of the mean over dimensions of reference^2 + sum of
(p v)^2: rounding each weight and the output to bf16, by 2^-8 at most and unrelated, comes to about half of that; and k what rounding keys and queries after a transform
makes of the logits (case.json: key_rounding, relative; 0 where both are used as they lie in memory). A token lost shows in the second rule.

Written as JSON to FILE (default DIR/torch.json), which tests/gpu/attention merges into the record. Exit code 1: a case failed.
"""

import argparse
import json
import math
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import attention_timing  # noqa: E402
import synth  # noqa: E402

RULES = {"element": 1.01 * 2.0**-7, "rms": 1.25 * 2.0**-8, "keys_element": 6.0, "keys_rms": 2.0}


def fill_e4m3(tensor, seed, name):
    """Random signs and mantissas, exponents from -2 to 1: package cases has the formula."""
    flat = tensor.view(-1)
    for start in range(0, flat.numel(), synth.SLICE):
        r = synth.counter(seed, name, start, min(synth.SLICE, flat.numel() - start), tensor.device)
        flat[start : start + len(r)] = ((r & 0x87) | ((r >> 8 & 3) + 5) << 3).to(torch.uint8)


class Case:
    """case.json and the files beside it, on a device."""

    def __init__(self, directory, device):
        self.dir, self.device = pathlib.Path(directory), device
        c = self.raw = json.loads((self.dir / "case.json").read_text())
        self.name, self.heads, self.kv_heads, self.dim = c["name"], c["heads"], c["kv_heads"], c["head_dim"]
        self.page, self.pages, self.layers = c["page"], c["pages"], c["layers"]
        self.scale, self.key_rounding = c["score_scale"], c.get("key_rounding", 0.0)
        self.sequences = [(s["cached"], s["new"]) for s in c["sequences"]]
        self.variants = [v.get("params") or {} for v in c["variants"]]  # layer l has number l modulo how many there are
        self.per_head = c.get("per_head", False)
        self.rows = sum(new for _, new in self.sequences)
        if c["kv_dtype"] not in ("bf16", "e4m3"):
            raise ValueError(f"kv_dtype {c['kv_dtype']!r}, want bf16 or e4m3")
        self.e4m3 = c["kv_dtype"] == "e4m3"
        lists = len(self.sequences) * (self.kv_heads if self.per_head else 1)
        if len(c["indptr"]) != lists + 1 or len(c["last_page_len"]) != lists or c["indptr"][-1] != len(c["indices"]):
            raise ValueError("indptr, indices and last_page_len do not fit the sequences")
        self.indices = torch.tensor(c["indices"], dtype=torch.int64, device=device)
        self._kv = (None, None)

    def file(self, name, dtype, shape):
        path, want = self.dir / name, math.prod(shape)
        if path.stat().st_size != want * torch.empty(0, dtype=dtype).element_size():
            raise ValueError(f"{path} has {path.stat().st_size} bytes, want {want} elements of {dtype}")
        return torch.frombuffer(bytearray(path.read_bytes()), dtype=dtype).reshape(shape).to(self.device)

    def q(self):
        return self.file(self.raw["files"]["q"], torch.bfloat16, (self.rows, self.heads, self.dim))

    def ours(self, out):
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[self.raw["out_dtype"]]
        return self.file(out["file"], dtype, (self.rows, self.heads, self.dim)).double()

    def layer(self, layer):
        """One layer of the cache, [page][KV head][slot][unit of 16 bytes][element], kept until another is asked for."""
        each, dtype = (16, torch.uint8) if self.e4m3 else (8, torch.bfloat16)
        shape = (self.pages, self.kv_heads, self.page, 2 * self.dim // each, each)
        if self._kv[0] != layer:
            self._kv = (None, None)
            if "kv" in self.raw["files"]:
                kv = self.file(self.raw["files"]["kv"], dtype, (self.layers, *shape))[layer]
            else:
                kv = torch.empty(shape, dtype=dtype, device=self.device)
                fill = fill_e4m3 if self.e4m3 else lambda *a: synth.fill(*a, synth.normal(self.raw["kv_std"]))
                fill(kv, self.raw["seed"], f"kv.{layer}")
            self._kv = (layer, kv)
        return self._kv[1]

    def tokens(self, s):
        return sum(self.sequences[s])

    def dense(self, layer, s):
        """K and V of sequence s, [KV head][token][D] each: the pages in order, without the permutation of units, and in e4m3 of keys,
        and times the scales (tasks/attention/kv.go)."""
        kv, n = self.layer(layer), self.tokens(s)
        units, m = kv.shape[3], 1
        while m < 8 and units % (2 * m) == 0:
            m *= 2
        every = 8 // m
        m = max(1, min(m, self.page // every))
        slot = torch.arange(self.page, device=self.device)[:, None]
        unit = torch.arange(units, device=self.device) ^ (slot // every % m)
        def tokens_of(pages, heads):
            x = kv[pages][:, heads][:, :, slot, unit]  # [page][head][slot][unit][element]
            return x.reshape(len(pages), -1, self.page, 2, self.dim).permute(3, 1, 0, 2, 4).reshape(2, x.shape[1], -1, self.dim)[:, :, :n]
        if self.per_head:
            both = torch.cat([tokens_of(self.row(s * self.kv_heads + h, n), slice(h, h + 1)) for h in range(self.kv_heads)], 1)
        else:
            both = tokens_of(self.row(s, n), slice(None))
        if not self.e4m3:
            return both
        d = torch.arange(self.dim, device=self.device)
        both = both.view(torch.float8_e4m3fn).float()
        both = torch.stack([both[0][..., d % (self.dim // 2) * 2 + d // (self.dim // 2)], both[1]])
        scales = torch.tensor(self.raw["kv_scales"], dtype=torch.float64, device=self.device).view(self.layers, self.kv_heads, 2)[layer]
        return both.double() * scales.T[:, :, None, None]

    def row(self, r, n):
        """Pages of block-sparse row r, which must hold n tokens."""
        first, end = self.raw["indptr"][r], self.raw["indptr"][r + 1]
        holds = (end - first - 1) * self.page + self.raw["last_page_len"][r]
        if holds != n:
            raise ValueError(f"row {r} holds {holds} tokens, its sequence has {n}")
        return self.indices[first:end]

    def positions(self, s):
        """Of sequence s's new tokens."""
        cached, new = self.sequences[s]
        start = sum(n for _, n in self.sequences[:s])
        given = self.raw.get("rows") or []
        return [given[start + i]["position"] if given else cached + i for i in range(new)], start


def visible(case, v, s, start, qpos, kpos):
    """[new][token] booleans: which keys each new token of sequence s attends to."""
    cached, new = case.sequences[s]
    device = case.device
    n = cached + new
    seen = torch.zeros(new, n, dtype=torch.bool, device=device)
    seen[:, :cached] = True
    given = case.raw.get("rows") or []
    for i in range(new):
        tail = given[start + i]["tail"] if given else (2 << i) - 1
        for j in range(new):
            seen[i, cached + j] = bool(tail >> j & 1)
    if v.get("window"):
        seen &= (kpos[None] < v.get("sinks", 0)) | (kpos[None] > qpos[:, None] - v["window"])
    if v.get("mask"):
        path = case.dir / case.raw["files"]["mask"]
        words = case.file(path.name, torch.int32, (path.stat().st_size // 4,))
        i = torch.arange(n, device=device)
        for r in range(new):
            seen[r] &= (words[given[start + r]["mask"] + i // 32] >> (i % 32) & 1).bool()
    return seen


def rotate(x, position, rope):
    """Rotary embedding of x [...][token][D] in float64, pairs (d, d + D/2) as Hugging Face's Llama."""
    half = x.shape[-1] // 2
    freq = torch.tensor(rope["inv_freq"], dtype=torch.float64, device=x.device)
    angle = position.double()[:, None] * freq
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def reference(case, layer, s, q):
    """What new tokens of sequence s should get: out, W, the sum over (p v)^2 and the variance that rounded keys add, [new][heads][D]."""
    v, (cached, new) = case.variants[layer % len(case.variants)], case.sequences[s]
    keys, vals = (t.double() for t in case.dense(layer, s))
    qpos, start = case.positions(s)
    qpos = torch.tensor(qpos, device=case.device)
    kpos = torch.cat([torch.arange(cached, device=case.device), qpos])  # a draft tree's tokens are where they would be accepted
    group = case.heads // case.kv_heads
    query = q.double().reshape(new, case.kv_heads, group, case.dim).permute(1, 2, 0, 3)  # [KV head][group][new][D]
    if rope := v.get("rope"):
        gone = max(0, cached + 1 - v["window"] - v.get("sinks", 0)) if v.get("window") else 0  # StreamingLLM: places among the keys left
        keys = rotate(keys, torch.where(kpos < v.get("sinks", 0), kpos, kpos - gone), rope)
        query = rotate(query, qpos - gone, rope)
    scale = torch.full((case.kv_heads, group, 1, 1), case.scale, dtype=torch.float64, device=case.device)
    if v.get("head_scale"):
        scale *= torch.tensor(v["head_scale"], dtype=torch.float64, device=case.device).reshape(scale.shape)
    logits = query @ keys[:, None].transpose(-1, -2) * scale
    if v.get("softcap"):
        logits = v["softcap"] * (logits / v["softcap"]).tanh()
    if v.get("alibi"):
        slopes = torch.tensor(v["alibi"], dtype=torch.float64, device=case.device).reshape(scale.shape)
        logits += slopes * (kpos[None] - qpos[:, None])
    seen = visible(case, v, s, start, qpos, kpos)
    if "sigmoid" in v:
        p = (logits + v["sigmoid"].get("bias", 0.0)).sigmoid().masked_fill(~seen, 0)
        slope = p * (1 - p)
    else:
        p = logits.masked_fill(~seen, -math.inf).softmax(-1).nan_to_num(0)  # nothing visible: nothing comes of it
        slope = p
    out = p @ vals[:, None]
    weight, squares = p @ vals[:, None].abs(), p.square() @ vals[:, None].square()
    keyed = torch.zeros_like(out)
    if case.key_rounding:
        spread = (query * scale).square() @ keys[:, None].square().transpose(-1, -2) * case.key_rounding**2  # of each logit
        term = slope.square() * spread
        keyed = 2 * (term @ vals[:, None].square() + term.sum(-1, keepdim=True) * out.square())
    return tuple(t.permute(2, 0, 1, 3).reshape(new, case.heads, case.dim) for t in (out, weight, squares, keyed))


def check(case):
    """The verdict on every layer that our kernel left."""
    q, verdicts = case.q(), []
    for out in case.raw["outs"]:
        ours = case.ours(out)
        v = {"layer": out["layer"], "finite": bool(ours.isfinite().all()), "max_error": 0.0, "worst_element": 0.0, "worst_rms": 0.0, "where": ""}
        for s, (_, new) in enumerate(case.sequences):
            start = case.positions(s)[1]
            want, weight, squares, keyed = reference(case, out["layer"], s, q[start : start + new])
            error = (ours[start : start + new] - want).abs().nan_to_num(math.inf)
            bound = RULES["element"] * weight + RULES["keys_element"] * keyed.sqrt() + 1e-30
            rms_bound = RULES["rms"] * (want.square() + squares).mean(-1).sqrt() + RULES["keys_rms"] * keyed.mean(-1).sqrt() + 1e-30
            rms = error.square().mean(-1).sqrt() / rms_bound
            v["max_error"] = max(v["max_error"], error.max().item())
            v["worst_element"] = max(v["worst_element"], (error / bound).max().item())
            if rms.max().item() > v["worst_rms"]:
                v["worst_rms"] = rms.max().item()
                row, head = divmod(rms.argmax().item(), case.heads)
                v["where"] = f"sequence {s}, row {row}, head {head}"
        v["passed"] = v["finite"] and v["worst_element"] <= 1 and v["worst_rms"] <= 1
        verdicts.append({k: number(x) for k, x in v.items()})
    return {"passed": bool(verdicts) and all(v["passed"] for v in verdicts), "layers": verdicts}


def number(x):
    """JSON has no infinity."""
    return x if not isinstance(x, float) else 1e300 if not math.isfinite(x) else float(f"{x:.4g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--cases", help="beginnings of names, with commas between: what FILE has of the others is kept; default all, anew")
    parser.add_argument("--check-only", action="store_true", help="time nothing")
    args = parser.parse_args()
    torch.set_grad_enabled(False)
    out = args.out or args.dir / "torch.json"
    names = sorted(p.parent.name for p in args.dir.glob("*/case.json") if p.parent.name.startswith(tuple((args.cases or "").split(","))))
    if not names:
        sys.exit(f"attention: no cases under {args.dir}")
    report = {"torch": torch.__version__, "device": torch.cuda.get_device_name() if args.device.startswith("cuda") else args.device,
              "rules": RULES, "cases": []}
    if args.cases and out.exists():
        report["cases"] = [c for c in json.loads(out.read_text())["cases"] if c["name"] not in names]
    for name in names:
        case = Case(args.dir / name, args.device)
        result = {"name": name, "check": check(case)}
        if case.raw.get("time") and not args.check_only:
            result["pytorch"] = attention_timing.measure(case)
        report["cases"].append(result)
        out.write_text(json.dumps(report, indent=1) + "\n")  # as far as it has come
        worst = max((v["worst_rms"] for v in result["check"]["layers"]), default=math.nan)
        print(f"attention: {name}: {'passed' if result['check']['passed'] else 'FAILED'}, error {worst:.3g} of what is allowed; "
              f"{attention_timing.summary(result.get('pytorch'))}", file=sys.stderr, flush=True)
    if not all(r["check"]["passed"] for r in report["cases"]):
        sys.exit(1)


if __name__ == "__main__":
    main()
