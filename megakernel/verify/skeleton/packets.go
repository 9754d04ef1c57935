package skeleton

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl/interp"
)

// packetBytes is the size of an LL packet: 12 bytes of data and the flag.
const packetBytes = 16

// packets counts how often each LL packet was stored, and how often each warp got it.
type packets struct {
	warps int // of a CTA
	bufs  map[string]*packetCounts
}

type packetCounts struct {
	stored []uint32
	got    map[int][]uint32 // by warp of the grid: which store of the packet it got last
}

func newPackets(warps int) *packets { return &packets{warps: warps, bufs: map[string]*packetCounts{}} }

func (p *packets) of(buffer string, i int) *packetCounts {
	c := p.bufs[buffer]
	if c == nil {
		c = &packetCounts{got: map[int][]uint32{}}
		p.bufs[buffer] = c
	}
	for len(c.stored) <= i {
		c.stored = append(c.stored, 0)
	}
	return c
}

// stored notes a store of 16 bytes.
func (p *packets) stored(a interp.Access) {
	i := int(a.Offset / packetBytes)
	p.of(a.Buffer, i).stored[i]++
}

// got checks that a reader gets each store of a packet once: the flag that it waited for is
// that of the store behind the one it got last. A packet that is found with a flag from an
// earlier step is an old one.
func (p *packets) got(a interp.Access, tag uint32) error {
	i := int(a.Offset / packetBytes)
	c := p.of(a.Buffer, i)
	w := a.CTA*p.warps + a.Warp
	got := c.got[w]
	for len(got) <= i {
		got = append(got, 0)
	}
	c.got[w] = got
	if got[i]++; got[i] != c.stored[i] {
		return fmt.Errorf("packet %d of %s with flag %d: the warp reads it for the %d. time, it has been stored %d times", i, a.Buffer, tag, got[i], c.stored[i])
	}
	return nil
}
