package attention_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/mkgen/mkgen/tasks/product"
	"github.com/stretchr/testify/require"
)

// append1 is one run of the QKV epilogue.
type append1 struct {
	heads, kvHeads, d, page, pos int
	kv                           attention.KVType
}

// qkvCase is the epilogue's input and output.
type qkvCase struct {
	append1
	layout  attention.KVLayout
	y       []float32 // packed rows
	inv     []float32
	table   []uint32
	pages   int
	q       []half.BF16
	cache   []byte // after
	before  []byte
	scales  []float32 // of e4m3, [layer][kvHeads][K, V]
	layer   int
	scale   float64
	rotated func(head, i int) (float64, float64) // reference elements i and i + D/2
}

func (c append1) String() string {
	return fmt.Sprintf("%d heads, %d KV heads of %d, page %d, position %d %s", c.heads, c.kvHeads, c.d, c.page, c.pos,
		c.kv)
}

// run appends one token to layer 1 of 2.
func (c append1) run(t testing.TB) *qkvCase {
	x := &qkvCase{append1: c, layer: 1, scale: 0.75, pages: 5}
	x.layout = attention.KVLayout{Layers: 2, Heads: c.kvHeads, D: c.d, Page: c.page, Type: c.kv}
	q := &attention.QKV{Heads: c.heads, KV: x.layout}
	rng := rig.Rand(uint64(c.d + c.pos))
	x.y = rig.Floats(rng, q.Rows(), 2)
	for i := range c.d / 2 {
		x.inv = append(x.inv, float32(math.Pow(500000, -2*float64(i)/float64(c.d))))
	}
	for i := range c.pos/c.page + 1 { // pages of earlier tokens may coincide: only the last is touched
		x.table = append(x.table, uint32((2*i+1)%x.pages))
	}
	x.before = rig.BF16Bytes(rig.Normals(rng, 2*x.pages*x.layout.PageBytes()/2, 1))
	for i := range x.layout.ScalesLen() { // the greatest values saturate
		x.scales = append(x.scales, []float32{1, 0.25, 0.006, 0.01}[i%4])
	}
	r := rig.New(t, rig.Setup{SMs: 2, Consumers: 2})
	q.InvFreq = rig.In[dsl.F32](r, "inv_freq", rig.F32Bytes(x.inv), len(x.inv))
	y := rig.In[dsl.F32](r, "y", rig.F32Bytes(x.y), len(x.y))
	step := attention.Step{Pos: r.Scalar("pos", uint32(c.pos)), Pages: r.Scalar("pages", uint32(x.pages)),
		Layer: r.Scalar("layer", uint32(x.layer)), Table: rig.In[dsl.U32](r, "table", rig.U32Bytes(x.table...), len(x.table)),
		Cache: rig.InOut[dsl.B128](r, "kv", x.before, 0)}
	if c.kv == attention.KVE4M3 {
		step.Scales = rig.In[dsl.F32](r, "scales", rig.F32Bytes(x.scales), len(x.scales))
	}
	q.Q = rig.Out[dsl.BF16](r, "q", c.heads*c.d)
	r.Body(func(*pipeline.Consumer) {
		scale := func() product.NormScale { return product.KnownScale(r.K.F32(x.scale)) }
		r.EachRows(y, len(x.y), q.Epilogue(r.Env, step, scale))
	}, nil)
	got := r.Run()
	x.q, x.cache = rig.BF16s(got["q"]), got["kv"]
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

// stored checks element e of a cache: in bf16, or in e4m3 with a scale, where a
// code that is not the nearest to the reference must be next to it, and the
// reference within 1e-6 of the point between the two.
func (r *rounded) stored(want float64, cache []byte, e int, kv attention.KVType, scale float64, where string,
	args ...any) {
	if kv != attention.KVE4M3 {
		r.check(want, rig.BF16s(cache[2*e : 2*e+2])[0], where, args...)
		return
	}
	r.counted++
	got, best := int(cache[e]), e4m3Nearest(want/scale)
	if got != best {
		r.off++
		require.Contains(r.t, []int{-1, 1}, got-best, where, args)
		require.InDelta(r.t, want/scale, (e4m3Value(got)+e4m3Value(best))/2, math.Abs(want/scale)*1e-6+2e-6/scale, where,
			args)
	}
}

func (r *rounded) check(want float64, got half.BF16, where string, args ...any) {
	r.counted++
	if rig.ToBF16(want) != got {
		r.off++
		require.InDelta(r.t, want, rig.FromBF16(got), math.Abs(want)*0x1p-7+2e-6, where, args)
	}
}

func (r *rounded) done() { require.LessOrEqual(r.t, r.off, 2+r.counted/100, "of %d", r.counted) }

func TestQKVRotatesScalesAndAppends(t *testing.T) {
	cases := []append1{}
	for _, pos := range []int{0, 1, 2, 77, 1023, 131071, 1<<20 - 1} {
		cases = append(cases, append1{4, 2, 64, 64, pos, ""})
	}
	for _, page := range []int{1, 2, 4, 8, 16, 64} {
		for _, pos := range []int{page - 1, page, 3*page + page/2} {
			cases = append(cases, append1{3, 1, 32, page, pos, ""})
		}
	}
	for _, d := range []int{16, 32, 48, 80, 96, 128, 256} {
		cases = append(cases, append1{2, 1, d, 16, 21, ""}, append1{8, 8, d, 8, 7, ""})
	}
	for _, c := range cases[:len(cases):len(cases)] {
		c.kv = attention.KVE4M3
		cases = append(cases, c)
	}
	for _, c := range cases {
		t.Run(c.String(), func(t *testing.T) {
			x := c.run(t)
			l, check := x.layout, &rounded{t: t}
			want := append([]byte(nil), x.before...)
			kScale, vScale, size := func(int) float64 { return 1 }, func(int) float64 { return 1 }, 2
			if c.kv == attention.KVE4M3 {
				size = 1
				kScale = func(h int) float64 { return float64(x.scales[(x.layer*c.kvHeads+h)*2]) }
				vScale = func(h int) float64 { return float64(x.scales[(x.layer*c.kvHeads+h)*2+1]) }
			}
			keep := func(e int) { copy(want[e*size:(e+1)*size], x.cache[e*size:]) }
			at := func(head, v, dim int) int {
				return l.Index(x.pages, x.layer, int(x.table[c.pos/c.page]), head, c.pos%c.page, v, dim)
			}
			qScale := math.Log2E / math.Sqrt(float64(c.d))
			for i := range c.d / 2 {
				for h := range c.heads {
					r0, r1 := x.rotated(h, i)
					check.check(r0*qScale, x.q[h*c.d+l.KeyOrder(i)], "q", h, i)
					check.check(r1*qScale, x.q[h*c.d+l.KeyOrder(i+c.d/2)], "q", h, i+c.d/2)
				}
				for h := range c.kvHeads {
					r0, r1 := x.rotated(c.heads+h, i)
					check.stored(r0, x.cache, at(h, 0, i), c.kv, kScale(h), "k", h, i)
					check.stored(r1, x.cache, at(h, 0, i+c.d/2), c.kv, kScale(h), "k", h, i+c.d/2)
					keep(at(h, 0, i))
					keep(at(h, 0, i+c.d/2))
				}
			}
			for h := range c.kvHeads {
				for i := range c.d { // v keeps its order and is not rotated
					y := x.scale * float64(x.y[(c.heads+c.kvHeads+h)*c.d+i])
					if c.kv != attention.KVE4M3 {
						require.Equal(t, rig.ToBF16(y), rig.BF16s(x.cache[2*at(h, 1, i):][:2])[0], "v head %d, dimension %d", h, i)
					}
					check.stored(y, x.cache, at(h, 1, i), c.kv, vScale(h), "v", h, i)
					keep(at(h, 1, i))
				}
			}
			check.done()
			require.Equal(t, want, x.cache, "the rest of the cache is as before")
		})
	}
}

func TestQKVSourceRowIsAPermutationThatPairsRotatedRows(t *testing.T) {
	for _, c := range []append1{{heads: 4, kvHeads: 2, d: 16}, {heads: 3, kvHeads: 3, d: 80},
		{heads: 9, kvHeads: 1, d: 32}} {
		q := &attention.QKV{Heads: c.heads, KV: attention.KVLayout{Heads: c.kvHeads, D: c.d}}
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
	for _, kv := range attention.KVTypes() {
		for d := 16; d <= 256; d += 16 {
			for _, page := range []int{1, 2, 4, 8, 16} {
				l := attention.KVLayout{Layers: 2, Heads: 2, D: d, Page: page, Type: kv}
				const pages = 3
				seen := make([]bool, 2*pages*l.Heads*l.Page*2*d)
				for i := range len(seen) {
					dim, v, rest := i%d, i/d%2, i/d/2
					at := l.Index(pages, rest/page/2/pages, rest/page/2%pages, rest/page%2, rest%page, v, dim)
					require.False(t, seen[at], "D %d, page %d", d, page)
					seen[at] = true
				}
				require.Len(t, seen, l.Layers*pages*l.PageBytes()*d/(l.TokenBytes()/2))
				require.Less(t, l.Mask(), page)
			}
		}
	}
}

// The 8 rows of 16 bytes that ldmatrix reads at once, of 8 tokens that follow one
// another, begin in 8 different columns of a row of shared memory's banks, 128
// bytes, whatever the head dimension: from pages of 8 tokens on.
func TestRowsOfAMatrixLieInDifferentBanks(t *testing.T) {
	for _, kv := range attention.KVTypes() {
		for d := 16; d <= 256; d += 16 {
			for _, page := range []int{8, 16, 64} {
				l := attention.KVLayout{Layers: 1, Heads: 1, D: d, Page: page, Type: kv}
				per := 16 * d * 2 / l.TokenBytes() // elements a unit
				for unit := range d / per {
					for v := range 2 {
						columns := map[int]bool{}
						for slot := range 8 {
							dim := unit * per
							if v == 0 && kv == attention.KVE4M3 {
								dim /= 2 // K's first element of a unit, see KeyOrder
							}
							columns[l.Index(1, 0, 0, 0, slot, v, dim)/per%8] = true
						}
						require.Len(t, columns, 8, "%s, D %d, page %d, unit %d of %d", kv, d, page, unit, v)
					}
				}
			}
		}
	}
}
