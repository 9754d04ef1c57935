package skeleton

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl/interp"
)

// packetBytes is the size of an LL packet: 12 bytes of data and the flag.
const packetBytes = 16

// packets follows the flags of LL packets, from launch to launch. A reader takes a packet for
// that of its sync when the flag is the one that it wants. So
//
//   - the flags of a packet ascend, by wrap-safe difference, from store to store: an old
//     packet never looks like a new one;
//   - the flag that a wait ends with is that of the packet's last store;
//   - an instruction that waits does so for ascending flags of a packet, in every warp. Lanes that have no packet of
//     their own may ask for another's at the same time: the lane that asked first must not ask for a flag again.
//
// Readers that find the flag by a load, before they would wait, are not seen.
type packets struct {
	warps  int                 // of a CTA
	stored map[string][]uint32 // by buffer and packet: the flag stored last; 0 before, which no packet has
	sites  map[int][][]wait    // by instruction, warp and packet: the flag waited for last
}

// wait is a flag that a warp has waited for, and the lane that did so first.
type wait struct {
	flag uint32
	lane int8
}

func newPackets(warps int) *packets {
	return &packets{warps: warps, stored: map[string][]uint32{}, sites: map[int][][]wait{}}
}

// last is the last flag of a packet.
func (p *packets) last(buffer string, i int) *uint32 {
	p.stored[buffer] = reach(p.stored[buffer], i)
	return &p.stored[buffer][i]
}

// store checks a store of a packet.
func (p *packets) store(a interp.Access, flag uint32) error {
	i := int(a.Offset / packetBytes)
	last := p.last(a.Buffer, i)
	if flag == 0 {
		return fmt.Errorf("packet %d of %s is stored with flag 0, which it has before the first launch", i, a.Buffer)
	}
	if *last != 0 && int32(flag-*last) <= 0 {
		return fmt.Errorf("packet %d of %s is stored with flag %d, and was with flag %d before: readers cannot tell old packets from new ones, want ascending flags", i, a.Buffer, flag, *last)
	}
	*last = flag
	return nil
}

// got checks a wait that has ended with a flag.
func (p *packets) got(a interp.Access, flag uint32) error {
	i := int(a.Offset / packetBytes)
	if last := *p.last(a.Buffer, i); last != flag {
		return fmt.Errorf("the wait for packet %d of %s ends with flag %d, the packet was stored last with %d", i, a.Buffer,
			flag, last)
	}
	w := a.CTA*p.warps + a.Warp
	s := reach(p.sites[a.At], w)
	p.sites[a.At] = s
	s[w] = reach(s[w], i)
	before, lane := s[w][i], int8(a.Lane)
	if flag == before.flag && lane != before.lane {
		return nil
	}
	if before.flag != 0 && int32(flag-before.flag) <= 0 {
		return fmt.Errorf("waits for flag %d of packet %d of %s, and has waited here for flag %d before, want ascending flags",
			flag, i, a.Buffer, before.flag)
	}
	s[w][i] = wait{flag, lane}
	return nil
}

// reach is list, long enough to have an element i.
func reach[T any](list []T, i int) []T {
	if i < len(list) {
		return list
	}
	return append(list, make([]T, i+1-len(list))...)
}
