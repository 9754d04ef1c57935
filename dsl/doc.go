// Package dsl is the typed builder: ordinary Go that appends device operations
// to a Kernel. With package pipeline's ring it is all a task author imports.
//
// Two times meet in a template, and the Go compiler keeps them apart:
//
//	wanted                       written                         runs
//	choose code by shape         Go if, Go types                 Go time
//	unroll                       Go for i := range 4             Go time
//	a device loop or branch      k.For(lo, hi, …), k.If(p, …)    device
//	choose without a branch      Select(p, a, b)                 device
//	check a shape                k.Require(cond, "…", …)         Go time
//	check on the executor        k.Assert(p, "…")                executor only
//
// A Val[T] is a device value of type T. Values cannot be compared with ==, and
// a Pred is not a bool, so mixing the two times does not compile. What changes
// over time lives in a Var.
//
// Builder calls never return errors: a mistake is recorded with the Go line of
// the template and of its caller, a dummy value goes on, and Finish reports
// all mistakes together, those that ir.Verify finds in the finished program
// included. It refuses a value nothing uses, unless only operations on
// constants that were folded away (x·0, Select of a constant) would have.
package dsl
