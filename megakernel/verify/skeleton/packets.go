package skeleton

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl/interp"
)

// packetBytes is the size of an LL packet: 12 bytes of data and the flag.
const packetBytes = 16

// packets follows the LL packets of one launch. Which store of a packet a reader must get
// follows from what all readers have in common: every vector is stored once a hand-off, and
// an instruction reads the vector of one hand-off after the other. So an instruction, when it
// runs for the n-th time, must get the same store of every packet in every warp: the k-th of
// this launch, with k above that of the time before. Flags play no part in this.
type packets struct {
	warps  int                 // of a CTA
	stored map[string][]uint32 // by buffer and packet: stores in this launch
	sites  map[int]*site       // by instruction that reads
}

// site is an instruction that waits for packets.
type site struct {
	which []uint32 // by time: the store that is read
	times [][]uint16
}

func newPackets(warps int) *packets {
	return &packets{warps: warps, stored: map[string][]uint32{}, sites: map[int]*site{}}
}

// store notes a store of 16 bytes.
func (p *packets) store(a interp.Access) {
	i := int(a.Offset / packetBytes)
	p.stored[a.Buffer] = reach(p.stored[a.Buffer], i)
	p.stored[a.Buffer][i]++
}

// got checks what a reader got.
func (p *packets) got(a interp.Access, tag uint32) error {
	i := int(a.Offset / packetBytes)
	p.stored[a.Buffer] = reach(p.stored[a.Buffer], i)
	k := p.stored[a.Buffer][i]
	if k == 0 {
		return fmt.Errorf("packet %d of %s with flag %d is what an earlier launch left", i, a.Buffer, tag)
	}
	s := p.sites[a.At]
	if s == nil {
		s = &site{}
		p.sites[a.At] = s
	}
	w := a.CTA*p.warps + a.Warp
	s.times = reach(s.times, w)
	s.times[w] = reach(s.times[w], i)
	n := int(s.times[w][i])
	s.times[w][i]++
	if n == len(s.which) {
		s.which = append(s.which, k)
	}
	switch {
	case s.which[n] != k:
		return fmt.Errorf("packet %d of %s with flag %d is of hand-off %d of this launch, but others read hand-off %d here for the %s", i, a.Buffer, tag, k, s.which[n], nth(n+1))
	case n > 0 && s.which[n-1] >= k:
		return fmt.Errorf("packet %d of %s with flag %d is of hand-off %d of this launch, which has been read here before: the flag does not tell hand-offs apart", i, a.Buffer, tag, k)
	}
	return nil
}

// reach is list, long enough to have an element i.
func reach[T any](list []T, i int) []T {
	if i < len(list) {
		return list
	}
	return append(list, make([]T, i+1-len(list))...)
}

// nth is "1st time", "2nd time".
func nth(n int) string {
	suffix := "th"
	if tens := n / 10 % 10; tens != 1 && n%10 > 0 && n%10 < 4 {
		suffix = []string{"st", "nd", "rd"}[n%10-1]
	}
	return fmt.Sprintf("%d%s time", n, suffix)
}
