package ir

// Uniformity says over how many threads the values of a kernel are known to
// be equal. A value has scope S when all threads of one S that compute it
// together compute the same; Thread promises nothing.
//
//	source                            scope
//	constants, params, grid           gpu
//	cta, cluster.rank                 cta
//	warp, vote, ballot                warp, or wider if the operands are
//	shfl.idx of a warp-uniform lane   warp, or wider if the value is
//	uniform.S                         S
//	lane, tid, loads, atomics, mma, imma    thread
//	other ops                         the narrowest of the operands
//	loop index                        the narrowest of lo, hi, step and control
//	get                               the variable's
//
// A variable's scope is the narrowest of all values set and of the control
// flow between its declaration and each set. In a role, "cta" means the
// role's warps: what warps outside of it set does not matter there, and what a
// role set is only the same within a warp where more warps meet.
type Uniformity struct {
	k     *Kernel
	vals  []Scope // by Value.ID
	roles []span  // the whole CTA, then every role in program order
}

// span is a range of warps and what they set the variables to.
type span struct {
	first, end int
	vars       []Scope // by Var.ID; never where they set none
}

// never is above every scope: nothing was set.
const never = Sys

func (u *Uniformity) span(first, end int) {
	s := span{first: first, end: end, vars: make([]Scope, len(u.k.Vars))}
	for i := range s.vars {
		s.vars[i] = never
	}
	u.roles = append(u.roles, s)
}

// Analyze computes the scopes, optimistically at first and then to a fixpoint
// of the variables. The kernel need not be correct.
func Analyze(k *Kernel) *Uniformity {
	u := &Uniformity{k: k, vals: make([]Scope, max(k.NumValues, 0))}
	u.span(0, k.Warps)
	Walk(k.Body, func(s Stmt) bool {
		if rs, ok := s.(*Roles); ok {
			for _, r := range rs.Roles {
				u.span(r.First, r.End)
			}
		}
		return true
	})
	for {
		p := &uniformPass{u: u, depth: make([]int, len(k.Vars))}
		p.block(k.Body, GPU)
		if !p.changed {
			return u
		}
	}
}

// Of is the scope over which v is known to be equal.
func (u *Uniformity) Of(v *Value) Scope {
	switch {
	case v != nil && v.Const:
		return GPU
	case v == nil || v.ID < 0 || v.ID >= len(u.vals):
		return Thread
	}
	return u.vals[v.ID]
}

// inRole is the scope over which x is equal whenever the warps of a role read
// it, or those of the CTA (role 0).
func (u *Uniformity) inRole(x *Var, role int) Scope {
	if x == nil || x.ID < 0 || x.ID >= len(u.k.Vars) {
		return Thread
	}
	s, here := GPU, u.roles[role]
	for _, r := range u.roles {
		set := r.vars[x.ID]
		switch {
		case set == never || r.first >= here.end || here.first >= r.end:
		case r.first <= here.first && here.end <= r.end:
			s = min(s, set)
		default: // some of the warps set it
			s = min(s, set, u.warp())
		}
	}
	return s
}

// warp is what "equal in a warp" means: the CTA, if that is all it has.
func (u *Uniformity) warp() Scope {
	if u.k.Warps == 1 {
		return CTA
	}
	return Warp
}

func (u *Uniformity) define(v *Value, s Scope) {
	if v != nil && v.ID >= 0 && v.ID < len(u.vals) {
		u.vals[v.ID] = s
	}
}

func (u *Uniformity) least(vs ...*Value) Scope {
	s := GPU
	for _, v := range vs {
		s = min(s, u.Of(v))
	}
	return s
}

// result is the scope of an instruction's results.
func (u *Uniformity) result(in *Instr) Scope {
	args := u.least(in.Args...)
	switch in.Op {
	case OpParam, OpGrid:
		return GPU
	case OpCTA:
		return CTA
	case OpWarp:
		return u.warp()
	case OpUniform:
		return max(in.Attr.Scope, args)
	case OpVoteAll, OpVoteAny, OpBallot, OpReduxMax, OpReduxAdd:
		return max(u.warp(), args)
	case OpShflIdx, OpShflXor, OpShflUp, OpShflDown:
		return u.shuffled(in)
	case OpMMA, OpIMMA:
		return Thread
	case OpClusterRank:
		return CTA
	}
	if len(in.Args) == 0 || in.Op >= numOps || in.Op.Info().Effect != Pure {
		return Thread
	}
	return args
}

func (u *Uniformity) shuffled(in *Instr) Scope {
	if len(in.Args) != 2 {
		return Thread
	}
	switch s := u.Of(in.Args[0]); {
	case s >= Warp:
		return s // every lane holds what it would be given
	case in.Op == OpShflIdx && u.Of(in.Args[1]) >= Warp:
		return u.warp()
	}
	return Thread
}

// uniformPass is one walk over the program.
type uniformPass struct {
	u       *Uniformity
	path    []Scope // of each enclosing If and For, outermost first
	role    int     // index of the role it is in, 0 outside
	entered int     // roles entered so far
	depth   []int   // by Var.ID: len(path) at its declaration
	changed bool
}

func (p *uniformPass) block(b *Block, ctl Scope) {
	for _, s := range b.Stmts {
		p.stmt(s, ctl)
	}
}

func (p *uniformPass) nested(b *Block, cond, ctl Scope) {
	if b == nil {
		return
	}
	p.path = append(p.path, cond)
	p.block(b, ctl)
	p.path = p.path[:len(p.path)-1]
}

func (p *uniformPass) stmt(s Stmt, ctl Scope) {
	switch s := s.(type) {
	case *Instr:
		p.instr(s)
	case *If:
		c := p.u.Of(s.Cond)
		p.nested(s.Then, c, min(c, ctl))
		p.nested(s.Else, c, min(c, ctl))
	case *For:
		c := p.u.least(s.Lo, s.Hi, s.Step)
		p.u.define(s.I, min(c, ctl))
		p.nested(s.Body, c, min(c, ctl))
	case *Roles:
		p.roles(s)
	case *Region:
		p.block(s.Body, ctl)
	}
}

func (p *uniformPass) roles(s *Roles) {
	outer, first := p.role, p.entered+1
	p.entered += len(s.Roles)
	for i, r := range s.Roles {
		p.role = first + i
		p.block(r.Body, GPU)
	}
	p.role = outer
}

func (p *uniformPass) instr(in *Instr) {
	x := in.Attr.Var
	known := x != nil && x.ID >= 0 && x.ID < len(p.depth)
	switch {
	case in.Op == OpVar && known:
		p.depth[x.ID] = len(p.path)
		p.set(x, p.u.least(in.Args...))
	case in.Op == OpSet && known:
		s := p.u.least(in.Args...)
		for _, c := range p.path[min(p.depth[x.ID], len(p.path)):] {
			s = min(s, c)
		}
		p.set(x, s)
	}
	for _, x := range in.Attr.Vars {
		if x != nil && x.ID >= 0 && x.ID < len(p.depth) {
			p.set(x, Thread)
		}
	}
	s := p.u.result(in)
	if in.Op == OpGet {
		s = p.u.inRole(x, p.role)
	}
	for _, r := range in.Res {
		p.u.define(r, s)
	}
}

func (p *uniformPass) set(x *Var, s Scope) {
	if vars := p.u.roles[p.role].vars; s < vars[x.ID] {
		vars[x.ID] = s
		p.changed = true
	}
}
