package grammar

import (
	"encoding/json"
	"errors"
	"math"
)

// count is a keyword that is a whole number from 0, def where it is absent.
func (c *schemas) count(o object, name, at string, def int) int {
	var x float64
	switch {
	case !o.has(name):
		return def
	case json.Unmarshal(o.values[name], &x) != nil || x != math.Trunc(x) || x < 0 || x > 1e6:
		c.refuse(at, "%s: found %s, want a whole number from 0 to 1000000", name, short(o.values[name]))
		return def
	}
	return int(x)
}

// range2 is two such keywords; hi is -1 where there is no limit.
func (c *schemas) range2(o object, least, most, at string) (lo, hi int) {
	lo, hi = c.count(o, least, at, 0), c.count(o, most, at, -1)
	if hi >= 0 && lo > hi {
		c.refuse(at, "%s %d is above %s %d", least, lo, most, hi)
		hi = lo
	}
	return lo, hi
}

var errFraction = errors.New("a number that is not whole")

// limits are the whole numbers between a schema's bounds, as far as maxDigits go. err is about a bound that is not
// whole, which is rounded inwards.
func (c *schemas) limits(o object, at string) (lo, hi int64, err error) {
	const most = 999_999_999_999_999
	lo, hi = -most, most
	for _, name := range []string{"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"} {
		if !o.has(name) {
			continue
		}
		var x float64
		if json.Unmarshal(o.values[name], &x) != nil {
			c.refuse(at, "%s: found %s, want a number", name, short(o.values[name]))
			return lo, hi, nil
		}
		if x != math.Trunc(x) {
			err = errFraction
		}
		x = max(-2*most, min(2*most, x))
		switch name {
		case "minimum":
			lo = max(lo, int64(math.Ceil(x)))
		case "exclusiveMinimum":
			lo = max(lo, int64(math.Floor(x))+1)
		case "maximum":
			hi = min(hi, int64(math.Floor(x)))
		case "exclusiveMaximum":
			hi = min(hi, int64(math.Ceil(x))-1)
		}
	}
	return lo, hi, err
}
