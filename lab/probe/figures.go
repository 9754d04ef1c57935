package probe

import (
	"fmt"
	"math"
	"slices"
)

// What is compared, each relative to the size of what is right.
const (
	KeyRow        = "key_row"        // a head's key that the step appended to the cache, from the layer's input
	ValueRow      = "value_row"      // its value
	Attention     = "attention"      // a query head's output, over the keys and values in the cache
	Page          = "page"           // the part of a page of keys that attention seems to leave out; 1 is all of it
	AttnResidual  = "attn_residual"  // what o adds to the residual vector, from attention's output
	MLPResidual   = "mlp_residual"   // what the MLP adds, from the residual vector behind attention
	CacheRow      = "cache_row"      // a row of the cache against an independent model's, by projections
	CacheRowScale = "cache_row_size" // the factor by which all rows of a head are larger or smaller
)

// Figure is the worst of one comparison.
type Figure struct {
	What  string  `json:"what"`
	Worst float64 `json:"worst"` // NaN and infinities are as 1e300
	Limit float64 `json:"limit"`
	Where string  `json:"where"`
	Count int     `json:"count"` // how many were compared
}

// Ratio is how far beyond the limit the worst is; above 1 it is a fault.
func (f *Figure) Ratio() float64 { return f.Worst / f.Limit }

// Figures are the worst of each comparison, in the order in which they were first made.
type Figures []Figure

// note takes a comparison in.
func (f *Figures) note(what string, x float64, where func() string) {
	i := slices.IndexFunc(*f, func(g Figure) bool { return g.What == what })
	if i < 0 {
		i = len(*f)
		*f = append(*f, Figure{What: what, Worst: -1, Limit: limits[what]})
	}
	if !(x < 1e300) {
		x = 1e300
	}
	g := &(*f)[i]
	if g.Count++; x > g.Worst {
		g.Worst, g.Where = x, where()
	}
}

// Join takes in what others found.
func (f *Figures) Join(others Figures) {
	for _, o := range others {
		before := 0
		if i := slices.IndexFunc(*f, func(g Figure) bool { return g.What == o.What }); i >= 0 {
			before = (*f)[i].Count
		}
		f.note(o.What, o.Worst, func() string { return o.Where })
		i := slices.IndexFunc(*f, func(g Figure) bool { return g.What == o.What })
		(*f)[i].Count = before + o.Count
		f.Raise(o.What, o.Limit)
	}
}

// Raise makes the limit of a comparison that has been made at least x.
func (f *Figures) Raise(what string, x float64) {
	for i, g := range *f {
		if g.What == what {
			(*f)[i].Limit = max(g.Limit, x)
		}
	}
}

// Beyond lists what is beyond its limit.
func (f Figures) Beyond() (list Figures) {
	for _, g := range f {
		if g.Ratio() > 1 {
			list = append(list, g)
		}
	}
	return list
}

// Problems says what is beyond its limit, a sentence each.
func (f Figures) Problems() (list []string) {
	for _, g := range f.Beyond() {
		list = append(list, fmt.Sprintf("%s is off by %.3g, want at most %.3g: %s", g.What, g.Worst, g.Limit, g.Where))
	}
	return list
}

// relative is |got − want| / |want|; 0 of nothing to nothing.
func relative(got, want []float64) float64 {
	diff, size := 0.0, 0.0
	for i, x := range want {
		diff += (got[i] - x) * (got[i] - x)
		size += x * x
	}
	if diff == 0 {
		return 0
	}
	return math.Sqrt(diff / size)
}
