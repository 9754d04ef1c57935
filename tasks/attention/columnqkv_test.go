package attention_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/mkgen/mkgen/tasks/product"
	"github.com/stretchr/testify/require"
)

// qkvColumns is one run of the QKV epilogue for several tokens, s steps into a launch.
type qkvColumns struct {
	rig.Step
	heads, kvHeads, d, page, grown int
}

func TestQKVColumnsRotateScaleAndAppend(t *testing.T) {
	cases := []qkvColumns{{rig.StepOf(2, 1, 1, 1), 4, 2, 64, 64, 5}}
	for i, s := range rig.Steps() {
		cases = append(cases, qkvColumns{s, 4, 2, []int{16, 32, 48, 64, 80, 128}[i%6], []int{1, 2, 4, 8, 16}[i%5], i % 3})
	}
	for _, c := range cases {
		t.Run(fmt.Sprint(c), c.check)
	}
}

// tokens are the step's rows: token i's position, and the entry and index of where
// it goes. Entries of a unit follow one another; every token has pages of its own.
func (c qkvColumns) tokens() (words, table []uint32, position, page, slot []int) {
	for i := range c.N {
		index := 3*i + c.page/2
		now := index + c.grown
		position, slot = append(position, 100*i*i+7+c.grown), append(slot, now%c.page)
		page = append(page, 2*i+1)
		row := make([]uint32, kv.RowWords)
		row[kv.RowPosition], row[kv.RowEntries], row[kv.RowIndex] = uint32(100*i*i+7), uint32(len(table)), uint32(index)
		words = append(words, row...)
		for e := range now/c.page + 1 {
			if e < now/c.page {
				table = append(table, 0)
			} else {
				table = append(table, uint32(page[i]))
			}
		}
	}
	return words, table, position, page, slot
}

func (c qkvColumns) frequencies() (inv []float32) {
	for i := range c.d / 2 {
		inv = append(inv, float32(math.Pow(500000, -2*float64(i)/float64(c.d))))
	}
	return inv
}

func (c qkvColumns) check(t *testing.T) {
	l := attention.KVLayout{Layers: 2, Heads: c.kvHeads, D: c.d, Page: c.page}
	q := &attention.QKVColumns{QKV: attention.QKV{Heads: c.heads, KV: l}, T: c.T}
	const layer, pages = 1, 33
	rows := q.Rows()
	rng := rig.Rand(uint64(c.d + c.T))
	y := rig.Floats(rng, c.T*rows, 2)
	before := rig.Normals(rng, 2*pages*l.PageBytes()/2, 1)
	inv := c.frequencies()
	words, table, position, page, slot := c.tokens()
	r := rig.New(t, rig.Setup{SMs: c.SMs, Consumers: c.Consumers})
	q.InvFreq, q.Q = rig.In[dsl.F32](r, "inv_freq", rig.F32Bytes(inv), len(inv)),
		rig.Out[dsl.BF16](r, "q", c.T*c.heads*c.d)
	by, scale := r.Scales(c.T)
	known := &product.ColumnRows{T: c.T, Words: dsl.Shared[dsl.U32](r.K, "words", c.T*kv.RowWords, dsl.Align(16)),
		Count: r.Scalar("n", uint32(c.N)), Grown: r.Scalar("grown", uint32(c.grown))}
	rowsIn, tableIn := rig.In[dsl.U32](r, "rows", rig.U32Bytes(words...), len(words)),
		rig.In[dsl.U32](r, "table", rig.U32Bytes(table...), len(table))
	yIn, cache := rig.In[dsl.F32](r, "y", rig.F32Bytes(y), len(y)), rig.InOut[dsl.B128](r, "kv", rig.BF16Bytes(before), 0)
	pagesIn, layerIn := r.Scalar("pages", pages), r.Scalar("layer", layer)
	r.Body(func(*pipeline.Consumer) {
		known.Load(r.Env, rowsIn, tableIn, c.page)
		r.EachColumnPair(yIn, rows, c.Padded(), known.Count,
			q.Epilogue(r.Env, attention.Step{Layer: layerIn, Pages: pagesIn, Cache: cache}, known, scale))
	}, nil)
	got := r.Run()
	have, after := rig.BF16s(got["q"]), rig.BF16s(got["kv"])
	want, check := append([]half.BF16(nil), before...), &rounded{t: t}
	for token := range c.N {
		x := y[token*rows:][:rows]
		at := func(head, v, dim int) int { return l.Index(pages, layer, page[token], head, slot[token], v, dim) }
		for i := range c.d / 2 {
			for h := range c.heads + c.kvHeads {
				angle := float64(float32(position[token]) * inv[i])
				a, b := by[token]*float64(x[h*c.d+2*i]), by[token]*float64(x[h*c.d+2*i+1])
				r0, r1 := a*math.Cos(angle)-b*math.Sin(angle), b*math.Cos(angle)+a*math.Sin(angle)
				if h < c.heads {
					f, to := math.Log2E/math.Sqrt(float64(c.d)), (token*c.heads+h)*c.d+i
					check.check(r0*f, have[to], "q", token, h, i)
					check.check(r1*f, have[to+c.d/2], "q", token, h, i+c.d/2)
					continue
				}
				for j, v := range []float64{r0, r1} {
					to := at(h-c.heads, 0, i+j*c.d/2)
					check.check(v, after[to], "k", token, h, i)
					want[to] = after[to]
				}
			}
		}
		for h := range c.kvHeads {
			for i := range c.d {
				v := float32(by[token]) * x[(c.heads+c.kvHeads+h)*c.d+i]
				want[at(h, 1, i)] = rig.ToBF16(float64(v))
			}
		}
	}
	check.done()
	require.Equal(t, want, after, "the rest of the cache is as before")
	for _, v := range have[c.N*c.heads*c.d:] {
		require.EqualValues(t, 0xffff, v, "written beyond the step's tokens")
	}
}
