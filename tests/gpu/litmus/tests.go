package main

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
)

// test is a litmus test: channels between two warps each, over which rounds of messages go, one way and acknowledged.
type test struct {
	name string
	what string
	// promised is the rule of PTX by which no reader sees anything but the message; "" where PTX allows it.
	promised string
	cta      bool // both warps are of one CTA
	cluster  bool // both CTAs are of one cluster
	bulk     bool // the message is read by a bulk copy
	write    func(c *channel, round dsl.Val[dsl.U32])
	read     func(c *channel, round dsl.Val[dsl.U32]) dsl.Val[dsl.U32] // words that are wrong
}

const (
	channelWarps = 8 // a CTA's warps of channels; of one CTA the upper half answers the lower
	loadWarps    = 8 // that stream memory beside them, until the CTA's channels are through
	loadAhead    = 4 // 16-byte loads that a thread of theirs has in flight
	loadWords    = 1 << 24
)

// channel is what a lane's side of a channel is written with; kv is the warp's part of a bulk copy.
type channel struct {
	k          *dsl.Kernel
	id         dsl.Val[dsl.U32] // of the channel
	warp       dsl.Val[dsl.U32]
	data       dsl.Buf[dsl.U32]
	packet     dsl.Buf[dsl.B128]
	ping, pong dsl.Buf[dsl.U32]
	landing    dsl.Buf[dsl.B128]
	landed     dsl.MBars
}

func order(o ...dsl.MemOpt) []dsl.MemOpt { return o }

// message passes a word in plain or strong memory behind a flag.
func message(publish, observe dsl.MemOpt, data []dsl.MemOpt,
	between func(k *dsl.Kernel)) (func(*channel, dsl.Val[dsl.U32]), func(*channel, dsl.Val[dsl.U32]) dsl.Val[dsl.U32]) {
	write := func(c *channel, r dsl.Val[dsl.U32]) {
		c.data.Store(c.id, r, data...)
		between(c.k)
		c.ping.Store(c.id, r, publish)
	}
	read := func(c *channel, r dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
		dsl.WaitUntil(c.ping, c.id, dsl.GE, r, observe)
		between(c.k)
		return wrong(c.k, c.data.Load(c.id, data...), r)
	}
	return write, read
}

func wrong(k *dsl.Kernel, got, want dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
	return dsl.Select(got.Eq(want), k.U32(0), k.U32(1))
}

// packets writes four equal words as one access and polls them.
func packets(c *channel, r dsl.Val[dsl.U32]) {
	c.packet.Store(c.id, dsl.Join(r, r, r, r), dsl.Relaxed(dsl.GPUScope))
}

func polled(c *channel, r dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
	first := c.packet.Load(c.id, dsl.Relaxed(dsl.GPUScope))
	w := dsl.Split(dsl.WaitTag(c.packet, c.id, first, r, dsl.Relaxed(dsl.GPUScope)))
	return wrong(c.k, w[0], r).Add(wrong(c.k, w[1], r)).Add(wrong(c.k, w[2], r))
}

// kvRow is the KV cache's way: 512 bytes that a warp writes through the generic proxy, and a bulk copy reads on another
// SM.
func kvRow(writer, reader bool) (func(*channel, dsl.Val[dsl.U32]), func(*channel, dsl.Val[dsl.U32]) dsl.Val[dsl.U32]) {
	write := func(c *channel, r dsl.Val[dsl.U32]) {
		c.packet.Store(c.id.Add(c.k.Lane()), dsl.Join(r, r, r, r))
		if writer {
			c.k.FenceProxyAsyncGlobal()
		}
		c.k.SyncWarp()
		c.k.If(c.k.Lane().EqC(0), func() { c.ping.Store(c.id, r, dsl.Release(dsl.GPUScope)) })
	}
	read := func(c *channel, r dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
		k := c.k
		k.If(k.Lane().EqC(0), func() {
			dsl.WaitUntil(c.ping, c.id, dsl.GE, r, dsl.Acquire(dsl.GPUScope))
			if reader {
				k.FenceProxyAsyncGlobal()
			}
			k.FenceProxyAsyncShared() // the landing place was read in the round before
			c.landed.ArriveExpect(c.warp, k.U32(512))
			dsl.BulkCopy(c.landing, c.warp.MulC(32), c.packet, c.id, k.U32(512), c.landed, c.warp)
		})
		k.SyncWarp()
		c.landed.Wait(c.warp, r.SubC(1).AndC(1))
		w := dsl.Split(c.landing.Load(c.warp.MulC(32).Add(k.Lane())))
		bad := k.U32(0)
		for _, x := range w {
			bad = bad.Add(wrong(k, x, r))
		}
		return bad
	}
	return write, read
}

// tests are all of them.
func tests() []test {
	var list []test
	none := func(*dsl.Kernel) {}
	fence := func(k *dsl.Kernel) { k.Fence(dsl.GPUScope) }
	add := func(t test, w func(*channel, dsl.Val[dsl.U32]), r func(*channel, dsl.Val[dsl.U32]) dsl.Val[dsl.U32]) {
		t.write, t.read = w, r
		list = append(list, t)
	}
	const causality = "Causality order: release and acquire patterns of one scope that includes both threads"
	for _, s := range []struct {
		name  string
		scope ir.Scope
	}{{"cta", dsl.CTAScope}, {"cluster", ir.Cluster}, {"gpu", dsl.GPUScope}, {"sys", dsl.SysScope}} {
		w, r := message(dsl.Release(s.scope), dsl.Acquire(s.scope), nil, none)
		add(test{name: "message, " + s.name, what: "weak data; st.release." + s.name + ", ld.acquire." + s.name,
			promised: causality, cta: s.scope == dsl.CTAScope,
			cluster: s.scope == ir.Cluster}, w, r)
	}
	w, r := message(dsl.Relaxed(dsl.GPUScope), dsl.Relaxed(dsl.GPUScope), nil, fence)
	add(test{name: "message, fences", what: "weak data; fence.acq_rel.gpu and a relaxed flag", promised: causality}, w, r)
	w, r = message(dsl.Relaxed(dsl.GPUScope), dsl.Relaxed(dsl.GPUScope), order(dsl.Relaxed(dsl.GPUScope)), none)
	add(test{name: "message, relaxed", what: "relaxed data, relaxed flag, no fence"}, w, r)
	add(test{name: "packet", what: "st.relaxed.gpu.b128 and ld.relaxed.gpu.b128: four words of one access",
		promised: "Scalar data types: a .b128 access is single-copy atomic with a scope"}, packets, polled)
	for _, f := range []struct {
		name           string
		writer, reader bool
		promised       string
	}{
		{"both fence", true, true, "Async proxy: fence.proxy.async on both sides of a release and an acquire"},
		{"the writer fences", true, false, ""}, {"the reader fences", false, true, ""}, {"nobody fences", false, false, ""},
	} {
		w, r := kvRow(f.writer, f.reader)
		add(test{name: "row, " + f.name,
			what: "generic store on one SM, cp.async.bulk on another, release and acquire of gpu scope", promised: f.promised,
			bulk: true}, w, r)
	}
	return list
}

// kernel builds a test over n CTAs, an even number.
func (t *test) kernel(ctas int) (*ir.Kernel, error) {
	options := dsl.Options{Warps: channelWarps + loadWarps, Grid: ctas, SharedLimit: 232448}
	if t.cluster {
		options.Cluster = 2
	}
	k := dsl.New("litmus", options)
	n := int64(ctas * channelWarps * 32)
	rounds := dsl.Scalar[dsl.U32](k, "rounds", "messages of each channel")
	loads := dsl.Scalar[dsl.U32](k, "loads",
		"times that each thread of the warps that stream goes on at most, loadAhead 16-byte loads each time")
	stream := dsl.Global[dsl.B128](k, "stream", loadWords, dsl.ReadOnly())
	sink := dsl.Global[dsl.U32](k, "sink", int64(ctas*loadWarps*32))
	streamed := dsl.Global[dsl.U32](k, "streamed", int64(ctas*loadWarps*32))
	through := dsl.Shared[dsl.U32](k, "through", 1) // channels' warps that have ended
	bad := dsl.Global[dsl.U32](k, "bad", n)
	c := &channel{k: k, data: dsl.Global[dsl.U32](k, "data", n), packet: dsl.Global[dsl.B128](k, "packet", n),
		ping: dsl.Global[dsl.U32](k, "ping", n), pong: dsl.Global[dsl.U32](k, "pong", n)}
	touch := k.CTA().EqC(1 << 20) // every buffer is used, whatever the test
	k.If(touch, func() {
		c.data.Store(dsl.At(0), c.data.Load(dsl.At(1)))
		c.packet.Store(dsl.At(0), c.packet.Load(dsl.At(1)))
	})
	if t.bulk {
		c.warp = k.Warp()
		c.landing = dsl.Shared[dsl.B128](k, "landing", channelWarps*32, dsl.Align(128))
		c.landed = dsl.NewMBars(k, "landed", channelWarps)
		k.If(k.Tid().EqC(0), func() {
			for i := range channelWarps {
				c.landed.Init(dsl.At(i), k.U32(1))
			}
			k.FenceMBarInit()
		})
		k.Barrier()
	}
	k.If(k.Tid().EqC(0), func() { through.Store(dsl.At(0), k.U32(0)) })
	k.Barrier()
	// The writer's side of channel id is that of its own number; the reader's is in the CTA beside it, or in the upper
	// half.
	lane, warp := k.Lane(), k.Warp()
	var writes dsl.Pred
	var peer dsl.Val[dsl.U32]
	if t.cta {
		writes, peer = warp.LtC(channelWarps/2), k.CTA().MulC(channelWarps).Add(warp.XorC(channelWarps/2))
	} else {
		writes, peer = k.CTA().AndC(1).EqC(0), k.CTA().XorC(1).MulC(channelWarps).Add(warp)
	}
	own := k.CTA().MulC(channelWarps).Add(warp)
	c.id = dsl.Select(writes, own, peer).MulC(32)
	if !t.bulk {
		c.id = c.id.Add(lane)
	}
	k.Roles(
		dsl.Role{Name: "channels", First: 0, End: channelWarps, Body: func() {
			t.rounds(c, rounds, writes, own.MulC(32).Add(lane), bad)
			k.If(k.Lane().EqC(0), func() { dsl.AtomicAdd(through, dsl.At(0), k.U32(1), dsl.Relaxed(dsl.CTAScope)) })
		}},
		dsl.Role{Name: "load", First: channelWarps, End: channelWarps + loadWarps, Body: func() {
			thread := k.CTA().MulC(loadWarps * 32).Add(k.Tid().SubC(channelWarps * 32))
			load(k, thread, ctas*loadWarps*32, loads, through, stream, sink, streamed)
		}})
	return k.Finish()
}

// load streams memory, threads apart, until all channels' warps of the CTA are through, and counts how often a thread
// went on.
func load(k *dsl.Kernel, thread dsl.Val[dsl.U32], threads int, most dsl.Val[dsl.U32], through dsl.Buf[dsl.U32],
	stream dsl.Buf[dsl.B128],
	sink, streamed dsl.Buf[dsl.U32]) {
	at, sum, count := dsl.NewVar(thread, "at"), dsl.NewVar(k.U32(0), "sum"), dsl.NewVar(k.U32(0), "count")
	k.For(k.U32(0), most, func(dsl.Val[dsl.U32]) {
		k.If(through.Load(dsl.At(0), dsl.Relaxed(dsl.CTAScope)).LtC(channelWarps), func() {
			var words []dsl.Val[dsl.B128]
			for i := range loadAhead {
				words = append(words, stream.Load(at.Get().AddC(i*threads).AndC(loadWords-1)))
			}
			for _, w := range words {
				sum.Set(sum.Get().Xor(dsl.Split(w)[0]))
			}
			at.Set(at.Get().AddC(loadAhead * threads).AndC(loadWords - 1))
			count.Set(count.Get().AddC(1))
		})
	}, dsl.Unroll(1))
	sink.Store(thread, sum.Get())
	streamed.Store(thread, count.Get())
}

// rounds is both sides of all channels. A reader counts what is wrong.
func (t *test) rounds(c *channel, rounds dsl.Val[dsl.U32], writes dsl.Pred, place dsl.Val[dsl.U32],
	bad dsl.Buf[dsl.U32]) {
	k := c.k
	each := func(body func(r dsl.Val[dsl.U32])) { k.For(k.U32(1), rounds.AddC(1), body, dsl.Unroll(1)) }
	k.IfElse(writes, func() {
		each(func(r dsl.Val[dsl.U32]) {
			t.write(c, r)
			dsl.WaitUntil(c.pong, c.id, dsl.GE, r, dsl.Acquire(dsl.GPUScope))
			k.SyncWarp()
		})
	}, func() {
		wrong := dsl.NewVar(k.U32(0), "wrong")
		each(func(r dsl.Val[dsl.U32]) {
			wrong.Set(wrong.Get().Add(t.read(c, r)))
			k.SyncWarp()
			answer := func() { c.pong.Store(c.id, r, dsl.Release(dsl.GPUScope)) }
			if t.bulk {
				k.If(k.Lane().EqC(0), answer)
			} else {
				answer()
			}
		})
		bad.Store(place, wrong.Get())
	})
}
