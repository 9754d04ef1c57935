package ir

import "fmt"

// ctl is what is known of the control flow at a point.
type ctl struct {
	scope Scope // threads known to be here together, within the role if there is one
	by    Stmt  // the If or For that narrowed it, or nil
	role  *Role // the role it stands in, or nil
}

// apart says why threads may not be together here.
func (c ctl) apart() string {
	head, cond := "", "condition"
	switch s := c.by.(type) {
	case *If:
		head = s.String()
	case *For:
		head, cond = "for "+s.I.String(), "bounds"
	}
	differ := "may differ from lane to lane"
	if c.scope >= Warp {
		differ = "may differ from warp to warp"
	}
	return fmt.Sprintf("under `%s` of %s, whose %s %s", head, c.by.Position().Line, cond, differ)
}

// controlCheck judges every op that needs several threads at once.
type controlCheck struct {
	v *verifier
	u *Uniformity
}

func (v *verifier) control() {
	c := &controlCheck{v: v, u: Analyze(v.k)}
	c.block(v.k.Body, ctl{scope: GPU})
}

func (c *controlCheck) block(b *Block, at ctl) {
	for _, s := range b.Stmts {
		c.v.seq++
		switch s := s.(type) {
		case *Instr:
			c.instr(s, at)
		case *If:
			in := at.narrow(c.u.Of(s.Cond), s)
			c.block(s.Then, in)
			if s.Else != nil {
				c.block(s.Else, in)
			}
		case *For:
			c.block(s.Body, at.narrow(c.u.least(s.Lo, s.Hi, s.Step), s))
		case *Roles:
			c.roles(s, at)
		case *Region:
			c.block(s.Body, at)
		}
	}
}

func (c ctl) narrow(s Scope, by Stmt) ctl {
	if s < c.scope {
		c.scope, c.by = s, by
	}
	return c
}

func (c *controlCheck) instr(in *Instr, at ctl) {
	op := in.Op.String()
	switch need := in.Op.Info().Scope; {
	case in.Op == OpBarSync || in.Op == OpBarArrive:
		c.named(in, at)
	case in.Op == OpWGMMA || in.Op == OpSetMaxReg:
		c.warpgroup(in, at)
	case (in.Op == OpBarCTA || in.Op == OpBarCluster) && at.role != nil:
		c.v.errorf(KindControl, in.Pos, op,
			"stands in role %s, whose warps %d..%d are not the whole CTA; use a named barrier or move it out of the roles",
			at.role.Name, at.role.First, at.role.End)
	case at.scope >= need:
	case need == Warp:
		c.v.errorf(KindControl, in.Pos, op, "needs all 32 lanes, but stands %s; move it out, or assert the %s", at.apart(),
			uniformHint(at, "WarpScope"))
	default:
		c.v.errorf(KindControl, in.Pos, op, "needs all threads of the CTA, but stands %s; move it out, or assert the %s",
			at.apart(), uniformHint(at, "CTAScope"))
	}
}

// warpgroup checks an op of whole warpgroups. That the four warps of one come together is for the executor to see.
func (c *controlCheck) warpgroup(in *Instr, at ctl) {
	first, end, who := 0, c.v.k.Warps, "the CTA"
	if at.role != nil {
		first, end, who = at.role.First, at.role.End, "role "+at.role.Name
	}
	switch {
	case at.scope < Warp:
		c.v.errorf(KindControl, in.Pos, in.Op.String(),
			"needs all lanes of four warps, but stands %s; move it out, or assert the %s", at.apart(),
			uniformHint(at, "CTAScope"))
	case first%4 != 0 || end%4 != 0:
		c.v.errorf(KindSync, in.Pos, in.Op.String(),
			"stands in %s of warps %d..%d, want whole warpgroups: both multiples of 4", who, first, end)
	}
}

func uniformHint(at ctl, scope string) string {
	if _, ok := at.by.(*For); ok {
		return "bounds with Uniform(…, " + scope + ")"
	}
	return "operands of the condition with Uniform(…, " + scope + ")"
}

// named checks a named barrier. All warps of its role (or of the CTA) must
// reach it together, and it counts at least those and at most the CTA's.
func (c *controlCheck) named(in *Instr, at ctl) {
	op, warps, who := in.Op.String(), c.v.k.Warps, "the CTA"
	if at.role != nil {
		warps, who = at.role.End-at.role.First, "role "+at.role.Name
	}
	need := CTA
	if warps == 1 {
		need = Warp
	}
	switch counted := in.Attr.N / 32; {
	case at.scope < need:
		c.v.errorf(KindControl, in.Pos, op,
			"barrier %d needs all %d warps of %s, but stands %s; move it out, or give those warps a role", in.Attr.Imm, warps,
			who, at.apart())
	case counted > c.v.k.Warps:
		c.v.errorf(KindSync, in.Pos, op, "barrier %d counts %d warps, but the CTA has %d", in.Attr.Imm, counted, c.v.k.Warps)
	case counted < warps:
		c.v.errorf(KindSync, in.Pos, op, "barrier %d counts %d warps, but all %d warps of %s reach it", in.Attr.Imm, counted,
			warps, who)
	}
}

func (c *controlCheck) roles(s *Roles, at ctl) {
	switch {
	case at.role != nil:
		c.v.errorf(KindControl, s.Pos, "roles", "stand in role %s, want them outside of any role", at.role.Name)
	case at.scope < CTA:
		c.v.errorf(KindControl, s.Pos, "roles", "need all warps of the CTA, but stand %s; move them out", at.apart())
	}
	for i, r := range s.Roles {
		c.v.roleRange(r, s.Roles[:i])
		c.block(r.Body, ctl{scope: GPU, role: r})
	}
}

func (v *verifier) roleRange(r *Role, before []*Role) {
	what := "role " + r.Name
	if r.First < 0 || r.End > v.k.Warps || r.First >= r.End {
		v.errorf(KindSync, r.Pos, what, "has warps %d..%d, want a range that is not empty within 0..%d", r.First, r.End,
			v.k.Warps)
		return
	}
	for _, o := range before {
		if r.First < o.End && o.First < r.End {
			v.errorf(KindSync, r.Pos, what, "has warps %d..%d, which overlap role %s with warps %d..%d", r.First, r.End, o.Name,
				o.First, o.End)
		}
	}
}

// mbarriers refuses the use of an mbarrier buffer that no mbar.init names,
// once a buffer, at its first use.
func (v *verifier) mbarriers() {
	ready := make([]bool, len(v.k.Bufs))
	own := func(b *Buf) bool { return b.Elem == MBar && b.ID >= 0 && b.ID < len(ready) }
	v.instrs(func(in *Instr) {
		if in.Op == OpMBarInit && len(in.Mem) > 0 && own(in.Mem[0].Buf) {
			ready[in.Mem[0].Buf.Base().ID] = true
		}
	})
	v.seq = 0
	v.instrs(func(in *Instr) {
		for _, m := range in.Mem {
			if b := m.Buf.Base(); own(b) && !ready[b.ID] {
				ready[b.ID] = true
				v.errorf(KindInit, in.Pos, in.Op.String(),
					"uses the mbarriers %s, which nothing initialises; one thread calls Init before, and a barrier follows", b)
			}
		}
	})
}
