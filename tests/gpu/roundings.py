"""The kernel's own roundings in torch: what they alone do to a model's logits (s).

`Rounded` runs a model's float32 weights, of any family that mkgen describes, teacher-forced, with nothing but float32 arithmetic and a rounding at each place where
the kernel rounds (docs/numerics.md, "Where the kernel rounds"):

    input of q, k, v, of gate, up and of the LM head   bf16, of x times the norm's gain; the norm's scale comes after the rounding; of
                    products of e4m3 weights f16 of a sixteenth of that; of 4-bit weights fixed point of 16 bits
    query           bf16, rotated and times log2(e)/sqrt(D): scores are powers of two
    keys, values    bf16; or e4m3 times the scale of the layer and KV head
    token's weight  bf16 relative to the row's maximum (f16 with an e4m3 cache, but for prefill kernels); the sum is of the weights before that
    attention's output, SwiGLU's output   bf16, or f16 of a sixteenth, which with 4-bit weights becomes fixed point, too

The kernel's weights are relative to the running maximum of a warp, which depends on splits and on the order of the warps. The row's
maximum stands for it: the rounding is relative, so that a maximum elsewhere moves only which weights are rounded up and which down. This
place is 0.03 % of the kernel's squared error, and how the cache is split does not show in the KL (docs/numerics.md).

Attention takes ROWS queries at a time: no square of the context is ever in memory.
"""

import math

import torch
import torch.nn.functional as F

import kvrows

VERSION = 2  # of the places above; package lab/gate refuses another
ROWS = 256
MLP_ROWS = 8192
E4M3_MAX = 448.0
PLACES = ("inputs of matrix products, queries, keys, values, attention's weights relative to their row's maximum, "
          "attention's and SwiGLU's output")


def bf16(x):
    """The nearest bf16 of each element, as float32."""
    return x.to(torch.bfloat16).to(torch.float32)


def f16(x):
    """The nearest f16 of each element, as float32."""
    return x.to(torch.float16).to(torch.float32)


def sixteenth(x):
    """The input of a product of e4m3 weights: the nearest f16 of a sixteenth of each element, times 16, as float32."""
    return f16(x / 16) * 16


def by_token(x):
    """The input of a product of e4m3 by e4m3: each token's elements in bf16, over their largest magnitude over 448, to e4m3, times that again."""
    x = bf16(x)
    return e4m3(x, (x.abs().amax(-1, keepdim=True) / E4M3_MAX).clamp(min=2.0**-100))


def fixed(x):
    """Input of products of 4-bit weights: each group of 128 elements as whole multiples of the least power of two of which its largest is at
    most 32639 (pipeline/i4, Fixed), as float32."""
    columns = x.shape[-1]
    groups = F.pad(x, (0, -columns % 128)).unflatten(-1, (-1, 128))
    most = groups.abs().amax(-1, keepdim=True)
    mantissa, exponent = torch.frexp(most)  # most = mantissa * 2**exponent, 0.5 <= mantissa < 1
    unit = torch.ldexp(torch.ones_like(most), exponent - 15 + (mantissa > 32639 / 32768).int())
    unit = torch.where(most == 0, torch.ones_like(most), unit.clamp(min=2.0**-122))
    return ((groups / unit).round() * unit).flatten(-2)[..., :columns]


def passed_fixed(x):
    """The same of vectors that have passed through memory as f16 of a sixteenth."""
    return fixed(sixteenth(x))


def e4m3(x, scale):
    """What an e4m3 cache makes of x: x/scale rounded to nearest even, at most 448, times scale."""
    return (x / scale).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).to(torch.float32) * scale


def attention(q, k, v, weight, window=0, cap=0.0, rows=ROWS):
    """Causal attention from an empty cache, in base 2. q [heads, n, D] is scaled already; k and v are [KV heads, n, D].

    A query sees the last window keys, its own included; all of them for 0. cap is a soft cap of scores, in nats; 0 for none.
    weight is applied to the weights 2^(score - the row's maximum) before they meet the values; their sum is of what comes in.
    """
    heads, n, dim = q.shape
    kv_heads = k.shape[0]
    group = heads // kv_heads
    out = torch.empty_like(q)
    for start in range(0, n, rows):
        end = min(start + rows, n)
        first = max(0, start - window + 1) if window else 0
        part = q[:, start:end].reshape(kv_heads, group * (end - start), dim)
        scores = (part @ k[:, first:end].transpose(1, 2)).view(kv_heads, group, end - start, end - first)
        if cap:
            scores = cap * math.log2(math.e) * torch.tanh(scores / (cap * math.log2(math.e)))
        row, key = (torch.arange(*ends, device=q.device) for ends in ((start, end), (first, end)))
        hidden = key[None] > row[:, None]
        if window:
            hidden |= key[None] <= row[:, None] - window
        scores.masked_fill_(hidden, -math.inf)
        scores -= scores.amax(-1, keepdim=True)
        scores.exp2_()
        total = scores.sum(-1, keepdim=True)
        weights = weight(scores).view(kv_heads, group * (end - start), end - first)
        mean = (weights @ v[:, first:end]).view(kv_heads, group, end - start, dim) / total
        out[:, start:end] = mean.reshape(heads, end - start, dim)
    return out


def llama(model):
    """What `mkgen describe --json` would print of a LlamaForCausalLM, as far as Rounded reads it."""
    c = model.config
    dim = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    rms, none = {"Kind": "rms", "Eps": c.rms_norm_eps, "PlusOne": False}, {"Kind": "none"}
    layer = {"PreAttn": rms, "PostAttn": none, "PreMLP": rms, "PostMLP": none, "Residual": 1, "MLP": {"Act": "silu"},
             "Attn": {"HeadDim": dim, "QKNorm": none, "Rope": {"Dims": dim, "Interleaved": False, "Factor": 1},
                      "Scale": 1 / math.sqrt(dim), "Window": 0, "SoftCap": 0}}
    tensors = [{"Role": role, "Layer": -1, "Name": name, "First": 0, "Rows": None} for role, name in (
        ("embedding", "model.embed_tokens.weight"), ("final norm", "model.norm.weight"))]
    names = {"attention norm": "input_layernorm", "mlp norm": "post_attention_layernorm",
             **{r: f"self_attn.{r}_proj" for r in "qkvo"}, **{r: f"mlp.{r}_proj" for r in ("gate", "up", "down")}}
    for index in range(c.num_hidden_layers):
        tensors += [{"Role": role, "Layer": index, "Name": f"model.layers.{index}.{name}.weight", "First": 0, "Rows": None} for role, name in names.items()]
    return {"arch": {"Embed": {"Scale": 1}, "Kinds": [layer], "Pattern": [0] * c.num_hidden_layers, "Final": rms, "Head": {"Scale": 1, "SoftCap": 0}},
            "inv_freq": [model.model.rotary_emb.inv_freq.tolist()], "tensors": tensors}


class Rounded:
    """The model with the kernel's roundings. Its weights are the given model's, in float32, and are not copied.

    description is what `mkgen describe --json` prints of the model, None for a Llama.
    kv is the cache's format, bf16 or e4m3, weights the layers' matrices'; scales are an e4m3 cache's, [layers, KV heads, 2] for keys and values, None for 1.
    head is the LM head's format. inputs is the format of weights whose kernels round the inputs of products as this one does: None the same; prefill kernels' are bf16's, and so are their weights of tokens.
    e4m3-tokens: in e4m3 with a scale a token.
    attend(layer, q, k, v, weight) replaces attention above, for variants; round replaces the rounding to bf16, for studies of it.
    """

    def __init__(self, model, kv="bf16", scales=None, attend=None, round=bf16, weights="bf16", description=None, inputs=None, head="bf16"):
        if kv not in ("bf16", "e4m3"):
            raise ValueError(f"a KV cache in {kv}, want bf16 or e4m3")
        self.kv, self.scales, self.round = kv, scales, round
        self.weights, self.inputs = weights, inputs or weights
        self.weight = f16 if kv == "e4m3" and inputs is None else round
        of = {"bf16": (round, round), "e4m3": (sixteenth, sixteenth), "e4m3b128": (sixteenth, sixteenth), "e4m3-tokens": (by_token, by_token)}
        (self.input, self.passed), (self.head, _) = (of.get(f, (fixed, passed_fixed)) for f in (self.inputs, head))
        d = description or llama(model)
        self.arch, self.inv_freq = d["arch"], d["inv_freq"]
        parameters = dict(model.named_parameters())
        self.tensors = {}
        for t in d["tensors"]:
            w = parameters[t["Name"]]
            self.tensors[t["Role"], t["Layer"]] = w if t["Rows"] is None else w[t["First"] : t["First"] + t["Rows"]]
        self.attend = attend or self.plain

    def plain(self, layer, q, k, v, weight):
        a = self.kind(layer)["Attn"]
        return attention(q, k, v, weight, a["Window"], a["SoftCap"])

    def kind(self, layer):
        return self.arch["Kinds"][self.arch["Pattern"][layer]]

    def describe(self):
        """What the manifest says of s."""
        return {"version": VERSION, "kv": self.kv, "weights": self.weights, "inputs": self.inputs, "places": PLACES}

    def gain(self, norm, role, layer):
        w = self.tensors[role, layer]
        return 1 + w if norm["PlusOne"] else w

    def norm(self, x, norm, role, layer, input):
        """A norm's output as a matrix product's input: rounded after the gain, before the scale. Without a norm, x rounded."""
        if norm["Kind"] == "none":
            return input(x)
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm["Eps"])
        return input(x * self.gain(norm, role, layer)) * scale

    def exact(self, x, norm, role, layer):
        """A norm that rounds nothing: of q and k, and behind a branch."""
        if norm["Kind"] == "none":
            return x
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + norm["Eps"]) * self.gain(norm, role, layer)

    def linear(self, x, role, layer):
        return F.linear(x, self.tensors[role, layer], self.tensors.get((role + " bias", layer)))

    def cached(self, layer, which, x):
        """Keys (which 0) or values (1) as the cache has them; x is [KV heads, n, D]."""
        if self.kv == "bf16":
            return self.round(x)
        scale = 1.0 if self.scales is None else self.scales[layer, :, which].to(x.device).view(-1, 1, 1)
        return e4m3(x, scale)

    def heads(self, x, a, role, layer):
        """A projection's heads, [heads, n, D], normalised where the model does so."""
        wide = a["QKNorm"]["Kind"] != "none" and a["QKNormWide"]
        if wide:
            x = self.exact(x, a["QKNorm"], role + " norm", layer)
        x = x.view(len(x), -1, a["HeadDim"]).transpose(0, 1)
        return x if wide else self.exact(x, a["QKNorm"], role + " norm", layer)

    def layer(self, index, x):
        kind = self.kind(index)
        a, rope = kind["Attn"], kind["Attn"]["Rope"]
        inv_freq = self.inv_freq[self.arch["Pattern"][index]] or []
        n = self.norm(x, kind["PreAttn"], "attention norm", index, self.input)
        q, k = (rotate(self.heads(self.linear(n, role, index), a, role, index), inv_freq, rope) for role in "qk")
        v = self.linear(n, "v", index).view(len(x), -1, a["HeadDim"]).transpose(0, 1)
        q = self.round(q * (math.log2(math.e) * a["Scale"]) * growth(a.get("Grows"), q))
        k, v = self.cached(index, 0, k), self.cached(index, 1, v)
        kvrows.observe(k[None], v[None])
        out = self.attend(index, q, k, v, self.weight)
        y = self.linear(self.passed(out.transpose(0, 1).reshape(len(x), -1)), "o", index)
        x = x + kind["Residual"] * self.exact(y, kind["PostAttn"], "post-attention norm", index)
        act = F.silu if kind["MLP"]["Act"] == "silu" else lambda t: F.gelu(t, approximate="tanh")
        for start in range(0, len(x), MLP_ROWS):
            part = x[start : start + MLP_ROWS]
            n = self.norm(part, kind["PreMLP"], "mlp norm", index, self.input)
            y = self.linear(self.passed(act(self.linear(n, "gate", index)).mul_(self.linear(n, "up", index))), "down", index)
            part += kind["Residual"] * self.exact(y, kind["PostMLP"], "post-mlp norm", index)
        return x

    def hidden(self, tokens, last):
        """The LM head's input at the last positions of a sequence, [last, hidden]; the tokens are [n], from an empty cache."""
        x = F.embedding(tokens, self.tensors["embedding", -1]) * self.arch["Embed"]["Scale"]
        for index in range(len(self.arch["Pattern"])):
            x = self.layer(index, x)
        return self.norm(x[-last:], self.arch["Final"], "final norm", -1, self.head)


def growth(grows, q):
    """The factor of queries q [heads, n, D] by their positions (models.Growth)."""
    if not grows or not grows["Every"]:
        return 1
    steps = torch.arange(q.shape[1], device=q.device) // grows["Every"]
    return (1 + grows["Beta"] * torch.log1p(steps.float()))[:, None]


def rotate(x, inv_freq, rope):
    """The rotary embedding of the first elements of x [heads, n, D], at positions 0 … n−1, in float32 as transformers computes it."""
    if not len(inv_freq):
        return x
    n, dims = x.shape[1], 2 * len(inv_freq)
    angles = torch.arange(n, device=x.device).float()[:, None] * torch.tensor(inv_freq, dtype=torch.float32, device=x.device)
    cos, sin = (f(angles) * rope["Factor"] for f in (torch.cos, torch.sin))
    turned, rest = x[..., :dims], x[..., dims:]
    a, b = (turned[..., 0::2], turned[..., 1::2]) if rope["Interleaved"] else turned.chunk(2, -1)
    a, b = a * cos - b * sin, b * cos + a * sin
    turned = torch.stack((a, b), -1).flatten(-2) if rope["Interleaved"] else torch.cat((a, b), -1)
    return torch.cat((turned, rest), -1)


def divergence(o, s):
    """KL(o‖s) of rows of logits in nats, [rows] in float64.

    The terms p·(log p − log q) + q − p are all at least 0, so that small divergences do not drown in cancellation.
    """
    p, q = o.double().log_softmax(-1), s.double().log_softmax(-1)
    d = q - p
    return (p.exp() * (torch.expm1(d) - d)).sum(-1)
