"""Times PyTorch's decode attention on a case of attention.py: scaled_dot_product_attention in all the ways it can be put, and FlexAttention.

Every way works on dense keys and values, padded where sequences differ, the tokens of a sequence contiguous: PyTorch is spared the page table.
There are so many copies ("layers") that no layer's is left in the L2 cache when its turn comes again; a run over all of them is a CUDA
graph where that can be captured, so that no time of the host is in it. A way whose output is wrong does not count.
"""

import statistics
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

REPLAYS = 15
WORKING_SET = 8  # times the L2 cache
MOST_BYTES = 40 << 30  # of all copies
TOLERANCE = 2e-2  # of a way's output, relative to the largest value: catches a wrong mask, not a rounding


class Inputs:
    """Dense tensors of a timed case: q [B][heads][1][D], k and v [B][KV heads][longest][D] for each layer."""

    def __init__(self, case):
        if any(new != 1 for _, new in case.sequences) or any(case.variants) or case.e4m3:
            raise ValueError("only decoding steps of one token a sequence, causal, in bf16, are timed")
        lens = [case.tokens(s) for s in range(len(case.sequences))]
        self.device, self.scale, self.batch, self.longest = case.device, case.scale, len(lens), max(lens)
        self.heads, self.kv_heads, self.dim = case.heads, case.kv_heads, case.dim
        self.lens, self.lengths = lens, torch.tensor(lens, device=case.device)
        self.bytes = sum(lens) * case.kv_heads * case.dim * 4
        self.q = case.q()[:, :, None].contiguous()
        k = torch.zeros(self.batch, case.kv_heads, self.longest, case.dim, dtype=torch.bfloat16, device=case.device)
        v = torch.zeros_like(k)
        for s, n in enumerate(lens):
            k[s, :, :n], v[s, :, :n] = case.dense(0, s)
        case._kv = (None, None)  # a layer of the cache is no longer needed
        self.l2 = torch.cuda.get_device_properties(0).L2_cache_size if case.device.startswith("cuda") else 1 << 20
        one = 2 * k.numel() * 2
        self.layers = max(2, min(-(-WORKING_SET * self.l2 // self.bytes), MOST_BYTES // one))
        self.kv = [(k, v)] + [(k.clone(), v.clone()) for _ in range(self.layers - 1)]
        self.want = self.loop(*self.kv[0], dtype=torch.float64)

    def loop(self, k, v, dtype=None):
        """Sequence by sequence, the heads of a group as rows of one query: no padding is read."""
        rows = self.q.view(self.batch, self.kv_heads, -1, self.dim)
        if dtype:
            out = torch.empty(rows.shape, dtype=dtype, device=self.device)
            for s, n in enumerate(self.lens):
                p = (rows[s].to(dtype) @ k[s, :, :n].to(dtype).transpose(-1, -2) * self.scale).softmax(-1)
                out[s] = p @ v[s, :, :n].to(dtype)
            return out.view(self.batch, self.heads, 1, self.dim)
        outs = [sdpa(rows[s : s + 1], k[s : s + 1, :, :n], v[s : s + 1, :, :n], scale=self.scale) for s, n in enumerate(self.lens)]
        return torch.cat(outs).view(self.batch, self.heads, 1, self.dim)

    def loop_gqa(self, k, v):
        return torch.cat([sdpa(self.q[s : s + 1], k[s : s + 1, :, :n], v[s : s + 1, :, :n], scale=self.scale, enable_gqa=True)
                          for s, n in enumerate(self.lens)])

    def ways(self):
        """Name and function of (k, v) of each way to put it to scaled_dot_product_attention."""
        padded = len(set(self.lens)) > 1
        mask = (torch.arange(self.longest, device=self.device) < self.lengths[:, None])[:, None, None] if padded else None
        group = self.heads // self.kv_heads
        rows = self.q.view(self.batch, self.kv_heads, group, self.dim)
        wide = mask.expand(self.batch, 1, group, self.longest) if padded else None

        def grouped(k, v):
            return sdpa(rows, k, v, attn_mask=wide, scale=self.scale).view(self.q.shape)

        def gqa(k, v):
            return sdpa(self.q, k, v, attn_mask=mask, scale=self.scale, enable_gqa=True)

        yield "batch, enable_gqa", gqa
        yield "batch, heads of a group as rows", grouped
        if self.batch > 1:
            yield "sequence by sequence, enable_gqa", self.loop_gqa
            yield "sequence by sequence, heads of a group as rows", self.loop


def graph_of(run, device):
    """A callable that replays run, captured; or run itself, with why."""
    if not device.startswith("cuda"):
        return run, "no GPU"
    try:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            run()
            run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        return graph.replay, ""
    except Exception as e:  # noqa: BLE001: whatever keeps it from being captured
        torch.cuda.synchronize()
        return run, str(e).split("\n")[0][:200]


def median_us(run, device):
    """Median of the replays in microseconds, by the GPU's events."""
    if not device.startswith("cuda"):
        start = time.perf_counter()
        run()
        return 1e6 * (time.perf_counter() - start)
    for _ in range(3):
        run()
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(REPLAYS)]
    for begin, end in events:
        begin.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return 1e3 * statistics.median(begin.elapsed_time(end) for begin, end in events)


def attempt(inputs, how, fn):
    """What came of one way: us per layer, or the error."""
    try:
        got = fn(*inputs.kv[0]).double()
        error = ((got - inputs.want).abs().max() / inputs.want.abs().max()).item()
        if not error <= TOLERANCE:
            return {"how": how, "error": f"wrong output: {error:.3g} of the largest value"}
        del got
        kept = [None]

        def run():
            for k, v in inputs.kv:
                kept[0] = fn(k, v)

        replay, why = graph_of(run, inputs.device)
        us = median_us(replay, inputs.device) / inputs.layers
        result = {"how": how, "us": round(us, 3), "gb_s": round(inputs.bytes / us / 1e3, 1)}
        return result | ({"eager": why} if why else {})
    except Exception as e:  # noqa: BLE001: a way that this PyTorch has not
        return {"how": how, "error": f"{type(e).__name__}: {str(e).strip()}"[:400]}


def sdpa_ways(inputs):
    backends = {"": None, ", flash": SDPBackend.FLASH_ATTENTION, ", efficient": SDPBackend.EFFICIENT_ATTENTION, ", cuDNN": SDPBackend.CUDNN_ATTENTION}
    for how, fn in inputs.ways():
        for suffix, backend in backends.items():
            if backend is None:
                yield attempt(inputs, how, fn)
                continue
            if not inputs.device.startswith("cuda"):
                continue
            with sdpa_kernel(backend):
                yield attempt(inputs, how + suffix, fn)


def flex_ways(inputs):
    try:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        torch._dynamo.reset()
        compiled = torch.compile(flex_attention, dynamic=False) if inputs.device.startswith("cuda") else flex_attention
        lengths = inputs.lengths

        def inside(b, h, q, k):
            return k < lengths[b]

        block = create_block_mask(inside, inputs.batch, None, 1, inputs.longest, device=inputs.device)
    except Exception as e:  # noqa: BLE001
        yield {"how": "flex", "error": f"{type(e).__name__}: {str(e).strip()}"[:400]}
        return

    def masked(k, v):
        return compiled(inputs.q, k, v, block_mask=block, scale=inputs.scale, enable_gqa=True)

    def plain(k, v):
        return compiled(inputs.q, k, v, scale=inputs.scale, enable_gqa=True)

    yield attempt(inputs, "flex, block mask", masked)
    if len(set(inputs.lens)) == 1:
        yield attempt(inputs, "flex, no mask", plain)


def best(tried):
    good = [t for t in tried if "us" in t]
    return min(good, key=lambda t: t["us"]) if good else {"error": tried[0]["error"] if tried else "nothing tried"}


def measure(case):
    """PyTorch's own decode attention on the case's inputs: us a layer and GB/s of valid keys and values, each read once a sequence."""
    try:
        inputs = Inputs(case)
    except Exception as e:  # noqa: BLE001: too big, or of a kind that is not timed
        return {"error": f"{type(e).__name__}: {str(e).strip()}"[:400]}
    tried = list(sdpa_ways(inputs))
    flexed = list(flex_ways(inputs))
    out = {"layers": inputs.layers, "kv_bytes": inputs.bytes, "sdpa": best(tried), "flex": best(flexed), "tried": tried + flexed}
    del inputs
    if case.device.startswith("cuda"):
        torch.cuda.empty_cache()
    return out


def summary(measured):
    if not measured:
        return "not timed"
    if "error" in measured:
        return "not timed: " + measured["error"]
    return ", ".join(f"{name} {m['us']} us, {m['gb_s']} GB/s ({m['how']})" if "us" in m else f"{name}: {m['error'][:80]}"
                     for name, m in (("SDPA", measured["sdpa"]), ("Flex", measured["flex"])))
