package product

import (
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/i4"
	"github.com/mkgen/mkgen/tasks/grid"
)

// Int4Input is what a lane has of some groups of an input: the same for all row tiles.
type Int4Input struct {
	words [][][][]i32 // [set][group][quarter]: four words; where weights are A only one quarter, the lane's
	units [][]f32     // [set][group]
	sums  [][][]i32   // [set][group]: of its 32 columns, the lane's half only where weights are A
}

// Input loads n groups, 1, 2 or a multiple of 4, of the input of one token from group first on, a multiple of n.
func (p *Int4) Input(e *grid.Env, first u32, n int) *Int4Input {
	if why := p.problem(); why != "" {
		return nil // Begin says it
	}
	quarter, half := e.Lane.DivC(4).RemC(4), p.half(e)
	var words [][][]i32
	var sums [][]i32
	for i := range n {
		at := first.AddC(i).MulC(4).Add(quarter).MulC(4).Add(e.Lane.RemC(4))
		var four []i32
		for j, w := range p.X.Bytes.LoadN(at.MulC(4), 4) {
			if p.Sixteen() { // B's columns 0 to 3 have the even words, and 4 to 7 the odd ones
				w = dsl.Select(e.Lane.ShrC(4).EqC(j%2), w, e.K.U32(0))
			} else if p.Spread() { // the first two, and the last two
				w = dsl.Select(e.Lane.ShrC(4).EqC(j/2), w, e.K.U32(0))
			}
			four = append(four, dsl.Bits[dsl.I32](w))
		}
		words = append(words, [][]i32{four})
		if p.Shape.Zeros {
			sums = append(sums, p.X.Sums.LoadN(first.AddC(i).MulC(4).Add(half.MulC(2)), 2))
		}
	}
	units := loadMany(p.X.Units, first, n)
	if p.Shape.E2M1 {
		for i, unit := range units {
			units[i] = unit.Mul(e.K.F32(2)) // of codes times 8, and not 16
		}
	}
	return &Int4Input{words: [][][][]i32{words}, units: [][]f32{units}, sums: [][][]i32{sums}}
}

// sum is the sum of a group's fixed points over quarters of its columns, from first to before end, of those that a lane
// has.
func (x *Int4Input) sum(set, i, first, end int) i32 {
	if len(x.sums[set]) == 0 {
		return i32{}
	}
	quarters := x.sums[set][i][first:end]
	s := quarters[0]
	for _, v := range quarters[1:] {
		s = s.Add(v)
	}
	return s
}

// Scale is a scale group's scale and, with zero points, −Shape.Times times its zero point.
type Scale struct {
	Scale f32
	Zero  i32 // not set without zero points
}

// scaleOf is the number, among those that scales has of a row and half, of block i's scale for product m.
func (p *Int4) scaleOf(i, m int) int {
	switch p.Shape.Group {
	case 16, 32:
		if p.Spread() {
			return i
		}
		return 2*i + m
	case i4.Whole:
		return 0
	}
	return i
}

// Int4Weights are a lane's words of some blocks of a run: 4 of codes a block, or of 8 bits 8, and those of its scales.
type Int4Weights struct {
	codes   [][]u32
	Entries [][]u32 // of the lane's row and half where weights are A, else of row r and half h at 2r + h
	Many    int     // entries in each, see Int4.entryWords
}

// Load reads n blocks of a run from block first on, a multiple of n: run is where the run begins in Data.
func (p *Int4) Load(e *grid.Env, run, first u32, n int) *Int4Weights {
	w := p.entries(e, run, first, n)
	for i := range n {
		at := run.Add(first.AddC(i).MulC(p.Shape.BlockBytes() / 16)).Add(e.Lane)
		var codes []u32
		for part := range p.CodeWords() / 4 {
			codes = append(codes, dsl.View[dsl.U32](p.Data).LoadN(at.AddC(part*pipeline.GroupBytes/16).MulC(4), 4)...)
		}
		w.codes = append(w.codes, codes)
	}
	return w
}

// CodeWords is how many words of codes a lane has of a block.
func (p *Int4) CodeWords() int { return p.Shape.BlockBytes() / (4 * dsl.WarpSize) }

// Words is how many words a lane has of n blocks where weights are A.
func (p *Int4) Words(n int) int { return p.CodeWords()*n + p.entryWords(p.many(n)) }

// words are all of them, where weights are A; ofWords makes w of them again.
func (w *Int4Weights) words() []u32 {
	return slices.Concat(slices.Concat(w.codes...), slices.Concat(w.Entries...))
}

func (p *Int4) ofWords(words []u32, n int) *Int4Weights {
	w, each := &Int4Weights{Many: p.many(n)}, p.CodeWords()
	for i := range n {
		w.codes = append(w.codes, words[each*i:][:each])
	}
	if w.Many > 0 {
		w.Entries = [][]u32{words[each*n:]}
	}
	return w
}

// many is how many entries n blocks have of a row and half.
func (p *Int4) many(n int) int {
	switch p.Shape.Group {
	case i4.Whole:
		return 0
	case 16, 32:
		return p.Shape.PerBlock() / 2 * n
	}
	return n
}

// entryWords returns how many words hold many entries. A word holds one entry of 4 bytes, two of 2 bytes, four of a
// byte, or two of a byte where many is no multiple of 4.
func (p *Int4) entryWords(many int) int {
	if p.Shape.EntryBytes() == 1 && many%4 != 0 {
		return many / 2
	}
	return pipeline.CeilDiv(many*p.Shape.EntryBytes(), 4)
}

// entries reads the entries of n blocks from first on.
func (p *Int4) entries(e *grid.Env, run, first u32, n int) *Int4Weights {
	w := &Int4Weights{Many: p.many(n)}
	if w.Many == 0 {
		return w
	}
	of := func(row, half u32) []u32 {
		at := row.MulC(p.Shape.RowEntries())
		switch p.Shape.Group {
		case 128:
			at = at.Add(first)
		case 64:
			at = at.Add(half.MulC(p.Shape.Run)).Add(first)
		case 16, 32:
			per := p.Shape.PerBlock() / 2
			at = at.Add(half.MulC(per * p.Shape.Run)).Add(first.MulC(per))
		}
		return EntriesAt(p, run, at, w.Many)
	}
	if p.weightsAreA() {
		w.Entries = [][]u32{of(e.Lane.DivC(4), p.half(e))}
		return w
	}
	for _, row := range p.rows(e) {
		for half := range 2 {
			if p.Shape.Group == 128 && half == 1 {
				w.Entries = append(w.Entries, w.Entries[len(w.Entries)-1])
				continue
			}
			w.Entries = append(w.Entries, of(row, e.K.U32(half)))
		}
	}
	return w
}

// EntriesAt loads many entries of a run from entry at on. at is even where many is; of entries of a byte both are even,
// and at is a multiple of 4 where many is.
func EntriesAt[I dsl.Elem](p *Int4, run, at dsl.Val[I], many int) []u32 {
	behind := p.Shape.Run * p.Shape.BlockBytes()
	half := func(at dsl.Val[I]) u32 {
		return dsl.Cast[dsl.U32](dsl.Bits[dsl.U16](dsl.View[dsl.BF16](p.Data).Load(at)))
	}
	switch words := dsl.View[dsl.U32](p.Data); {
	case p.Shape.Zeros:
		return loadMany(words, run.MulC(4).AddC(behind/4).Add(at), many)
	case p.Shape.EntryBytes() == 1 && many%4 == 0:
		return loadMany(words, run.MulC(4).AddC(behind/4).Add(at.DivC(4)), many/4)
	case p.Shape.EntryBytes() == 1:
		var twos []u32
		for i := range many / 2 {
			twos = append(twos, half(run.MulC(8).AddC(behind/2).Add(at.DivC(2)).AddC(i)))
		}
		return twos
	case many%2 == 0:
		return loadMany(words, run.MulC(4).AddC(behind/4).Add(at.DivC(2)), many/2)
	}
	return []u32{half(run.MulC(8).AddC(behind / 2).Add(at))}
}

// byteScales are scales in e4m3: all four of a word, or where weights are A those of the lane's two groups. Lanes 0 and
// 1 of four have a half's even groups, and 2 and 3 its odd ones.
func (p *Int4) byteScales(e *grid.Env, w *Int4Weights) (all [][]Scale) {
	for _, words := range w.Entries {
		var list []Scale
		for _, word := range words {
			var twos []pair
			if p.weightsAreA() {
				lo, hi := dsl.Halves(dsl.PermuteBy(word, word, e.Lane.ShrC(1).AndC(1).MulC(0x11).AddC(0x20)))
				dsl.Optional(hi)
				twos = append(twos, widenTwo(lo))
			} else {
				both := Widen(word)
				twos = both[:]
			}
			for _, two := range twos {
				lo, hi := dsl.Unpack(dsl.Bits[dsl.F16x2](two))
				list = append(list, Scale{Scale: lo}, Scale{Scale: hi})
			}
		}
		all = append(all, list)
	}
	return all
}

// spreadScales are a lane's scale of each block: lanes 0 and 1 of four have a half's first group, and 2 and 3 its
// second.
func (p *Int4) spreadScales(e *grid.Env, w *Int4Weights) [][]Scale {
	second := e.Lane.ShrC(1).AndC(1)
	var list []Scale
	for _, word := range w.Entries[0] {
		if p.BF16 { // its two bytes, above zeros
			word = dsl.PermuteBy(word, e.K.U32(0), second.MulC(0x2200).AddC(0x1044))
			list = append(list, Scale{Scale: dsl.Bits[dsl.F32](word)})
			continue
		}
		lo, hi := dsl.Unpack(dsl.Bits[dsl.F16x2](word.Shr(second.MulC(16))))
		dsl.Optional(hi)
		list = append(list, Scale{Scale: lo})
	}
	return [][]Scale{list}
}

// exponentScales returns the scales of entries in E8M0: of all, or of sums that are spread the lane's of each block,
// see spreadScales. Byte 0 becomes 0, and 255 an infinity.
func (p *Int4) exponentScales(e *grid.Env, w *Int4Weights) (all [][]Scale) {
	for _, words := range w.Entries {
		each := w.Many / len(words) // entries in a word
		scale := func(exponent u32) Scale { return Scale{Scale: dsl.Bits[dsl.F32](exponent.ShlC(23))} }
		var list []Scale
		if p.Spread() {
			second := e.Lane.ShrC(1).AndC(1)
			for i := 0; i < w.Many; i += 2 {
				list = append(list, scale(dsl.PermuteBy(words[i/each], e.K.U32(0), second.AddC(0x4440+i%each))))
			}
		} else {
			for i := range w.Many {
				list = append(list, scale(dsl.Permute(words[i/each], e.K.U32(0), uint16(0x4440+i%each))))
			}
		}
		all = append(all, list)
	}
	return all
}

// Scales are what the entries say.
func (p *Int4) Scales(e *grid.Env, w *Int4Weights) (all [][]Scale) {
	if w.Many == 0 {
		return [][]Scale{{{}}, {{}}, {{}}, {{}}}
	}
	unpack := func(w u32) (lo, hi f32) {
		if p.BF16 {
			return dsl.Unpack(dsl.Bits[dsl.BF16x2](w))
		}
		return dsl.Unpack(dsl.Bits[dsl.F16x2](w))
	}
	if p.Sixteen() {
		return p.byteScales(e, w)
	}
	if p.Shape.Exponents() {
		return p.exponentScales(e, w)
	}
	if p.Spread() {
		return p.spreadScales(e, w)
	}
	for _, words := range w.Entries {
		var list []Scale
		for i := range w.Many {
			if p.Shape.Zeros {
				lo, hi := unpack(words[i])
				dsl.Optional(hi)
				list = append(list, Scale{Scale: lo, Zero: dsl.Optional(dsl.Bits[dsl.I32](words[i]).ShrC(16))})
				continue
			}
			lo, hi := unpack(words[i/2])
			dsl.Optional(lo) // of one entry alone nobody wants the other half
			dsl.Optional(hi)
			list = append(list, Scale{Scale: []f32{lo, hi}[i%2]})
		}
		all = append(all, list)
	}
	return all
}

// loadMany loads n elements, as many at once as a load can have.
func loadMany[T, I dsl.Elem](b dsl.Buf[T], at dsl.Val[I], n int) (all []dsl.Val[T]) {
	step := 4
	for n%step != 0 {
		step /= 2
	}
	for i := 0; i < n; i += step {
		all = append(all, b.LoadN(at.AddC(i), step)...)
	}
	return all
}
