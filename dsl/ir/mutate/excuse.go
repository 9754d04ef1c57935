package mutate

import (
	"fmt"
	"slices"
	"strings"
)

// Rule is a section of the PTX ISA, or an instruction it describes, that lets a kernel do without a synchronisation,
// or with one in another place.
type Rule string

// The rules; docs/RATIONALE.md says what each lets one do.
const (
	Conflict        Rule = "Conflict and data-races"
	Causality       Rule = "Causality order"
	Phases          Rule = "Phase Completion of the mbarrier object"
	PerLocation     Rule = "Sequential consistency per location"
	Synchronization Rule = "Memory synchronization"
	WGMMAFence      Rule = "wgmma.fence"
	Elect           Rule = "elect.sync"
	SetMaxReg       Rule = "setmaxnreg"
)

// Rules lists all rules.
func Rules() []Rule {
	return []Rule{Conflict, Causality, Phases, PerLocation, Synchronization, WGMMAFence, Elect, SetMaxReg}
}

// Excuse is why mutants of some instructions may go unreported: by a rule of PTX such a kernel
// does what the kernel does. The instructions are named by their keys.
//
// Op, Role, Front and Behind are alternatives with " | " between, one of which must be that field
// of the key; one that ends in * need only be its beginning. "" is anything, and "none" no neighbour.
type Excuse struct {
	Op      string
	Classes []Class
	Detail  string // what follows the mutation's name: "acquire to relaxed"; "" for any
	Role    string
	Regions []string // innermost regions; nil for any
	Front   string
	Behind  string
	Why     string
	Rule    Rule
}

// Moved, and what is removed or moved.
var (
	Moved = []Class{Earlier, Later}
	Gone  = []Class{Remove, Earlier, Later}
)

// Covers reports whether m is one of the mutants that x excuses.
func (x *Excuse) Covers(m Mutation) bool {
	_, detail, _ := strings.Cut(m.Name, ": ")
	return slices.Contains(x.Classes, m.Class) && (x.Detail == "" || x.Detail == detail) &&
		(x.Regions == nil || slices.Contains(x.Regions, m.Region)) &&
		oneOf(x.Op, m.Key.Op) && oneOf(x.Role, m.Key.Role) && oneOf(x.Front, m.Key.Front) && oneOf(x.Behind, m.Key.Behind)
}

// oneOf reports whether name is one of the alternatives.
func oneOf(alternatives, name string) bool {
	if alternatives == "" {
		return true
	}
	for a := range strings.SplitSeq(alternatives, " | ") {
		begin, open := strings.CutSuffix(a, "*")
		if a == name || a == "none" && name == "" || open && strings.HasPrefix(name, begin) {
			return true
		}
	}
	return false
}

// Excuses are a kernel's.
type Excuses []Excuse

// Of finds the first excuse of m; nil for none.
func (xs Excuses) Of(m Mutation) *Excuse {
	for i := range xs {
		if xs[i].Covers(m) {
			return &xs[i]
		}
	}
	return nil
}

// Check wants a cited rule for every excuse, an excuse for every survivor, and a survivor for
// every excuse of those that are needed.
func (xs Excuses) Check(survivors []Mutation, needed Excuses) error {
	used, wrong := map[*Excuse]bool{}, []string{}
	for i, x := range xs {
		if !slices.Contains(Rules(), x.Rule) || x.Why == "" {
			wrong = append(wrong, fmt.Sprintf("excuse %d, of %v %s: found rule %q and reason %q, want both", i, x.Classes,
				x.Op, x.Rule, x.Why))
		}
	}
	for _, m := range survivors {
		for i := range needed {
			if needed[i].Covers(m) {
				used[&needed[i]] = true
			}
		}
		if xs.Of(m) == nil {
			wrong = append(wrong, fmt.Sprintf("nothing reports %s (%s), and no excuse names it", m, m.Key))
		}
	}
	for i := range needed {
		if x := &needed[i]; !used[x] {
			wrong = append(wrong, fmt.Sprintf("no mutant survives for the excuse of %v %s, %s: take it out", x.Classes, x.Op,
				x.Why))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("%s", strings.Join(wrong, "\n"))
}
