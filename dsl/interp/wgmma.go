package interp

import "github.com/mkgen/mkgen/dsl/ir"

// The tensor core of a warpgroup works in the async proxy. A wgmma's reads of shared memory are accesses of a clock
// component of the warp's own, whose epochs are its groups: who wants to overwrite an operand must know, by way of
// wgmma.wait, that the group has ended. The products are computed when they are issued. A program without faults cannot
// tell: nothing may write the operands, nor touch the sums, until the wait.

// groupState is what a warp has under way on its warpgroup's tensor core.
type groupState struct {
	vars   []varState // by number: Vars that a wgmma names
	fenced bool       // by a wgmma.fence, at any time
	open   int        // wgmmas since the last commit
	groups uint32     // committed
	done   uint32     // groups that the warp has waited for
	ends   []int      // for the groups behind done: how many collectives of the warpgroup there were
}

// varState says what wgmmas do with a variable, as numbers of groups from 1 on.
type varState struct {
	wrote, read uint32
	touched     bool // by the warp itself since its last wgmma.fence
}

// collective is a wgmma or setmaxreg: the four warps of a warpgroup must come to the same, with the same operands.
type collective struct {
	pc   int32
	a, b int64
	by   *warp
}

// groupLog is the order of a warpgroup's collectives, those left out that all four warps have come to.
type groupLog struct {
	past    int // collectives left out
	list    []collective
	at      [4]int // how many each warp has come to
	waiting []*warp
}

// join counts w in at its next collective. It reports whether that is what the others came to.
func (m *machine) join(w *warp, in *inst, a, b int64) bool {
	g := &w.cta.logs[w.wi/4]
	n := g.at[w.wi%4]
	g.at[w.wi%4]++
	if n-g.past == len(g.list) {
		g.list = append(g.list, collective{in.pc, a, b, w})
	}
	if c := g.list[n-g.past]; c.pc != in.pc || c.a != a || c.b != b {
		m.fail(w, in, anyLane, WarpgroupApart,
			"the warps of a warpgroup come to different collectives, or with different operands").
			side("another warp", c.by, anyLane, &m.p.code[c.pc])
		return false
	}
	for least := min(g.at[0], g.at[1], g.at[2], g.at[3]); g.past < least; g.past++ {
		g.list = g.list[1:]
	}
	for _, other := range g.waiting {
		m.sched.again(other)
	}
	g.waiting = g.waiting[:0]
	return true
}

// grouped checks that w is in a whole warpgroup, with all lanes, and makes its state.
func (m *machine) grouped(w *warp, in *inst) *groupState {
	if !m.converged(w, in) {
		return nil
	}
	if w.group == nil {
		w.group = &groupState{vars: make([]varState, len(m.p.groupVars))}
	}
	if n := len(w.cta.warps) / 4; int(w.wi/4) >= n {
		m.fail(w, in, anyLane, WarpgroupApart, "%s in warp %d of %d, of which no four make a warpgroup", in.op, w.wi,
			len(w.cta.warps))
		return nil
	}
	return w.group
}

func stepWGMMAFence(m *machine, w *warp, in *inst) {
	if g := m.grouped(w, in); g != nil {
		g.fenced = true
		for i := range g.vars {
			g.vars[i].touched = false
		}
	}
}

func stepWGMMACommit(m *machine, w *warp, in *inst) {
	g := m.grouped(w, in)
	if g == nil {
		return
	}
	g.open = 0
	g.groups++
	g.ends = append(g.ends, w.cta.logs[w.wi/4].at[w.wi%4])
}

// stepWGMMAWait waits until all groups but the last few have ended, which they do when all four warps have come to what
// is in them.
func stepWGMMAWait(m *machine, w *warp, in *inst) {
	g := m.grouped(w, in)
	if g == nil {
		return
	}
	end := g.groups - min(g.groups, uint32(in.attr.N))
	if end <= g.done {
		w.wait = waiting{}
		return
	}
	log := &w.cta.logs[w.wi/4]
	if want := g.ends[end-g.done-1]; min(log.at[0], log.at[1], log.at[2], log.at[3]) < want {
		w.wait = waiting{kind: waitGroup, in: in}
		log.waiting = append(log.waiting, w)
		w.pc--
		m.sched.block(w)
		return
	}
	w.wait = waiting{}
	g.ends = g.ends[end-g.done:]
	g.done = end
	if m.o.races() {
		w.clk.learn(fullMask, stamp{hb: (*clock)(nil).raised(m.parts, m.comps, w.cta.id, m.groupComp(w), end, anyLane, end)})
	}
}

// groupComp is the number in its CTA of the clock component of w's groups.
func (m *machine) groupComp(w *warp) int32 { return int32(m.p.kernel.Warps+m.p.mbars) + w.wi }

// guarded is fn of a var, get or set of a variable that wgmmas name.
func guarded(fn stepFn) stepFn {
	return func(m *machine, w *warp, in *inst) {
		if w.group == nil {
			w.group = &groupState{vars: make([]varState, len(m.p.groupVars))}
		}
		g := w.group
		v := &g.vars[in.groupVars[0]]
		if v.wrote > g.done || in.op != ir.OpGet && v.read > g.done {
			m.fail(w, in, firstLane(w.mask), AsyncRegister,
				"%s of %s, which a wgmma uses that is under way: no wgmma.wait lies between", in.op, in.attr.Var)
			return
		}
		v.touched = true
		fn(m, w, in)
	}
}

// useVars notes what a wgmma does with its variables.
func (m *machine) useVars(w *warp, in *inst, g *groupState) bool {
	if !g.fenced {
		m.fail(w, in, anyLane, AsyncRegister, "the warp's first wgmma, and no wgmma.fence before it")
		return false
	}
	fragments := 0
	if len(in.mem) == 1 {
		fragments = ir.FragmentA
	}
	for i, n := range in.groupVars {
		v := &g.vars[n]
		if v.touched {
			m.fail(w, in, anyLane, AsyncRegister, "uses %s, which the warp has touched since its last wgmma.fence",
				in.attr.Vars[i])
			return false
		}
		if i < fragments {
			v.read = g.groups + 1
		} else {
			v.wrote = g.groups + 1
		}
	}
	g.open++
	return true
}

func wgmma(s *ir.Instr) (stepFn, error) {
	e := groupElement{2, fromBF16}
	switch s.T {
	case ir.F16x2:
		e.wide = fromF16
	case ir.E4M3x2:
		e = groupElement{1, fromE4M3}
	}
	n := s.Columns()
	return func(m *machine, w *warp, in *inst) { m.multiplyGroup(w, in, n, e) }, nil
}

// groupElement is an element of wgmma's operands: its bytes, and what widens it.
type groupElement struct {
	bytes int
	wide  func(uint64) float32
}

// groupDepth is the most columns of A that a wgmma takes: 32 bytes of a row.
const groupDepth = 32

// multiplyGroup is the warp's part of m64nNk16, or k32 of bytes: rows 16·(warp mod 4) to 15 more. Sums start from what
// is in the variables and add the products in order of k, as mma does, in f32. A GPU keeps fewer bits of sums of e4m3,
// about 14 of the largest addend's: that is not modelled.
func (m *machine) multiplyGroup(w *warp, in *inst, n int, e groupElement) {
	g := m.grouped(w, in)
	if g == nil {
		return
	}
	var place [2]int64
	for i := range in.mem {
		at, ok := m.tileAt(w, in, i, n)
		if !ok {
			return
		}
		place[i] = at
	}
	if !m.join(w, in, place[0], place[1]) || !m.useVars(w, in, g) {
		return
	}
	var a [16][groupDepth]float32
	var b [256][groupDepth]float32
	last, sums := len(in.mem)-1, in.vars
	if last == 0 {
		sums = in.vars[ir.FragmentA:]
		fragment(w, in, &a, e.wide)
	} else if !m.readTile(w, in, 0, place[0], 16*int(w.wi%4), a[:], e) {
		return
	}
	read := m.readTile
	if in.attr.Tiles[last].Across != 0 {
		read = m.readAcross
	}
	if !read(w, in, last, place[last], 0, b[:n], e) {
		return
	}
	for j := range sums {
		d := &w.regs[sums[j]]
		for l := range 32 {
			row, col := &a[l/4+8*(j>>1&1)], &b[8*(j/4)+l%4*2+j&1]
			sum := float32(0)
			if in.attr.Imm == 0 {
				sum = f32(d[l])
			}
			for k := range groupDepth / e.bytes {
				sum += float32(row[k] * col[k])
			}
			d[l] = fromF32(sum)
		}
	}
}

// fragment is A from the first variables, laid out as mma's.
func fragment(w *warp, in *inst, a *[16][groupDepth]float32, wide func(uint64) float32) {
	for i := range ir.FragmentA {
		src := &w.regs[in.vars[i]]
		for l := range 32 {
			r, c := l/4+8*(i&1), l%4*2+8*(i>>1)
			a[r][c], a[r][c+1] = wide(src[l]&0xffff), wide(src[l]>>16)
		}
	}
}

// tileAt is the byte of the CTA's shared memory at which operand i begins: the same for all lanes, in the first row of
// a group. It has n columns where they lie in rows.
func (m *machine) tileAt(w *warp, in *inst, i, n int) (int64, bool) {
	r := &in.mem[i]
	first := m.index(w, r, 0)
	for l := 1; l < 32; l++ {
		if m.index(w, r, l) != first {
			m.fail(w, in, l, NotUniform, "operand %s begins at element %d in lane 0, and elsewhere in this one", r.buf,
				first).at(r.buf, first)
			return 0, false
		}
	}
	t := in.attr.Tiles[i]
	swizzle, row := int64(t.Swizzle), int64(32) // what it takes of a row
	if t.Across != 0 {
		row = min(int64(2*n), swizzle)
	}
	abs := int64(w.cta.shared[r.root].info.buf.Offset) + r.base + first*r.elem
	if x := abs % (8 * swizzle); x%16 != 0 || x+row > swizzle {
		m.fail(w, in, anyLane, Misaligned,
			"operand %s begins at byte %d, want %d bytes of the first row of a group of 8 rows of %d bytes, itself aligned",
			r.buf, abs, row, swizzle).at(r.buf, first)
		return 0, false
	}
	return abs, true
}

// readTile reads 32 bytes of some rows of operand i.
func (m *machine) readTile(w *warp, in *inst, i int, at int64, first int, rows [][groupDepth]float32,
	of groupElement) bool {
	t, each := in.attr.Tiles[i], 16/of.bytes
	for k := range rows {
		n := first + k
		for unit := range int64(2) {
			u, ok := m.readUnit(w, in, i, at+int64(n/8*t.Stride+n%8*t.Swizzle)+16*unit, of.bytes)
			if !ok {
				return false
			}
			for e := range each {
				rows[k][each*int(unit)+e] = of.wide(u[e])
			}
		}
	}
	return true
}

// readAcross reads the columns of operand i, whose tile has them in 16 rows.
func (m *machine) readAcross(w *warp, in *inst, i int, at int64, _ int, columns [][groupDepth]float32,
	of groupElement) bool {
	t := in.attr.Tiles[i]
	for k := range 16 {
		for n := 0; n < len(columns); n += 8 {
			u, ok := m.readUnit(w, in, i, at+int64(k/8*t.Stride+k%8*t.Swizzle+2*n/t.Swizzle*t.Across+2*n%t.Swizzle),
				of.bytes)
			if !ok {
				return false
			}
			for e := range 8 {
				columns[n+e][k] = of.wide(u[e])
			}
		}
	}
	return true
}

// readUnit reads 16 bytes of operand i, elements of size bytes, which swizzled lie at byte abs of the CTA's shared
// memory, as bulk copies read: in the async proxy, until the group has ended.
func (m *machine) readUnit(w *warp, in *inst, i int, abs int64, size int) (u [16]uint64, ok bool) {
	r := &in.mem[i]
	rg := w.cta.shared[r.root]
	abs ^= abs >> 3 & int64(in.attr.Tiles[i].Swizzle-16)
	off := abs - int64(rg.info.buf.Offset)
	if off < 0 || off+16 > int64(len(rg.data)) {
		m.fail(w, in, anyLane, OutOfBounds, "a row of an operand lies at byte %d of %s, which has %d", off, rg.info.buf,
			len(rg.data)).at(rg.info.buf, off/int64(rg.info.buf.Elem.Size()))
		return u, false
	}
	a := accessor{w: w, in: in, lane: anyLane, async: true,
		rec: pack(w.cta.id*m.comps+m.groupComp(w), w.group.groups+1, anyLane, in.pc)}
	if rg.shadow != nil && !m.touch(rg, off, 16, &a) || !m.readable(w, in, r, rg, anyLane, off, 16) {
		return u, false
	}
	for e := range 16 / size {
		u[e] = rg.load(off+int64(size*e), int64(size)).lo
	}
	return u, true
}

// leaveGroup looks at what a warp leaves under way.
func (m *machine) leaveGroup(w *warp, in *inst) {
	g := w.group
	if g == nil || m.void {
		return
	}
	if g.open > 0 || g.groups > g.done {
		m.fail(w, in, anyLane, ExitPending, "the warp ends with %d wgmmas not committed and %d groups not waited for", g.open,
			g.groups-g.done)
		return
	}
	for i, log := range w.cta.logs {
		if w.cta.live == 0 && len(log.list) > 0 {
			c := log.list[0]
			m.fail(c.by, &m.p.code[c.pc], anyLane, WarpgroupApart,
				"not all warps of warpgroup %d have come here: they came to %v collectives", i, log.at)
			return
		}
	}
}
