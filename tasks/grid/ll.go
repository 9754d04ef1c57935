package grid

import (
	"strings"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
)

// LL passes data between SMs in LL packets, as NCCL does: 16 bytes, data and a flag, in one access. A reader polls
// the packet until its flag is the running one. So neither a barrier nor a counter is needed: what is polled is the
// data. A reader uses all parts of a packet: of a load whose middle is not used ptxas makes two, which are not one
// access (docs/memory-model.md, "LL packets").
type LL struct {
	// Flag returns the running flag: the same in all SMs that write and read packets of one meaning, and another than
	// the packets had before. It changes with every sync that lies between two uses of a packet.
	Flag func() u32
	// Watch, unless nil, makes waits end when the launch is given up.
	Watch *pipeline.Watch
}

// awaited is what a wait's text says comes, without its number.
func awaited(what string) string {
	return strings.NewReplacer("waits for ", "", ", word %d", "", "%d", "…").Replace(what)
}

// Load waits for packet i of b; what says with %d for i what is waited for. A thread that needs several
// has them come one after another.
func (l *LL) Load(e *Env, b dsl.Buf[dsl.B128], i u32, what string) dsl.Val[dsl.B128] {
	e.K.Note("a packet of 16 bytes (%s): it is there when its last word is the flag", awaited(what))
	first := b.Load(i, dsl.Relaxed(dsl.GPUScope))
	return l.Watch.Tagged(e.K, b, i, first, l.Flag(), what)
}

// All waits for the packets at these places. All are loaded together; a thread that must wait for one
// looks for the others again when it has come.
func (l *LL) All(e *Env, b dsl.Buf[dsl.B128], at []u32, what string) (packets []dsl.Val[dsl.B128]) {
	k, flag := e.K, l.Flag().Named("flag")
	k.Note("packets of 16 bytes (%s): each is there when its last word is the flag", awaited(what))
	var got []*dsl.Var[dsl.B128]
	for _, i := range at {
		got = append(got, dsl.NewVar(b.Load(i, dsl.Relaxed(dsl.GPUScope)), "packet"))
	}
	missing := func(i int) dsl.Pred { return dsl.Split(got[i].Get())[3].Ne(flag) }
	for i := range at {
		k.If(missing(i), func() {
			got[i].Set(l.Watch.Tagged(k, b, at[i], got[i].Get(), flag, what))
			for j := i + 1; j < len(at); j++ {
				k.If(missing(j), func() { got[j].Set(b.Load(at[j], dsl.Relaxed(dsl.GPUScope))) })
			}
		})
	}
	for _, v := range got {
		packets = append(packets, v.Get())
	}
	return packets
}
