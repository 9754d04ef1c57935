// Package promela writes small kernels as models for SPIN (https://spinroot.com), a model checker that knows nothing of
// this project. The text comes from the kernel's IR, thread by thread; loops are unrolled, and what is known while it
// is written is folded. What the model says of the PTX memory model, and what it leaves out, is in docs/verify.md.
//
// The memory model is a machine of views. Each thread has a row of numbers in the array V: how far it knows each other
// thread (a vector clock), which of these accesses lie before a proxy fence, which value of each strongly accessed
// word it may still read, and which phase of each mbarrier somebody has waited for. A release leaves the row with the
// written value, the barrier or the phase; an acquire takes the maximum of both, element by element.
package promela

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl/ir"
)

// Options say what a kernel's IR does not.
type Options struct {
	// threads of each warp in the model, 1 or 2; the last stands for all others, which do what it does
	Lanes   int
	Initial map[string][]byte   // what global buffers hold at the start, zeros where there is none
	Want    map[string][]uint32 // what words of buffers are when all threads have ended
}

// Faults are the names of what a model's assertions say, beside SPIN's own invalid end state, which is a deadlock.
// SPIN prints the assertion, which holds the name. With spaces they are those of package interp, where it has the same.
var Faults = []string{"data_race", "insufficient_scope", "missing_proxy_fence", "wrong_value",
	"mbarrier_phase_skipped", "mbarrier_arrival_overflow",
	"mbarrier_misuse", "exit_with_work_pending", "stores_in_no_order"}

// Model writes the kernel as a model. It fails on what the model has no form for, and names it.
func Model(k *ir.Kernel, o Options) (text string, err error) {
	if o.Lanes != 1 && o.Lanes != 2 {
		return "", fmt.Errorf("promela: %d lanes a warp, want 1 or 2", o.Lanes)
	}
	if k.Grid < 1 {
		return "", fmt.Errorf("promela: kernel %s is for any number of CTAs, want a number", k.Name)
	}
	defer func() {
		if r := recover(); r != nil {
			u, ok := r.(unsupported)
			if !ok {
				panic(r)
			}
			err = fmt.Errorf("promela: kernel %s: %w", k.Name, u.error)
		}
	}()
	x := &exporter{k: k, o: o, places: map[at]*place{}, mbars: map[at]*mbar{}, bars: map[barKey]*bar{}}
	for _, m := range k.Globals() {
		for i := range o.Want[m.Name] {
			x.place(at{m, -1, int64(i)})
		}
	}
	x.run() // finds out which places, barriers and copies there are
	x.layOut()
	x.run()
	return x.text(), nil
}

// unsupported is a panic's value: what the model has no form for.
type unsupported struct{ error }

func no(format string, args ...any) { panic(unsupported{fmt.Errorf(format, args...)}) }

// at is an element of a root buffer: of a CTA, or of global memory with cta −1.
type at struct {
	buf  *ir.Buf
	cta  int
	elem int64
}

func (a at) String() string {
	if a.cta < 0 || a.buf.Space == ir.Global {
		return fmt.Sprintf("%s_%d", a.buf.Name, a.elem)
	}
	return fmt.Sprintf("%s_%d_cta%d", a.buf.Name, a.elem, a.cta)
}

type barKey struct{ cta, id int }

// bar is a barrier of the CTA, or of a warp with id 16 + warp.
type bar struct {
	barKey
	num  int
	need int // threads of the model
}

// mbar is an mbarrier. Its rows of V are what has arrived in the phase, and what the phase before carried.
type mbar struct {
	at
	num int
}

// copied is a bulk copy: one for each that a thread issues.
type copied struct {
	num   int
	by    *thread
	dst   at
	elems int64
	src   at
	bar   *mbar
	bytes uint32
}

// access is how an agent accesses a place.
type access struct {
	write, rmw, strong, async bool
	scope                     ir.Scope
}

// agent is a thread (from 0), or a copy (behind the threads). cta is its CTA.
type agent struct{ num, cta int }

// exporter walks the kernel once for each thread, and all of that twice: to see what is accessed, and to write.
type exporter struct {
	k       *ir.Kernel
	o       Options
	final   bool // the second time
	threads []*thread
	copies  []*copied
	places  map[at]*place
	order   []*place
	mbars   map[at]*mbar
	bars    map[barKey]*bar
	lay     layout
}

func (x *exporter) run() {
	x.threads, x.copies = nil, nil
	for cta := range x.k.Grid {
		for warp := range x.k.Warps {
			for lane := range x.o.Lanes {
				x.threads = append(x.threads, &thread{x: x, agent: agent{len(x.threads), cta}, warp: warp, lane: lane,
					values: map[*ir.Value][]word{}, vars: map[*ir.Var][]word{}, met: map[*bar]int{}})
			}
		}
	}
	for _, t := range x.threads {
		t.walk(items(x.k.Body, []item{{do: t.end}}))
	}
	if !x.final {
		for _, c := range x.copies {
			for _, p := range x.covered(c) {
				p.set(x.copiedTo(c, p))
				p.note(agent{len(x.threads) + c.num, c.by.cta}, access{write: true, async: true})
			}
		}
	}
	x.final = true
}

// covered lists the places that a copy writes, as far as somebody reads or writes them.
func (x *exporter) covered(c *copied) (list []*place) {
	for _, p := range x.order {
		if p.buf == c.dst.buf && p.cta == c.dst.cta && p.elem >= c.dst.elem && p.elem < c.dst.elem+c.elems {
			list = append(list, p)
		}
	}
	return list
}

func (x *exporter) place(a at) *place {
	p := x.places[a]
	if p == nil {
		if a.buf.Elem.Size() != 4 && a.buf.Elem != ir.B128 {
			no("elements of %s are %s, want 32 or 128 bits", a.buf, a.buf.Elem)
		}
		p = &place{at: a, users: map[agent][]access{}, number: len(x.order)}
		for w := range words(a.buf.Elem) {
			p.word = append(p.word, known{value: x.initial(a, w)})
		}
		x.places[a] = p
		x.order = append(x.order, p)
	}
	return p
}

func words(t ir.Type) int { return max(t.Size()/4, 1) }

// initial is a word of a place before the launch.
func (x *exporter) initial(a at, w int) uint32 {
	data := x.o.Initial[a.buf.Name]
	i := int(a.elem)*a.buf.Elem.Size() + 4*w
	if a.buf.Space != ir.Global || i+4 > len(data) {
		return 0
	}
	return uint32(data[i]) | uint32(data[i+1])<<8 | uint32(data[i+2])<<16 | uint32(data[i+3])<<24
}

func (x *exporter) bar(cta, id, need int) *bar {
	key := barKey{cta, id}
	b := x.bars[key]
	if b == nil {
		b = &bar{key, len(x.bars), need}
		x.bars[key] = b
	}
	if b.need != need {
		no("barrier %d has %d and %d threads", id, b.need, need)
	}
	return b
}

func (x *exporter) mbar(a at) *mbar {
	b := x.mbars[a]
	if b == nil {
		b = &mbar{a, len(x.mbars)}
		x.mbars[a] = b
	}
	return b
}

func sorted[K comparable, V interface{ number() int }](m map[K]V) []V {
	var list []V
	for _, v := range m {
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b V) int { return cmp.Compare(a.number(), b.number()) })
	return list
}

func (b *bar) number() int  { return b.num }
func (b *mbar) number() int { return b.num }
