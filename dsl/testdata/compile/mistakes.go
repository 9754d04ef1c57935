// Package compile holds mistakes the Go compiler refuses: mixing Go time and
// device time, or element types. Each line's comment is a part of the message.
package compile

import "github.com/mkgen/mkgen/dsl"

func mistakes(k *dsl.Kernel, a, b dsl.Val[dsl.F32], i dsl.Val[dsl.I32], n dsl.Val[dsl.U32], h dsl.Val[dsl.BF16],
	p dsl.Pred, x dsl.Buf[dsl.F32]) {
	_ = a == b // want "cannot be compared"
	_ = p == p // want "cannot be compared"
	_ = x == x // want "cannot be compared"
	if p {     // want "non-boolean condition in if statement"
	}
	for range n { // want "cannot range over n"
	}
	_ = p && p                         // want "operator && not defined on p"
	_ = a + b                          // want "operator + not defined on a"
	_ = a.Add(i)                       // want "cannot use i"
	_ = a.Add(1)                       // want "cannot use 1"
	_ = dsl.Exp2(i)                    // want "cannot use i"
	_ = dsl.FMA(a, b, n)               // want "cannot use n"
	_ = dsl.Select(a, a, b)            // want "cannot use a"
	_ = dsl.ShflXor(h, 1)              // want "does not satisfy dsl.Word"
	_ = dsl.Unpack[dsl.F32]            // want "does not satisfy dsl.Pair"
	_ = dsl.MulHi(i, i)                // want "cannot use i"
	k.If(true, nil)                    // want "cannot use true"
	k.If(a, nil)                       // want "cannot use a"
	k.For(0, n, nil)                   // want "cannot use 0"
	k.For(n, i, nil)                   // want "cannot use i"
	x.Store(3, a)                      // want "cannot use 3"
	x.Store(a.Eq(b), a)                // want "missing method index"
	x.Store(n, n)                      // want "cannot use n"
	_ = dsl.AtomicAdd(x, n, a)         // want "does not satisfy dsl.Int"
	_ = dsl.Global[float32](k, "y", 1) // want "does not satisfy dsl.Elem"
	dsl.NewVar(a, "acc").Set(i)        // want "cannot use i"
	var _ map[dsl.Val[dsl.F32]]int     // want "invalid map key type"
}
