package megakernel

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/tasks"
)

// The local faults: of one KV head, or of one layer; see Kernel.FaultPlace.
const (
	FaultValueScale Fault = "value-scale" // values are stored × 1.02
	FaultKeyScale   Fault = "key-scale"   // keys are stored × 1.02
	// FaultStaleRow does not write one token's key and value into the cache; At says the
	// token's position. The step that makes them may still see them.
	FaultStaleRow Fault = "stale-row"
	// FaultFirstPage leaves the first page of tokens out of a layer's attention at every
	// position that is FirstPageAt modulo FirstPageEvery.
	FaultFirstPage Fault = "first-page"
)

// FirstPageEvery and FirstPageAt say at which positions FaultFirstPage leaves a page out.
const FirstPageEvery, FirstPageAt = 64, 63

// planted is the factor of scaled keys and values.
const planted = 1.02

// LocalFaults lists the local faults; FaultStaleRow is without its position.
func LocalFaults() []Fault {
	return []Fault{FaultValueScale, FaultKeyScale, FaultStaleRow, FaultFirstPage}
}

// At is the fault at a position: of FaultStaleRow only.
func (f Fault) At(position int) Fault { return Fault(fmt.Sprintf("%s@%d", f, position)) }

// split is the fault's name, and its position where it has one.
func (f Fault) split() (name Fault, position int, ok bool) {
	text, at, has := strings.Cut(string(f), "@")
	if !has {
		return f, 0, f != FaultStaleRow
	}
	n, err := strconv.ParseUint(at, 10, 31)
	return Fault(text), int(n), err == nil && Fault(text) == FaultStaleRow
}

// checkFault refuses a fault that there is none of.
func (o *Options) checkFault() error {
	name, _, ok := o.Fault.split()
	all := slices.Concat(Faults(), LocalFaults())
	if ok && slices.Contains(slices.Concat(all, Hangs(), []Fault{NoFault, FaultAttention}), name) {
		return nil
	}
	all[slices.Index(all, FaultStaleRow)] = FaultStaleRow + "@POSITION"
	return refuse("Fault", "fault %q, want %s", o.Fault, plural.Or(all))
}

// FaultPlace is the layer and the KV head that local faults concern.
func (mk *Kernel) FaultPlace() (layer, head int) { return mk.Config.Layers / 2, mk.Config.KVHeads / 2 }

// plantStores puts a fault into what qkv stores.
func (b *builder) plantStores(qkv *tasks.QKV) {
	layer, head := b.mk.FaultPlace()
	f := &tasks.PlantedStores{Layer: layer, Head: head}
	name, at, _ := b.mk.Options.Fault.split()
	switch name {
	case FaultValueScale:
		f.Value = planted
	case FaultKeyScale:
		f.Key = planted
	case FaultStaleRow:
		f.Stale, f.StaleAt = true, at
	default:
		return
	}
	qkv.Planted = f
}

// withoutFirstPage is what attention does instead of variant v, which may be nil: with
// FaultFirstPage some queries of a layer do not see the first page.
func (b *builder) withoutFirstPage(v *tasks.Variant) *tasks.Variant {
	if b.mk.Options.Fault != FaultFirstPage {
		return v
	}
	layer, _ := b.mk.FaultPlace()
	page := b.mk.Options.Page
	return masking(v, FaultFirstPage, func(q *tasks.Query, k *tasks.Key) dsl.Pred {
		seen := q.Position.AndC(FirstPageEvery - 1).EqC(FirstPageAt).And(q.Step.Layer.EqC(layer)).And(k.Position.LtC(page))
		return seen.Not()
	})
}

// masking is a variant, which may be nil, whose queries see only keys that sees allows.
func masking(v *tasks.Variant, fault Fault, sees func(q *tasks.Query, k *tasks.Key) dsl.Pred) *tasks.Variant {
	w := tasks.Variant{Name: string(fault)}
	if v != nil {
		w = *v
	}
	before := w.Mask
	w.Mask = func(q *tasks.Query, k *tasks.Key) dsl.Pred {
		p := sees(q, k)
		if before != nil {
			p = p.And(before(q, k))
		}
		return p
	}
	return &w
}
