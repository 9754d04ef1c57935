package bench

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// median is the middle of v, the mean of the two middle ones of an even number;
// NaN of none.
func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// percentile is the smallest value that at least percent (1 to 100) of v do not
// exceed, by nearest rank; NaN of none.
func percentile(v []float64, percent int) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	return slices.Sorted(slices.Values(v))[(len(v)*percent+99)/100-1]
}

// micros is a duration in microseconds.
func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// digits is how many significant ones figures of records have.
const digits = 6

// significant rounds x to digits significant decimals.
func significant(x float64) float64 {
	y, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', digits, 64), 64)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return y
}
