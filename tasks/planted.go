package tasks

import "github.com/mkgen/mkgen/dsl"

// PlantedStores is a fault in what QKV stores of one KV head in one layer, so that a check
// can show that it would catch it. The zero value of a factor changes nothing.
type PlantedStores struct {
	Layer, Head int     // of the KV head
	Key, Value  float64 // factors of its keys, and of its values; 0: none
	// Stale does not write the key and the value of the token at StaleAt into the cache.
	// The step itself still sees both where they are passed in words.
	Stale   bool
	StaleAt int
}

// stale is st without the row that is not written.
func (f *PlantedStores) stale(st stores, p place) stores {
	if f == nil || !f.Stale {
		return st
	}
	return staleStores{st, p, f}
}

// scaled is st with the factors.
func (f *PlantedStores) scaled(st stores, p place) stores {
	if f == nil || f.Key == 0 && f.Value == 0 {
		return st
	}
	return scaledStores{st, p, f}
}

// concerns is whether a KV head of the running layer is the planted one.
func (f *PlantedStores) concerns(p place, kvHead u32) dsl.Pred {
	return p.s.Layer.EqC(f.Layer).And(kvHead.EqC(f.Head))
}

type staleStores struct {
	stores
	place
	f *PlantedStores
}

func (s staleStores) unless(kvHead u32, store func()) {
	s.e.K.If(s.f.concerns(s.place, kvHead).And(s.s.Pos.EqC(s.f.StaleAt)).Not(), store)
}

func (s staleStores) key(kvHead, i u32, r0, r1 f32) {
	s.unless(kvHead, func() { s.stores.key(kvHead, i, r0, r1) })
}

func (s staleStores) value(kvHead, i u32, y0, y1 f32) {
	s.unless(kvHead, func() { s.stores.value(kvHead, i, y0, y1) })
}

type scaledStores struct {
	stores
	place
	f *PlantedStores
}

// times is the factor for a KV head.
func (s scaledStores) times(kvHead u32, factor float64) f32 {
	if factor == 0 {
		factor = 1
	}
	return dsl.Select(s.f.concerns(s.place, kvHead), s.e.K.F32(factor), s.e.K.F32(1))
}

func (s scaledStores) key(kvHead, i u32, r0, r1 f32) {
	by := s.times(kvHead, s.f.Key)
	s.stores.key(kvHead, i, r0.Mul(by), r1.Mul(by))
}

func (s scaledStores) value(kvHead, i u32, y0, y1 f32) {
	by := s.times(kvHead, s.f.Value)
	s.stores.value(kvHead, i, y0.Mul(by), y1.Mul(by))
}
