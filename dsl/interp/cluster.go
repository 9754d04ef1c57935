package interp

// clusterSize is the number of CTAs a cluster.
func (m *machine) clusterSize() int32 { return int32(max(m.p.kernel.ClusterSize, 1)) }

// stepBarCluster is barrier.cluster: arrive with release, wait with acquire, by all threads of the cluster.
func stepBarCluster(m *machine, w *warp, in *inst) {
	size := m.clusterSize()
	m.meet(w, in, &m.clusters[w.cta.id/size], clusterBarrier, 32*int(size)*len(w.cta.warps), true)
}

// peer is the CTA of rank r in w's cluster, after the check that there is one whose shared memory is there still.
func (m *machine) peer(w *warp, in *inst, l int, r int64) *cta {
	size := m.clusterSize()
	if r < 0 || r >= int64(size) {
		m.fail(w, in, l, OutOfBounds, "CTA %d of a cluster of %d", r, size)
		return nil
	}
	c := m.ctas[w.cta.id/size*size+int32(r)]
	if c.live == 0 {
		m.fail(w, in, l, ExitPending, "CTA %d of the cluster has ended: its shared memory is there no more", r)
		return nil
	}
	return c
}

// stepMBarArriveAt arrives at mbarriers of other CTAs. It is taken to synchronise with their waits although its scope,
// the default, is that of a CTA: what it hands over is room for the async proxy, and CUTLASS does the same.
func stepMBarArriveAt(m *machine, w *warp, in *inst) {
	m.arriveLanes(w, in, arrival{rank: m.in(w, in.a[0])})
}
