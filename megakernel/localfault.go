package megakernel

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/attention"
)

// The local faults: of one KV head, or of one layer; see Kernel.FaultPlace.
const (
	FaultValueScale Fault = "value-scale" // values are stored × 1.02
	FaultKeyScale   Fault = "key-scale"   // keys are stored × 1.02
	// FaultFirstPage leaves the first page of tokens out of a layer's attention at every
	// position that is FirstPageAt modulo FirstPageEvery.
	FaultFirstPage Fault = "first-page"
)

// FirstPageEvery and FirstPageAt say at which positions FaultFirstPage leaves a page out.
const FirstPageEvery, FirstPageAt = 32, 31

// planted is the factor of scaled keys and values.
const planted = 1.02

// LocalFaults lists the local faults.
func LocalFaults() []Fault { return []Fault{FaultValueScale, FaultKeyScale, FaultFirstPage} }

// FaultPlace is the layer and the KV head that local faults concern.
func (mk *Kernel) FaultPlace() (layer, head int) { return mk.Config.Layers / 2, mk.Config.KVHeads / 2 }

// plantStores puts a fault into what qkv stores.
func (b *builder) plantStores(qkv *attention.QKV) {
	layer, head := b.mk.FaultPlace()
	switch b.mk.Options.Fault {
	case FaultValueScale:
		qkv.Planted = &attention.PlantedStores{Layer: layer, Head: head, Key: 1, Value: planted}
	case FaultKeyScale:
		qkv.Planted = &attention.PlantedStores{Layer: layer, Head: head, Key: planted, Value: 1}
	}
}

// withoutFirstPage is what attention does instead of variant v, which may be nil: with
// FaultFirstPage some queries of a layer do not see the first page.
func (b *builder) withoutFirstPage(v *attention.Variant) *attention.Variant {
	if b.mk.Options.Fault != FaultFirstPage {
		return v
	}
	layer, _ := b.mk.FaultPlace()
	page := b.mk.Options.Page
	return masking(v, FaultFirstPage, func(q *attention.Query, k *attention.Key) dsl.Pred {
		seen := q.Position.AndC(FirstPageEvery - 1).EqC(FirstPageAt).And(q.Step.Layer.EqC(layer)).And(k.Position.LtC(page))
		return seen.Not()
	})
}

// masking is a variant, which may be nil, whose queries see only keys that sees allows.
func masking(v *attention.Variant, fault Fault,
	sees func(q *attention.Query, k *attention.Key) dsl.Pred) *attention.Variant {
	w := attention.Variant{Name: string(fault)}
	if v != nil {
		w = *v
	}
	before := w.Mask
	w.Mask = func(q *attention.Query, k *attention.Key) dsl.Pred {
		p := sees(q, k)
		if before != nil {
			p = p.And(before(q, k))
		}
		return p
	}
	return &w
}
