"""The kernel's own roundings in torch: what they alone do to a model's logits (s).

`Rounded` runs a LlamaForCausalLM's float32 weights teacher-forced, with nothing but float32 arithmetic and a rounding at each place where
the kernel rounds (docs/numerics.md, "Where the kernel rounds"):

    input of q, k, v, of gate, up and of the LM head   bf16, of x times the norm's gain; the norm's scale comes after the rounding; of
                    products of e4m3 weights, which the LM head's are not, f16 of a sixteenth of that; of 4-bit weights fixed point of 16 bits
    query           bf16, rotated and times log2(e)/sqrt(D): scores are powers of two
    keys, values    bf16; or e4m3 times the scale of the layer and KV head
    token's weight  bf16 relative to the row's maximum (f16 with an e4m3 cache); the sum is of the weights before that
    attention's output, SwiGLU's output   bf16, or f16 of a sixteenth, which with 4-bit weights becomes fixed point, too

The kernel's weights are relative to the running maximum of a warp, which depends on splits and on the order of the warps. The row's
maximum stands for it: the rounding is relative, so that a maximum elsewhere moves only which weights are rounded up and which down. This
place is 0.03 % of the kernel's squared error, and how the cache is split does not show in the KL (docs/numerics.md).

Attention takes ROWS queries at a time: no square of the context is ever in memory.
"""

import math

import torch
import torch.nn.functional as F

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


def attention(q, k, v, weight, rows=ROWS):
    """Causal attention from an empty cache, in base 2. q [heads, n, D] is scaled already; k and v are [KV heads, n, D].

    weight is applied to the weights 2^(score - the row's maximum) before they meet the values; their sum is of what comes in.
    """
    heads, n, dim = q.shape
    kv_heads = k.shape[0]
    group = heads // kv_heads
    out = torch.empty_like(q)
    for start in range(0, n, rows):
        end = min(start + rows, n)
        part = q[:, start:end].reshape(kv_heads, group * (end - start), dim)
        scores = (part @ k[:, :end].transpose(1, 2)).view(kv_heads, group, end - start, end)
        ahead = torch.ones(end - start, end - start, dtype=torch.bool, device=q.device).triu(1)
        scores[..., start:].masked_fill_(ahead, -math.inf)
        scores -= scores.amax(-1, keepdim=True)
        scores.exp2_()
        total = scores.sum(-1, keepdim=True)
        weights = weight(scores).view(kv_heads, group * (end - start), end)
        mean = (weights @ v[:, :end]).view(kv_heads, group, end - start, dim) / total
        out[:, start:end] = mean.reshape(heads, end - start, dim)
    return out


class Rounded:
    """The model with the kernel's roundings. Its weights are the given model's, in float32, and are not copied.

    kv is the cache's format, bf16 or e4m3, weights the layers' matrices'; scales are an e4m3 cache's, [layers, KV heads, 2] for keys and values, None for 1.
    attend(layer, q, k, v, weight) replaces attention above, for variants; round replaces the rounding to bf16, for studies of it.
    """

    def __init__(self, model, kv="bf16", scales=None, attend=None, round=bf16, weights="bf16"):
        if kv not in ("bf16", "e4m3"):
            raise ValueError(f"a KV cache in {kv}, want bf16 or e4m3")
        self.model, self.config, self.kv, self.scales, self.round = model, model.config, kv, scales, round
        self.weights = weights
        self.input, self.passed = {"bf16": (round, round), "e4m3": (sixteenth, sixteenth)}.get(weights, (fixed, passed_fixed))
        self.attend = attend or (lambda layer, q, k, v, weight: attention(q, k, v, weight))
        self.head_dim = getattr(self.config, "head_dim", None) or self.config.hidden_size // self.config.num_attention_heads

    def describe(self):
        """What the manifest says of s."""
        return {"version": VERSION, "kv": self.kv, "weights": self.weights, "places": PLACES}

    def norm(self, x, weight, input):
        """A norm's output as a matrix product's input: rounded after the gain, before the scale."""
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config.rms_norm_eps)
        return input(x * weight) * scale

    def cached(self, layer, which, x):
        """Keys (which 0) or values (1) as the cache has them; x is [KV heads, n, D]."""
        if self.kv == "bf16":
            return self.round(x)
        scale = 1.0 if self.scales is None else self.scales[layer, :, which].to(x.device).view(-1, 1, 1)
        return e4m3(x, scale)

    def layer(self, index, x, cos, sin):
        block, dim = self.model.model.layers[index], self.head_dim
        own = block.self_attn
        n = self.norm(x, block.input_layernorm.weight, self.input)
        q, k, v = (F.linear(n, p.weight).view(len(x), -1, dim).transpose(0, 1) for p in (own.q_proj, own.k_proj, own.v_proj))
        q = self.round(rotate(q, cos, sin) * (math.log2(math.e) / math.sqrt(dim)))
        k, v = self.cached(index, 0, rotate(k, cos, sin)), self.cached(index, 1, v)
        out = self.attend(index, q, k, v, f16 if self.kv == "e4m3" else self.round)
        x = x + F.linear(self.passed(out.transpose(0, 1).reshape(len(x), -1)), own.o_proj.weight)
        for start in range(0, len(x), MLP_ROWS):
            part = x[start : start + MLP_ROWS]
            n = self.norm(part, block.post_attention_layernorm.weight, self.input)
            act = F.silu(F.linear(n, block.mlp.gate_proj.weight)).mul_(F.linear(n, block.mlp.up_proj.weight))
            part += F.linear(self.passed(act), block.mlp.down_proj.weight)
        return x

    def hidden(self, tokens, last):
        """The LM head's input at the last positions of a sequence, [last, hidden]; the tokens are [n], from an empty cache."""
        x = F.embedding(tokens, self.model.model.embed_tokens.weight)
        positions = torch.arange(len(tokens), device=tokens.device)[None]
        cos, sin = (t[0] for t in self.model.model.rotary_emb(x, positions))
        for index in range(self.config.num_hidden_layers):
            x = self.layer(index, x, cos, sin)
        return self.norm(x[-last:], self.model.model.norm.weight, self.round)


def rotate(x, cos, sin):
    """The rotary embedding of x [heads, n, D] in float32, with the angles of transformers."""
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def divergence(o, s):
    """KL(o‖s) of rows of logits in nats, [rows] in float64.

    The terms p·(log p − log q) + q − p are all at least 0, so that small divergences do not drown in cancellation.
    """
    p, q = o.double().log_softmax(-1), s.double().log_softmax(-1)
    d = q - p
    return (p.exp() * (torch.expm1(d) - d)).sum(-1)
