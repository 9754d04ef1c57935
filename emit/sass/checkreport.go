package sass

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
)

// stands says whether a machine instruction of one kind may stand for a place of another: ptxas begins some waits with
// a test, and the scope of a cluster is the GPU's.
func stands(machine, place string) bool {
	return machine == place || machine == kindTest && place == kindTry ||
		strings.Contains(place, ".cluster") && machine == strings.Replace(place, ".cluster", ".gpu", 1)
}

// weakens says whether a plain access moves data as a strong access of the program does.
func weakens(machine, place string) bool {
	return machine == plainLoad && strings.HasPrefix(place, "ld.") || machine == plainStore &&
		strings.HasPrefix(place, "st.")
}

// spare says whether the compiler may add one: a fence of the CTA before others, a proxy fence before an mbarrier's
// first use, L1 lines dropped once more.
func spare(kind string) bool {
	return kind == membar(ir.CTA) || kind == kindInval || kind == proxyFence(ir.FenceShared)
}

func (w *walk) report(s state, in *instruction) {
	if w.reported[s.at] {
		return
	}
	w.reported[s.at] = true
	var behind, near, want []string
	for _, at := range w.members[s.set] {
		behind = append(behind, w.p.say(at))
		events, _ := w.p.follow(at)
		for _, e := range events {
			if slices.ContainsFunc(w.labels[s.at], func(l int) bool { return w.p.places[l].in == w.p.places[e].in }) {
				near = append(near, w.p.say(e))
			} else {
				want = append(want, w.p.say(e))
			}
		}
	}
	verb := "comes"
	if in.plain {
		verb = "stands"
	}
	text := fmt.Sprintf("%s %s behind %s, where the program has %s", in.say(), verb, some(behind, nil), some(near, want))
	w.r.Findings = append(w.r.Findings, Finding{in.address, text})
}

// say is a machine instruction in words.
func (in *instruction) say() string {
	if in.line > 0 {
		return fmt.Sprintf("%s (%s, line %d of the text)", in.text, in.kind, in.line)
	}
	return fmt.Sprintf("%s (%s)", in.text, in.kind)
}

// some lists a few, those of first before those of then.
func some(first, then []string) string {
	slices.Sort(first)
	slices.Sort(then)
	all := append(slices.Compact(first), slices.Compact(then)...)
	if len(all) > 4 {
		all = append(all[:4:4], fmt.Sprintf("%d others", len(all)-4))
	}
	return strings.Join(all, " or ")
}

// unmatched reports events of the program that no machine instruction stands for.
func (w *walk) unmatched() {
	for at, pl := range w.p.places {
		if len(w.r.Findings) >= maxFindings {
			return
		}
		if pl.kind != "" && !pl.plain && !pl.optional && !w.matched[at] {
			w.r.Findings = append(w.r.Findings, Finding{-1, "nothing in the " + level(w.c.ptx) + " stands for " + w.p.say(at)})
		}
	}
}

// guards are, by machine instruction, the predicates that the guards there and behind it ask for before they are
// written anew. What is known of others need not be remembered.
func guards(c *code) []uint32 {
	live := make([]uint32, len(c.ins)+1)
	for changed := true; changed; {
		changed = false
		for i := len(c.ins) - 1; i >= 0; i-- {
			in := &c.ins[i]
			out := live[i+1]
			if in.target >= 0 {
				if in.guard == "" && !conditional(in) {
					out = 0
				}
				out |= live[in.target]
			} else if in.guard == "" {
				out &^= in.written()
			}
			if to, from, _ := in.elects(); to >= 0 && live[i+1]>>to&1 == 1 {
				out |= 1 << from
			}
			if in.guard != "" && (in.kind != "" || in.target >= 0) {
				out |= 1 << predicate(in.guard)
			}
			if out &= 0x7fff; out != live[i] {
				live[i], changed = out, true
			}
		}
	}
	return live
}

// predicate numbers the predicate registers: P0 to P6, then UP0 to UP6.
func predicate(name string) int {
	if name == "" || name[0] != 'P' && name[0] != 'U' {
		return 15 // what is known of it is never remembered
	}
	n := int(name[len(name)-1] - '0')
	if name[0] == 'U' {
		n += 7
	}
	return n
}

// written are the predicates that an instruction may write, as bits of what is known: those among its first operands.
func (in *instruction) written() (bits uint32) {
	if in.target >= 0 {
		return 0
	}
	if to, _, _ := in.elects(); to >= 0 {
		return 1<<to | 1<<(16+to)
	}
	others := 0
	for _, a := range in.args {
		switch {
		case a == "PR" || a == "UPR":
			return ^uint32(0)
		case len(a) >= 2 && (a[0] == 'P' || a[0] == 'U' && a[1] == 'P') && a[len(a)-1] >= '0' && a[len(a)-1] <= '6':
			if others < 2 {
				bits |= 1<<predicate(a) | 1<<(16+predicate(a))
			}
		default:
			others++
		}
	}
	return bits
}
