package tasks

import "github.com/mkgen/mkgen/dsl"

// spot is where a lane reads its matrix rows of a block: the 16-byte element of
// its token's first unit of K or V, and what permutes the units.
type spot struct {
	buf      dsl.Buf[dsl.B128]
	row, key u32
}

// spot is token tok's of a block. Tokens from n on are replaced by the last
// valid one: their weight is 0, and 0 times what uninitialised memory may hold
// must not become NaN.
func (st *state) spot(b tokens, tok u32) spot {
	tok = tok.Min(b.n.SubC(1))
	return spot{b.buf, b.base.Add(tok.MulC(st.t.KV.TokenUnits())), b.first.Add(tok)}
}

// keySpot and valueSpot are where this lane reads its rows of keyFragments and
// valueFragments.
func (st *state) keySpot(b tokens) spot {
	lane := st.e.Lane
	return st.spot(b, lane.RemC(8).Add(lane.DivC(8).DivC(2).MulC(8)))
}

func (st *state) valueSpot(b tokens) spot {
	lane := st.e.Lane
	b.base = b.base.AddC(st.t.KV.D / 8)
	return st.spot(b, lane.RemC(8).Add(lane.DivC(8).AndC(1).MulC(8)))
}

// keyFragments are dimensions 16i … 16i+15 of K as the B operand of Q·Kᵀ: of
// tokens 0–7, and of 8–15. A lane holds dimensions 16i + 2c, + 1 (register 0)
// and 8 more (register 1) of token lane/4, where c = lane mod 4.
func (st *state) keyFragments(at spot, i int) [2][2]pair {
	unit := st.t.KV.swizzle(st.e.Lane.DivC(8).AndC(1).AddC(2*i), at.key)
	f := dsl.LoadMatrix(at.buf, at.row.Add(unit), false)
	return [2][2]pair{{f[0], f[1]}, {f[2], f[3]}}
}

// valueFragments are dimensions 16i … 16i+15 of V as the B operand of P·V: of
// dimensions 16i … + 7, and the other 8. A lane holds tokens 2c, 2c+1 (register
// 0) and 8 more (register 1) of its dimension, lane/4.
func (st *state) valueFragments(at spot, i int) [2][2]pair {
	unit := st.t.KV.swizzle(st.e.Lane.DivC(8).DivC(2).AddC(2*i), at.key)
	f := dsl.LoadMatrix(at.buf, at.row.Add(unit), true)
	return [2][2]pair{{f[0], f[1]}, {f[2], f[3]}}
}

// scores is Q·Kᵀ: the C fragments of tokens 0–7 and 8–15.
func (st *state) scores(b tokens) [2][4]f32 {
	zero := st.e.K.F32(0)
	s := [2][4]f32{{zero, zero, zero, zero}, {zero, zero, zero, zero}}
	at := st.keySpot(b)
	st.eachKeyFragment(b, at, func(i int, f [2][2]pair) {
		for nt := range s {
			s[nt] = dsl.MMA(st.q[i], f[nt], s[nt])
		}
	})
	return s
}

// weigh adds P·V to the output.
func (st *state) weigh(b tokens, p [4]pair) {
	at := st.valueSpot(b)
	value := st.valueTransform(b)
	for i := range st.t.KV.D / 16 {
		v := value(i, st.valueFragments(at, i))
		for j := range 2 {
			o, zero := st.o[2*i+j], st.e.K.F32(0)
			c := [4]f32{zero, zero, zero, zero} // rows not in use stay 0
			for x := range o {
				c[x] = o[x].Get()
			}
			d := dsl.MMA(p, v[j], c)
			for x := range o {
				o[x].Set(d[x])
			}
		}
	}
}
