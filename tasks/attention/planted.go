package attention

import "github.com/mkgen/mkgen/dsl"

// PlantedStores is a fault in what QKV stores of one KV head in one layer, so that a check
// can show that it would catch it.
type PlantedStores struct {
	Layer, Head int     // of the KV head
	Key, Value  float64 // factors of its keys, and of its values
}

// scaled is st with the factors.
func (f *PlantedStores) scaled(st stores, p place) stores {
	if f == nil {
		return st
	}
	return scaledStores{st, p, f}
}

type scaledStores struct {
	stores
	place
	f *PlantedStores
}

// times is the factor for a KV head of the running layer.
func (s scaledStores) times(kvHead u32, factor float64) f32 {
	planted := s.s.Layer.EqC(s.f.Layer).And(kvHead.EqC(s.f.Head))
	return dsl.Select(planted, s.e.K.F32(factor), s.e.K.F32(1))
}

func (s scaledStores) key(kvHead, i u32, r turned) {
	by := s.times(kvHead, s.f.Key)
	r.lo, r.hi = r.lo.Mul(by), r.hi.Mul(by)
	s.stores.key(kvHead, i, r)
}

func (s scaledStores) value(kvHead, i u32, y0, y1 f32) {
	by := s.times(kvHead, s.f.Value)
	s.stores.value(kvHead, i, y0.Mul(by), y1.Mul(by))
}
