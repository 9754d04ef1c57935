package bounds

import (
	"math/bits"
	"strconv"

	"github.com/mkgen/mkgen/dsl/ir"
)

// inf stands for every integer from 2^62 on, and −inf for those from −2^62 down: no
// buffer, byte count or counter that an address may use is that large.
const inf = int64(1) << 62

func clamp(x int64) int64 { return max(-inf, min(inf, x)) }

// add is a + b; an infinite operand stays infinite (opposite infinities give lo's side).
func add(a, b int64) int64 {
	switch {
	case a <= -inf || b <= -inf:
		return -inf
	case a >= inf || b >= inf:
		return inf
	}
	return clamp(a + b)
}

// addHi is add for upper bounds: opposite infinities give +inf.
func addHi(a, b int64) int64 {
	if a >= inf || b >= inf {
		return inf
	}
	return add(a, b)
}

// mul is a·b, infinite where it leaves ±2^62.
func mul(a, b int64) int64 {
	if a == 0 || b == 0 {
		return 0
	}
	neg := a < 0 != (b < 0)
	hi, lo := bits.Mul64(abs(a), abs(b))
	if hi != 0 || lo >= uint64(inf) {
		if neg {
			return -inf
		}
		return inf
	}
	if neg {
		return -int64(lo)
	}
	return int64(lo)
}

func abs(a int64) uint64 {
	if a < 0 {
		return uint64(-a)
	}
	return uint64(a)
}

// floorDiv and ceilDiv divide by n > 0; infinite stays infinite.
func floorDiv(a, n int64) int64 {
	if a >= inf || a <= -inf {
		return a
	}
	q := a / n
	if a%n < 0 {
		q--
	}
	return q
}

func ceilDiv(a, n int64) int64 { return -floorDiv(-a, n) }

func gcd(a, b int64) int64 {
	a, b = int64(abs(a)), int64(abs(b))
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// interval is the integers from lo to hi, both included.
type interval struct{ lo, hi int64 }

func (i interval) hull(j interval) interval { return interval{min(i.lo, j.lo), max(i.hi, j.hi)} }
func (i interval) meet(j interval) interval { return interval{max(i.lo, j.lo), min(i.hi, j.hi)} }
func (i interval) in(j interval) bool       { return j.lo <= i.lo && i.hi <= j.hi }
func (i interval) empty() bool              { return i.lo > i.hi }

func (i interval) times(j interval) interval {
	a, b, c, d := mul(i.lo, j.lo), mul(i.lo, j.hi), mul(i.hi, j.lo), mul(i.hi, j.hi)
	return interval{min(a, b, c, d), max(a, b, c, d)}
}

// String is "3 to 17", or "17".
func (i interval) String() string {
	if i.lo == i.hi {
		return text(i.lo)
	}
	return text(i.lo) + " to " + text(i.hi)
}

func text(x int64) string {
	switch {
	case x >= inf:
		return "2^62 or more"
	case x <= -inf:
		return "−2^62 or less"
	}
	return strconv.FormatInt(x, 10)
}

// rangeOf is what a type's values can be; u64 ends at inf.
func rangeOf(t ir.Type) interval {
	switch t {
	case ir.I32:
		return interval{-1 << 31, 1<<31 - 1}
	case ir.U32:
		return interval{0, 1<<32 - 1}
	case ir.U16:
		return interval{0, 1<<16 - 1}
	}
	return interval{0, inf}
}
