package bounds

// Linear is K + Σ Terms[name]·name over the parameters of Facts.
type Linear struct {
	K     int64
	Terms map[string]int64
}

// Number is a Linear without parameters.
func Number(k int64) Linear { return Linear{K: k} }

// Times is c times a parameter, plus k.
func Times(c int64, name string, k int64) Linear {
	return Linear{K: k, Terms: map[string]int64{name: c}}
}

// Range is what a number can be, both ends included.
type Range struct{ Lo, Hi int64 }

// Facts is what the analysis is told of a launch.
type Facts struct {
	Params  map[string]Range // the kernel's scalars, and others that Linear names
	AtMost  []Linear         // each of these is at most 0
	Lens    map[string]Linear
	Content map[string]*Content // of buffers in global memory, by the name of the root
}

// Content is what the elements of a buffer are, seen as 32-bit words.
type Content struct {
	Table *Table // the words themselves, or nil
	// Without Table word i of every Stride words is as Words[i] says, if that is there.
	Stride    int
	Words     map[int]Word
	Relations []Relation
	// With Period every Period words begin with Stride words of another kind, as Head says.
	Period int
	Head   map[int]Word
}

// Word is what a word can be.
type Word struct {
	Lo, Hi Linear
	// With Digits all digits of n bits are below Below.
	Digits int
	Below  int64
	// With Low the word is two numbers, the first of n bits, whose sum is at most Sum.
	Low int
	Sum int64
}

// Relation says that Σ Words[i]·(word i) + Σ Scaled[i]·(word i) + Plus ≤ 0 in every row, but for
// those whose word Unless is 0, if that is not negative.
type Relation struct {
	Words  map[int]int64
	Scaled map[int]Linear
	Plus   Linear
	Unless int
}

// Table is a buffer of which every word is known: rows of Stride words.
type Table struct {
	Stride int
	Words  []uint32
}

func (t *Table) rows() int                 { return len(t.Words) / t.Stride }
func (t *Table) at(row int64, w int) int64 { return int64(t.Words[int(row)*t.Stride+w]) }

// linear is the form of l.
func (a *analysis) linear(l Linear) form {
	f := constant(l.K)
	for _, name := range sortedKeys(l.Terms) {
		s, ok := a.params[name]
		if !ok {
			panic("BUG: no parameter " + name)
		}
		f, _ = sum(1, f, l.Terms[name], of(s))
	}
	return f
}
