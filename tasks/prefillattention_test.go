package tasks_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks"
	"github.com/stretchr/testify/require"
)

// promptAttention is attention of n consecutive tokens behind pos cached ones.
type promptAttention struct {
	heads, kvHeads, d, page int
	pos, n, padded          int
	consumers, sms          int
}

func TestPrefillAttentionIsCausalOverPages(t *testing.T) {
	for _, c := range []promptAttention{
		{heads: 6, kvHeads: 2, d: 32, page: 16, pos: 0, n: 21, padded: 32, consumers: 4, sms: 2},  // tiny's
		{heads: 4, kvHeads: 1, d: 64, page: 4, pos: 37, n: 16, padded: 16, consumers: 2, sms: 1},  // pages smaller than a block
		{heads: 8, kvHeads: 1, d: 128, page: 64, pos: 70, n: 9, padded: 16, consumers: 3, sms: 1}, // 8B's heads
		{heads: 6, kvHeads: 3, d: 16, page: 1, pos: 5, n: 40, padded: 64, consumers: 2, sms: 2},
		{heads: 14, kvHeads: 2, d: 80, page: 32, pos: 0, n: 1, padded: 8, consumers: 1, sms: 1},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			r := newRig(t, setup{sms: c.sms, consumers: c.consumers})
			rng := newRand(uint64(c.d + c.n))
			layout := tasks.KVLayout{Layers: 2, Heads: c.kvHeads, D: c.d, Page: c.page}
			all := c.pos + c.n
			pages := (all+c.page-1)/c.page + 2
			table := rng.Perm(pages)
			cache := make([]uint16, layout.Layers*pages*layout.PageBytes()/2)
			for i := range cache {
				cache[i] = 0x7fc1 // what no token has written is NaN
			}
			kv := [2][][]float64{}
			for v := range 2 {
				for token := range all {
					row := normals(rng, c.kvHeads*c.d, 1)
					for i, x := range row {
						cache[layout.Index(pages, 1, table[token/c.page], i/c.d, token%c.page, v, i%c.d)] = x
					}
					kv[v] = append(kv[v], wide(row))
				}
			}
			words := make([]uint32, pages)
			for i, p := range table {
				words[i] = uint32(p)
			}
			q := normals(rng, c.n*c.heads*c.d, 1)
			out := tasks.PrefillActivations{K: c.heads * c.d, T: (c.n + c.padded - 1) / c.padded * c.padded}
			a := &tasks.PrefillAttention{Heads: c.heads, KV: layout, Q: in[dsl.BF16](r, "q", bf16Bytes(q), len(q)), Out: out,
				To: inOut[dsl.BF16](r, "to", make([]byte, 2*out.Len()), out.Len())}
			s := tasks.Step{Pos: r.scalar("pos", uint32(c.pos)), Pages: r.scalar("pages", uint32(pages)), Layer: r.k.U32(1),
				Table: in[dsl.U32](r, "table", u32Bytes(words...), 0), Cache: in[dsl.B128](r, "kv", bf16Bytes(cache), 0)}
			n := r.scalar("n", uint32(c.n))
			r.body(func(*pipeline.Consumer) { a.Emit(r.e, s, tasks.PrefillSpan{N: n}, c.padded) }, nil)
			got := bf16s(r.run()["to"])
			for token := range out.T {
				for head := range c.heads {
					want, size := make([]float64, c.d), make([]float64, c.d)
					if token < c.n {
						want, size = promptHead(c, wide(q[(token*c.heads+head)*c.d:][:c.d]), kv, head, c.pos+token)
					}
					for i := range c.d {
						have := fromBF16(got[out.Index(token, head*c.d+i)])
						require.InDelta(t, want[i], have, size[i]*0x1p-6, "token %d head %d dimension %d", token, head, i)
					}
				}
			}
		})
	}
}

// promptHead is a head's attention in float64, of a query scaled as the kernel's, and the sum of the magnitudes.
func promptHead(c promptAttention, q []float64, kv [2][][]float64, head, pos int) (out, size []float64) {
	first := head / (c.heads / c.kvHeads) * c.d
	out, size = make([]float64, c.d), make([]float64, c.d)
	total, weights, most := 0.0, make([]float64, pos+1), math.Inf(-1)
	for j := range weights {
		for i := range q {
			weights[j] += q[i] * kv[0][j][first+i]
		}
		most = max(most, weights[j])
	}
	for j, s := range weights {
		weights[j] = math.Exp2(s - most)
		total += weights[j]
	}
	for j, w := range weights {
		for i := range q {
			out[i] += w / total * kv[1][j][first+i]
			size[i] += w / total * math.Abs(kv[1][j][first+i])
		}
	}
	return out, size
}
