package ir

import "fmt"

// HostUse says what the host does with a global buffer while the kernel runs, or that it
// keeps it. Before and after a launch it may do anything with any buffer.
type HostUse uint8

// What the host does.
const (
	HostNone   HostUse = iota // nothing
	HostReads                 // it reads what the kernel writes: results as they come
	HostWrites                // it writes what the kernel reads: wishes, such as to stop
	// nothing, but the buffer is in its memory: stores there take none of the device memory's bandwidth
	HostKeeps
)

var hostWords = [...]string{HostNone: "leaves alone", HostReads: "reads", HostWrites: "writes", HostKeeps: "keeps"}

// String says it as "the host … the buffer".
func (h HostUse) String() string { return hostWords[h] }

// HostRace is why an access races with the host: nil when it does not. Of buffers that it
// reads or writes the host makes single accesses of one word at any time during a launch;
// only strong scalar accesses of system scope do not race with them.
func (s *Instr) HostRace() error {
	for i, m := range s.Mem {
		b := m.Buf.Base()
		if b.Host == HostNone || b.Host == HostKeeps {
			continue
		}
		flag := i == 1 && s.Op.Waits() // always relaxed.sys
		a := s.Attr
		strong := a.Order == Volatile || a.Order != Weak && a.Scope == Sys
		reads := flag || s.Op == OpLd || s.Op == OpWaitMem && i == 0
		switch {
		case !reads && s.Op != OpSt:
			return fmt.Errorf("touches %s, which the host %s while the kernel runs, want a load or store", b, b.Host)
		case reads && b.Host == HostReads:
			return fmt.Errorf("reads %s, which is for the host to read while the kernel runs", b)
		case !reads && b.Host == HostWrites:
			return fmt.Errorf("writes %s, which is for the host to write while the kernel runs", b)
		case !flag && (!strong || lanes(s) != 1):
			return fmt.Errorf("is %s on %s, which the host %s while the kernel runs, want a strong scalar access at scope sys",
				how(s), b, b.Host)
		}
	}
	return nil
}

// how is an access's strength in words.
func how(s *Instr) string {
	switch {
	case lanes(s) != 1:
		return fmt.Sprintf("a vector of %d", lanes(s))
	case s.Attr.Order == Weak:
		return "weak"
	}
	return fmt.Sprintf("%s at scope %s", s.Attr.Order, s.Attr.Scope)
}
