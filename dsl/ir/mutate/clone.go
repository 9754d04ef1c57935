package mutate

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl/ir"
)

// cloner copies a kernel's graph, each node once.
type cloner struct {
	values map[*ir.Value]*ir.Value
	vars   map[*ir.Var]*ir.Var
	params map[*ir.Param]*ir.Param
	bufs   map[*ir.Buf]*ir.Buf
}

// Clone is a deep copy of k: nothing of it is shared with the original but the
// constants, which nobody changes.
func Clone(k *ir.Kernel) *ir.Kernel {
	c := &cloner{map[*ir.Value]*ir.Value{}, map[*ir.Var]*ir.Var{}, map[*ir.Param]*ir.Param{}, map[*ir.Buf]*ir.Buf{}}
	out := *k
	out.Doc = append([]string(nil), k.Doc...)
	out.Params, out.Bufs, out.Vars = nil, nil, nil
	for _, p := range k.Params {
		q := *p
		c.params[p] = &q
		out.Params = append(out.Params, &q)
	}
	for _, b := range k.Bufs {
		out.Bufs = append(out.Bufs, c.buf(b))
	}
	for _, x := range k.Vars {
		out.Vars = append(out.Vars, c.variable(x))
	}
	out.Body = c.block(k.Body)
	return &out
}

func (c *cloner) buf(b *ir.Buf) *ir.Buf {
	if b == nil {
		return nil
	}
	if d, ok := c.bufs[b]; ok {
		return d
	}
	d := *b
	c.bufs[b] = &d
	d.Root = c.buf(b.Root)
	if b.Map != nil {
		m := *b.Map
		m.Of = c.buf(b.Map.Of)
		d.Map = &m
	}
	return &d
}

func (c *cloner) variable(x *ir.Var) *ir.Var {
	if x == nil {
		return nil
	}
	if y, ok := c.vars[x]; ok {
		return y
	}
	y := *x
	c.vars[x] = &y
	return &y
}

// value copies v; its Def and Loop are set when their statement is copied.
func (c *cloner) value(v *ir.Value) *ir.Value {
	if v == nil || v.Const {
		return v
	}
	if w, ok := c.values[v]; ok {
		return w
	}
	w := *v
	c.values[v] = &w
	return &w
}

func (c *cloner) list(vs []*ir.Value) []*ir.Value {
	out := make([]*ir.Value, len(vs))
	for i, v := range vs {
		out[i] = c.value(v)
	}
	return out
}

func (c *cloner) block(b *ir.Block) *ir.Block {
	if b == nil {
		return nil
	}
	out := &ir.Block{}
	for _, s := range b.Stmts {
		out.Stmts = append(out.Stmts, c.stmt(s))
	}
	return out
}

func (c *cloner) stmt(s ir.Stmt) ir.Stmt {
	switch s := s.(type) {
	case *ir.Instr:
		return c.instr(s)
	case *ir.For:
		d := *s
		d.I, d.Lo, d.Hi, d.Step = c.value(s.I), c.value(s.Lo), c.value(s.Hi), c.value(s.Step)
		d.I.Loop = &d
		d.Body = c.block(s.Body)
		return &d
	case *ir.If:
		d := *s
		d.Cond, d.Then, d.Else = c.value(s.Cond), c.block(s.Then), c.block(s.Else)
		return &d
	case *ir.Roles:
		d := *s
		d.Roles = nil
		for _, r := range s.Roles {
			q := *r
			q.Body = c.block(r.Body)
			d.Roles = append(d.Roles, &q)
		}
		return &d
	case *ir.Note:
		return s
	case *ir.Region:
		d := *s
		d.Body = c.block(s.Body)
		return &d
	}
	panic(fmt.Sprintf("BUG: unknown statement %T", s))
}

func (c *cloner) instr(s *ir.Instr) *ir.Instr {
	d := *s
	d.Args, d.Res = c.list(s.Args), c.list(s.Res)
	for _, v := range d.Res {
		v.Def = &d
	}
	d.Mem = append([]ir.Addr(nil), s.Mem...)
	for i := range d.Mem {
		d.Mem[i] = ir.Addr{Buf: c.buf(s.Mem[i].Buf), Index: c.value(s.Mem[i].Index)}
	}
	d.Attr.Var = c.variable(s.Attr.Var)
	d.Attr.Vars, d.Attr.Tiles = nil, slices.Clone(s.Attr.Tiles)
	for _, x := range s.Attr.Vars {
		d.Attr.Vars = append(d.Attr.Vars, c.variable(x))
	}
	if s.Attr.Param != nil {
		d.Attr.Param = c.params[s.Attr.Param]
	}
	return &d
}
