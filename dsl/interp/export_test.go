package interp

import (
	"fmt"
	"slices"
	"strings"
)

// class is what equivalent executions have in common: what happens before what.
func (x *explorer) class() string {
	names := make([]procName, len(x.procs))
	for name, n := range x.procs {
		names[n] = name
	}
	var lines []string
	for _, e := range x.events {
		var known []string
		for p, seq := range e.clock {
			if seq > 0 {
				known = append(known, fmt.Sprint(names[p], seq))
			}
		}
		slices.Sort(known)
		lines = append(lines, fmt.Sprint(names[e.proc], e.seq, known))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Classes explores p, most complete executions at most: the classes of those, and how often one came again.
func (p *Program) Classes(mem func() *Memory,
	most int) (classes map[string]bool, again int, of *Exploration, err error) {
	x := &explorer{p: p, procs: map[procName]int{}}
	classes = map[string]bool{}
	for x.Executions < most {
		before := x.Executions
		m, err := p.newMachine(mem(), Options{})
		if err == nil {
			err = x.run(m)
		}
		if err != nil {
			return nil, 0, nil, err
		}
		if x.Executions > before {
			if classes[x.class()] {
				again++
			}
			classes[x.class()] = true
		}
		if x.Complete = !x.back(); x.Complete {
			break
		}
	}
	return classes, again, &x.Exploration, nil
}

// DrawnClass is the class of an execution in which draw chooses among the processes that can go on. Copies have the
// names that an exploration gives them, in the order in which warps issue them.
func (p *Program) DrawnClass(mem *Memory, draw func(n int) int) (string, error) {
	m, err := p.newMachine(mem, Options{})
	if err != nil {
		return "", err
	}
	x := &explorer{p: p, procs: map[procName]int{}, draw: draw}
	err = x.run(m)
	return x.class(), err
}
