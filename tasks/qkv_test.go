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

// append1 is one run of the QKV epilogue.
type append1 struct {
	heads, kvHeads, d, page, pos int
}

// qkvCase is the epilogue's input and output.
type qkvCase struct {
	append1
	layout  tasks.KVLayout
	y       []float32 // packed rows
	inv     []float32
	table   []uint32
	pages   int
	q       []uint16
	cache   []uint16 // after
	before  []uint16
	layer   int
	scale   float64
	rotated func(head, i int) (float64, float64) // reference elements i and i + D/2
}

func (c append1) String() string {
	return fmt.Sprintf("%d heads, %d KV heads of %d, page %d, position %d", c.heads, c.kvHeads, c.d, c.page, c.pos)
}

// run appends one token to layer 1 of 2.
func (c append1) run(t testing.TB) *qkvCase {
	x := &qkvCase{append1: c, layer: 1, scale: 0.75, pages: 5}
	x.layout = tasks.KVLayout{Layers: 2, Heads: c.kvHeads, D: c.d, Page: c.page}
	q := &tasks.QKV{Heads: c.heads, KV: x.layout}
	rng := newRand(uint64(c.d + c.pos))
	x.y = floats(rng, q.Rows(), 2)
	for i := range c.d / 2 {
		x.inv = append(x.inv, float32(math.Pow(500000, -2*float64(i)/float64(c.d))))
	}
	for i := range c.pos/c.page + 1 { // pages of earlier tokens may coincide: only the last is touched
		x.table = append(x.table, uint32((2*i+1)%x.pages))
	}
	x.before = normals(rng, 2*x.pages*x.layout.PageBytes()/2, 1)
	r := newRig(t, setup{sms: 2, consumers: 2})
	q.InvFreq = in[dsl.F32](r, "inv_freq", f32Bytes(x.inv), len(x.inv))
	y := in[dsl.F32](r, "y", f32Bytes(x.y), len(x.y))
	step := tasks.Step{Pos: r.scalar("pos", uint32(c.pos)), Pages: r.scalar("pages", uint32(x.pages)), Layer: r.scalar("layer", uint32(x.layer)),
		Table: in[dsl.U32](r, "table", u32Bytes(x.table...), len(x.table)), Cache: inOut[dsl.B128](r, "kv", bf16Bytes(x.before), 0)}
	q.Q = out[dsl.BF16](r, "q", c.heads*c.d)
	r.body(func(*pipeline.Consumer) { r.eachPair(y, len(x.y), q.Epilogue(r.e, step, r.k.F32(x.scale))) }, nil)
	got := r.run()
	x.q, x.cache = bf16s(got["q"]), bf16s(got["kv"])
	x.rotated = func(head, i int) (float64, float64) {
		// As Hugging Face does: the angle is an f32 product; sine and cosine exact.
		angle := float64(float32(c.pos) * x.inv[i])
		a, b := x.scale*float64(x.y[head*c.d+2*i]), x.scale*float64(x.y[head*c.d+2*i+1])
		return a*math.Cos(angle) - b*math.Sin(angle), b*math.Cos(angle) + a*math.Sin(angle)
	}
	return x
}

// rounded counts bf16 results that are not the reference correctly rounded and
// requires that they are its neighbours. The f32 arithmetic in front is off by
// some 1e-6 where bf16's steps are 2⁻⁸, so fewer than one in a hundred differs.
type rounded struct {
	t            testing.TB
	off, counted int
}

func (r *rounded) check(want float64, got uint16, where string, args ...any) {
	r.counted++
	if toBF16(want) != got {
		r.off++
		require.InDelta(r.t, want, fromBF16(got), math.Abs(want)*0x1p-7+2e-6, where, args)
	}
}

func (r *rounded) done() { require.LessOrEqual(r.t, r.off, 2+r.counted/100, "of %d", r.counted) }

func TestQKVRotatesScalesAndAppends(t *testing.T) {
	cases := []append1{}
	for _, pos := range []int{0, 1, 2, 77, 1023, 131071, 1<<20 - 1} {
		cases = append(cases, append1{4, 2, 64, 64, pos})
	}
	for _, page := range []int{1, 2, 4, 8, 16, 64} {
		for _, pos := range []int{page - 1, page, 3*page + page/2} {
			cases = append(cases, append1{3, 1, 32, page, pos})
		}
	}
	for _, d := range []int{16, 32, 48, 80, 96, 128, 256} {
		cases = append(cases, append1{2, 1, d, 16, 21}, append1{8, 8, d, 8, 7})
	}
	for _, c := range cases {
		t.Run(c.String(), func(t *testing.T) {
			x := c.run(t)
			l, check := x.layout, &rounded{t: t}
			want := append([]uint16(nil), x.before...)
			at := func(head, v, dim int) int {
				return l.Index(x.pages, x.layer, int(x.table[c.pos/c.page]), head, c.pos%c.page, v, dim)
			}
			qScale := math.Log2E / math.Sqrt(float64(c.d))
			for i := range c.d / 2 {
				for h := range c.heads {
					r0, r1 := x.rotated(h, i)
					check.check(r0*qScale, x.q[h*c.d+i], "q", h, i)
					check.check(r1*qScale, x.q[h*c.d+i+c.d/2], "q", h, i+c.d/2)
				}
				for h := range c.kvHeads {
					r0, r1 := x.rotated(c.heads+h, i)
					check.check(r0, x.cache[at(h, 0, i)], "k", h, i)
					check.check(r1, x.cache[at(h, 0, i+c.d/2)], "k", h, i+c.d/2)
					want[at(h, 0, i)], want[at(h, 0, i+c.d/2)] = x.cache[at(h, 0, i)], x.cache[at(h, 0, i+c.d/2)]
				}
			}
			for h := range c.kvHeads {
				for i := range c.d { // v keeps its order and is not rotated
					y := x.scale * float64(x.y[(c.heads+c.kvHeads+h)*c.d+i])
					require.Equal(t, toBF16(y), x.cache[at(h, 1, i)], "v head %d, dimension %d", h, i)
					want[at(h, 1, i)] = x.cache[at(h, 1, i)]
				}
			}
			check.done()
			require.Equal(t, want, x.cache, "the rest of the cache is as before")
		})
	}
}

func TestQKVSourceRowIsAPermutationThatPairsRotatedRows(t *testing.T) {
	for _, c := range []append1{{heads: 4, kvHeads: 2, d: 16}, {heads: 3, kvHeads: 3, d: 80}, {heads: 9, kvHeads: 1, d: 32}} {
		q := &tasks.QKV{Heads: c.heads, KV: tasks.KVLayout{Heads: c.kvHeads, D: c.d}}
		seen := map[int]bool{}
		for r := range q.Rows() {
			s := q.SourceRow(r)
			require.False(t, seen[s])
			seen[s] = true
			require.Less(t, s, q.Rows())
			require.Equal(t, r/c.d, s/c.d, "rows stay in their head")
			switch {
			case r >= (c.heads+c.kvHeads)*c.d:
				require.Equal(t, r, s, "v keeps its order")
			case r%2 == 0:
				require.Equal(t, s+c.d/2, q.SourceRow(r+1), "the partner of a rotation follows")
			}
		}
	}
}

func TestKVLayoutPlacesEveryElementOnce(t *testing.T) {
	for _, d := range []int{16, 32, 48, 64, 80, 96, 112, 128, 256} {
		for _, page := range []int{1, 2, 4, 8, 16} {
			l := tasks.KVLayout{Layers: 2, Heads: 2, D: d, Page: page}
			const pages = 3
			seen := make([]bool, 2*pages*l.PageBytes()/2)
			for i := range len(seen) {
				dim, v, rest := i%d, i/d%2, i/d/2
				at := l.Index(pages, rest/page/2/pages, rest/page/2%pages, rest/page%2, rest%page, v, dim)
				require.False(t, seen[at], "D %d, page %d", d, page)
				seen[at] = true
			}
			require.Less(t, l.Mask(), page)
		}
	}
	// 8 neighbouring tokens read by one ldmatrix fall into 8 different 16-byte
	// columns of the 128-byte bank row where D allows it.
	l := tasks.KVLayout{Layers: 1, Heads: 1, D: 128, Page: 16}
	columns := map[int]bool{}
	for slot := range 8 {
		columns[l.Index(1, 0, 0, 0, slot, 0, 24)/8%8] = true
	}
	require.Len(t, columns, 8)
}
