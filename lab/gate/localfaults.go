package gate

import (
	"context"
	"encoding/binary"
	"errors"
	"math"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models/half"
)

// The local faults, of one head or of one layer; Kernel.FaultPlace says of which.
const (
	ValueScaled      = "value_scaled"       // a KV head's values × 1.02
	KeyScaled        = "key_scaled"         // its keys × 1.02
	StaleRow         = "stale_row"          // one token's row of it holds another token's
	FirstPageDropped = "first_page_dropped" // a layer's attention leaves the first page out at some positions
	NormScaled       = "norm_scaled"        // the gains of a layer's MLP norm × 1.01
	RopeUnscaled     = "rope_unscaled"      // RoPE without its scaling from a position on
)

// LocalFaults lists them in the order of their report.
func LocalFaults() []string {
	return []string{ValueScaled, KeyScaled, StaleRow, FirstPageDropped, NormScaled, RopeUnscaled}
}

// normFactor is by how much NormScaled is off.
const normFactor = 1.01

// planting is a local fault ready to be planted.
type planting struct {
	kernel megakernel.Fault // what the kernel is built with
	hooks  []hook           // what the host does on the way
	undo   func() error     // and behind it; nil: nothing
	skip   string           // why it cannot be planted
}

// planting prepares a local fault for a window.
func (l *local) planting(name string, w window) (p planting, err error) {
	switch name {
	case ValueScaled:
		p.kernel = megakernel.FaultValueScale
	case KeyScaled:
		p.kernel = megakernel.FaultKeyScale
	case FirstPageDropped:
		if p.kernel = megakernel.FaultFirstPage; len(w.pagesAt()) == 0 {
			p.skip = "no position of the window is one where a page is left out"
		}
	case StaleRow:
		p.hooks = l.staleRow(w)
	case NormScaled:
		p.hooks, p.undo, err = l.normScaled(w)
	case RopeUnscaled:
		p = l.ropeUnscaled(w)
	default:
		panic("BUG: no way to plant " + name)
	}
	return p, err
}

// staleRow gives a row the contents of another token's once the step that wrote it is over, as
// if the step had not: that step saw its own key and value all the same.
func (l *local) staleRow(w window) []hook {
	layer, head := l.s.Kernel.FaultPlace()
	at := w.from + (w.to-w.from)/2
	for w.probes(at) && at > w.from {
		at--
	}
	return []hook{{at + 1, func() error { return l.store.Overwrite(l.s.Write, layer, head, at, at-1) }}}
}

// normScaled scales the gains; they are rounded to bf16 again.
func (l *local) normScaled(w window) ([]hook, func() error, error) {
	gains, err := l.s.Kernel.Gains(l.s.Weights)
	if err != nil {
		return nil, nil, err
	}
	layer, _ := l.s.Kernel.FaultPlace()
	size := 2 * l.s.Kernel.Config.Hidden
	roles := l.s.Kernel.NormRoles()
	at := l.s.Kernel.GainRow(layer, roles[len(roles)/2]) * size
	shift := 0.0
	if l.s.Kernel.PlusOne() {
		shift = 1
	}
	own := gains[at : at+size]
	var scaled []byte
	for i := 0; i < size; i += 2 {
		x := reference.FromBF16(half.BF16At(own[i:]))
		scaled = reference.ToBF16(normFactor*(x+shift) - shift).Append(scaled)
	}
	write := func(row []byte) func() error {
		return func() error { return l.s.Write("gains", int64(at), row) }
	}
	return []hook{{w.from, write(scaled)}}, write(own), nil
}

// ropeUnscaled replaces the frequencies by those without scaling from the original length on, or
// from the middle of a window that ends before.
func (l *local) ropeUnscaled(w window) planting {
	c := l.s.Kernel.Config
	if c.Rope.Scaling == nil {
		return planting{skip: "the model's frequencies are not scaled"}
	}
	at := max(w.from, min(c.Rope.Scaling.OriginalPositions, (w.from+w.to)/2))
	write := func(freq []float32) func() error {
		var raw []byte
		for _, x := range freq {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
		}
		return func() error { return l.s.Write("inv_freq", 0, raw) }
	}
	return planting{hooks: []hook{{at, write(l.s.Kernel.UnscaledInvFreq())}}, undo: write(l.s.Kernel.InvFreq())}
}

// faulty runs a window with a fault planted.
func (l *local) faulty(ctx context.Context, w window, name string) (f LocalFault, err error) {
	f = LocalFault{Fault: name, CaughtBy: []string{}}
	p, err := l.planting(name, w)
	if err != nil || p.skip != "" {
		f.Skipped = p.skip
		return f, err
	}
	restore, err := l.s.PlantProbe(ctx, p.kernel)
	if err != nil {
		return f, err
	}
	defer restore()
	found, err := l.run(ctx, w, l.layers(), p.hooks)
	if p.undo != nil {
		err = errors.Join(err, p.undo())
	}
	if err != nil {
		return f, err
	}
	f.KL, f.Flips = Number(found.logits.KLOurs), found.logits.Flips
	if !found.logits.Passed {
		f.CaughtBy = append(f.CaughtBy, ByLogits)
	}
	f.Figures = found.figures.Beyond()
	for _, x := range f.Figures {
		f.CaughtBy = append(f.CaughtBy, x.What)
	}
	return f, nil
}
