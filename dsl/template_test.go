package dsl_test

import "github.com/mkgen/mkgen/dsl"

// The lines of this file are what pos_test.go expects.

// template is called from another file.
func template(k *dsl.Kernel) {
	n := k.CTA()
	k.Nanosleep(n)
	//
	k.For(k.U32(0), n, func(i u32) {
		k.If(i.EqC(1), func() { k.Nanosleep(i) })
		//
		helper(k)
	})
}

func helper(k *dsl.Kernel) {
	k.Nanosleep(k.U32(2))
}

func reduce(k *dsl.Kernel) {
	out(k, dsl.WarpSum(k.Lane()))
}

func demanding(k *dsl.Kernel, rows int) {
	k.Require(rows%2 == 0, "%d rows, want an even number", rows)
}

// nested emits behind as many more frames of this file as asked.
func nested(k *dsl.Kernel, frames int) {
	if frames == 0 {
		k.Nanosleep(k.U32(5))
		return
	}
	nested(k, frames-1)
}

func sometimesHelper(k *dsl.Kernel, helps bool) {
	if helps {
		k.Helper()
	}
	k.Nanosleep(k.U32(1))
}
