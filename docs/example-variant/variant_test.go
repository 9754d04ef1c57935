package chunked

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/tasks/attention"
)

// bf16 rounds to nearest even, and wide is its value.
func bf16(x float64) uint16 {
	u := math.Float32bits(float32(x))
	return uint16((u + 0x7fff + u>>16&1) >> 16)
}

func wide(b uint16) float64 { return float64(math.Float32frombits(uint32(b) << 16)) }

// scene is random queries, keys and values; token i lies in page i/Page.
type scene struct {
	Shape
	pos        int
	q          []float64 // [head·D], without the kernel's scale
	keys, vals [][]float64
	memory     map[string][]byte
}

func newScene(s Shape, pos int) *scene {
	rng := rand.New(rand.NewPCG(uint64(pos), 1))
	x := &scene{Shape: s, pos: pos}
	l := attention.KVLayout{Layers: 1, Heads: s.KVHeads, D: s.D, Page: s.Page}
	pages := pos/s.Page + 1
	kv := make([]byte, pages*l.PageBytes())
	var q, table []byte
	factor := math.Log2E / math.Sqrt(float64(s.D))
	for range s.Heads * s.D {
		b := bf16(rng.NormFloat64() * factor)
		q = binary.LittleEndian.AppendUint16(q, b)
		x.q = append(x.q, wide(b)/factor)
	}
	for i := range pages {
		table = binary.LittleEndian.AppendUint32(table, uint32(i))
	}
	for tok := range pos + 1 {
		both := [2][]float64{}
		for v := range both {
			for i := range s.KVHeads * s.D {
				b := bf16(rng.NormFloat64())
				at := l.Index(pages, 0, tok/s.Page, i/s.D, tok%s.Page, v, i%s.D)
				binary.LittleEndian.PutUint16(kv[2*at:], b)
				both[v] = append(both[v], wide(b))
			}
		}
		x.keys, x.vals = append(x.keys, both[0]), append(x.vals, both[1])
	}
	x.memory = map[string][]byte{"q": q, "table": table, "kv": kv, "barrier": make([]byte, 4)}
	return x
}

func (x *scene) run(t *testing.T, v *attention.Variant, seed uint64) []byte {
	kernel, err := Kernel(x.Shape, v)
	if err != nil {
		t.Fatal(err)
	}
	program, err := interp.Load(kernel)
	if err != nil {
		t.Fatal(err)
	}
	m := interp.NewMemory()
	for _, b := range kernel.Globals() {
		data, given := x.memory[b.Name]
		m.Bind(b.Name, append(make([]byte, 0, max(len(data), int(b.Bytes()))),
			append(data, make([]byte, max(0, int(b.Bytes())-len(data)))...)...))
		if !given {
			m.MarkUninit(b.Name)
		}
	}
	params := map[string]uint64{"pos": uint64(x.pos), "pages": uint64(x.pos/x.Page + 1)}
	if _, err := program.Run(m, interp.Options{Seed: seed, Params: params}); err != nil {
		t.Fatal(err)
	}
	return m.Bytes("out")
}

// check compares with the variant in float64. Weights are rounded to bf16, and
// so is the output: 2⁻⁷ of the weighted mean of |v|.
func (x *scene) check(t *testing.T, v *attention.Variant, out []byte) {
	for head := range x.Heads {
		h := head / (x.Heads / x.KVHeads)
		var at []attention.Place
		var keys, vals, size [][]float64
		for i := range x.pos + 1 {
			at = append(at, attention.Place{Head: h, Index: i, Position: i})
			keys, vals = append(keys, x.keys[i][h*x.D:(h+1)*x.D]), append(vals, x.vals[i][h*x.D:(h+1)*x.D])
			abs := make([]float64, x.D)
			for d := range abs {
				abs[d] = math.Abs(vals[i][d])
			}
			size = append(size, abs)
		}
		query := attention.Place{Head: head, Heads: x.Heads, Position: x.pos, First: x.pos}
		want, _ := v.Attend(query, x.q[head*x.D:(head+1)*x.D], at, keys, vals)
		scale, _ := v.Attend(query, x.q[head*x.D:(head+1)*x.D], at, keys, size)
		for d := range want {
			got := wide(binary.LittleEndian.Uint16(out[2*(head*x.D+d):]))
			if !(math.Abs(got-want[d]) <= 0x1p-7*scale[d]+1e-6) {
				t.Fatalf("position %d, head %d, dimension %d: %g, want %g", x.pos, head, d, got, want[d])
			}
		}
	}
}

func TestVariants(t *testing.T) {
	both, err := attention.Combine(Chunked(48), Temperature(0.5, 16))
	if err != nil {
		t.Fatal(err)
	}
	shape := Shape{Heads: 4, KVHeads: 2, D: 32, Page: 16, CTAs: 2, Consumers: 2, Splits: 2}
	for _, v := range []*attention.Variant{nil, Chunked(48), Temperature(0.5, 16), both} {
		for _, pos := range []int{0, 15, 16, 47, 48, 49, 100, 143} {
			x := newScene(shape, pos)
			first := x.run(t, v, 0)
			x.check(t, v, first)
			for seed := range uint64(3) {
				if got := x.run(t, v, seed); string(got) != string(first) {
					t.Fatalf("seed %d gives other bits", seed)
				}
			}
		}
	}
}

// Without the mask, or with another chunk size, the output is another.
func TestTheMaskMatters(t *testing.T) {
	shape := Shape{Heads: 2, KVHeads: 1, D: 32, Page: 16, CTAs: 1, Consumers: 2, Splits: 1}
	x := newScene(shape, 100)
	seen := map[string]bool{}
	for _, v := range []*attention.Variant{nil, Chunked(48), Chunked(64)} {
		seen[string(x.run(t, v, 0))] = true
	}
	if len(seen) != 3 {
		t.Fatalf("three variants give %d outputs", len(seen))
	}
}
