package pipeline

import (
	"fmt"
	"math/bits"
	"slices"
)

// The weight format and the limits of what New accepts.
const (
	TileRows        = 8   // rows of a row tile: N of mma.m16n8k16
	GroupK          = 32  // columns of a k group: two mmas
	GroupBytes      = 512 // bytes of a tile group, 8 rows × 32 columns of 2 bytes
	KVTokenMultiple = 16  // a stage holds KV of a multiple of this many tokens

	DefaultStageBytes = 16384 // three of them in flight saturate the memory of an H200
	MaxStages         = 32    // ring depth chosen at most, and allowed at most
	StageAlign        = 128   // stages start at multiples of this and are a multiple of it long

	// MaxTransactionBytes is the largest mbarrier transaction count of one phase
	// (PTX, "Tracking asynchronous operations by the mbarrier object": 2^20 - 1).
	MaxTransactionBytes = 1<<20 - 1

	maxSMs       = 1024
	maxLayers    = 4096
	maxMatrices  = 64
	maxDimension = 1 << 24
	maxRegions   = 256
	maxShared    = 1 << 20
	maxWide      = 4
	maxBatch     = 64
	maxPacked    = 1 << 44
)

// Matrix is a weight matrix W[Rows][K] of bf16: Rows outputs, K inputs. The rows are
// in the order in which the kernel wants them (QKV or gate and up interleaved as the
// task says); Pack maps them to the source tensors.
type Matrix struct {
	Name    string
	Rows, K int

	// From, unless empty, names the matrix of the same list, somewhere before this one,
	// whose rows 2j and 2j+1 make column j: this one is dealt out by columns then, each
	// SM those that its rows of that matrix make. See the package comment.
	From string

	// Format is of the elements; "" is FormatBF16. Others want no From.
	Format Format
}

// Region is a piece of a CTA's shared memory. Bytes is at least 1; Align is a power
// of two up to 1024, 0 standing for 16. Offset, from the start of the CTA's dynamic
// shared memory (which must be 1024-byte aligned when a region asks for that, and
// 128-byte aligned always), is set by New and ignored in a Request.
type Region struct {
	Name         string
	Bytes, Align int
	Offset       int
}

// Request is what a plan is asked for. The zero value of a field marked "0 = choose"
// leaves the choice to New; all other sizes must be positive.
type Request struct {
	SMs    int      // CTAs, one per SM
	Layers int      // how often Layer runs
	Layer  []Matrix // matrices of one layer in execution order; at least one
	Final  []Matrix // matrices after the last layer (LM head); may be empty

	StageBytes int // bytes of one stage, a multiple of 128; 0 = choose
	Stages     int // ring depth, 1 to MaxStages; 0 = choose
	InFlight   int // bulk copies outstanding at most, 1 to Stages; 0 = choose

	// Throttles are the plan's: nil to choose, an empty list for no bound but InFlight.
	Throttles []Throttle

	SharedLimit int      // bytes of shared memory one CTA may use, 232448 on sm_90
	Fixed       []Region // shared memory beside the ring

	// KVTokenBytes is the size of one token of one KV head, K and V together, a
	// multiple of 32 (K and V are copied apart, each in multiples of 16 bytes). A
	// stage must hold at least KVTokenMultiple tokens. 0 = no KV goes through the ring.
	KVTokenBytes int

	// BatchTiles is how many row tiles of an SM's share the kernel multiplies side by
	// side, chunk of columns by chunk of columns: see MatrixPlan.Batch. 0 = one tile
	// after the other.
	BatchTiles int

	// BatchWide is how many times the columns of bf16 a chunk has at most where there are batches and elements are
	// narrower, 1 to Format.Parts: a warp keeps the input of its columns in registers. 0 = 1.
	BatchWide int
}

// check refuses a request whose numbers make no sense by themselves. It bounds them
// so that nothing New computes afterwards overflows an int64.
func (r *Request) check() error {
	for _, f := range []struct {
		name      string
		v, lo, hi int
	}{
		{"SMs", r.SMs, 1, maxSMs},
		{"Layers", r.Layers, 1, maxLayers},
		{"number of Layer matrices", len(r.Layer), 1, maxMatrices},
		{"number of Final matrices", len(r.Final), 0, maxMatrices},
		{"Stages", r.Stages, 0, MaxStages},
		{"InFlight", r.InFlight, 0, MaxStages},
		{"SharedLimit", r.SharedLimit, 1, maxShared},
		{"number of Fixed regions", len(r.Fixed), 0, maxRegions},
		{"KVTokenBytes", r.KVTokenBytes, 0, MaxTransactionBytes / KVTokenMultiple},
		{"BatchTiles", r.BatchTiles, 0, maxBatch},
		{"BatchWide", r.BatchWide, 0, maxWide},
	} {
		if f.v < f.lo || f.v > f.hi {
			return fmt.Errorf("pipeline: %s is %d, want %d to %d", f.name, f.v, f.lo, f.hi)
		}
	}
	if r.KVTokenBytes%32 != 0 {
		return fmt.Errorf("pipeline: KVTokenBytes is %d, want a multiple of 32 (K and V are copied in multiples of 16 B)",
			r.KVTokenBytes)
	}
	if err := r.checkMatrices(); err != nil {
		return err
	}
	if err := r.checkRegions(); err != nil {
		return err
	}
	return r.checkStageBytes()
}

func (r *Request) checkStageBytes() error {
	if r.StageBytes == 0 {
		return nil
	}
	const most = MaxTransactionBytes / StageAlign * StageAlign
	if r.StageBytes < GroupBytes || r.StageBytes > most {
		return fmt.Errorf("pipeline: StageBytes is %d, want %d (one tile group) to %d (an mbarrier phase counts at most %d B)",
			r.StageBytes, GroupBytes, most, MaxTransactionBytes)
	}
	if r.StageBytes%StageAlign != 0 {
		return fmt.Errorf("pipeline: StageBytes is %d, want a multiple of %d; %d and %d are", r.StageBytes, StageAlign,
			r.StageBytes/StageAlign*StageAlign, (r.StageBytes/StageAlign+1)*StageAlign)
	}
	if kv := KVTokenMultiple * r.KVTokenBytes; kv > r.StageBytes {
		return fmt.Errorf("pipeline: a stage of %d B holds %s of %d B, want at least %d; stages of %d B would",
			r.StageBytes, count(r.StageBytes/r.KVTokenBytes, "KV token"), r.KVTokenBytes, KVTokenMultiple,
			roundUp(kv, StageAlign))
	}
	return nil
}

func (r *Request) checkMatrices() error {
	seen := map[string]bool{}
	var layer, final uint64
	for _, group := range []struct {
		place string
		ms    []Matrix
		bytes *uint64
	}{{"Layer", r.Layer, &layer}, {"Final", r.Final, &final}} {
		for i, m := range group.ms {
			at := fmt.Sprintf("pipeline: %s[%d] %q", group.place, i, m.Name)
			switch {
			case m.Name == "":
				return fmt.Errorf("%s: the name is empty", at)
			case seen[m.Name]:
				return fmt.Errorf("%s: the name is used twice", at)
			case m.Rows < 1 || m.Rows > maxDimension:
				return fmt.Errorf("%s: Rows is %d, want 1 to %d", at, m.Rows, maxDimension)
			case m.K < 1 || m.K > maxDimension:
				return fmt.Errorf("%s: K is %d, want 1 to %d", at, m.K, maxDimension)
			}
			if err := r.checkFrom(at, group.ms[:i], m); err != nil {
				return err
			}
			if err := m.checkFormat(at, r.StageBytes); err != nil {
				return err
			}
			seen[m.Name] = true
			// At most 2^24 · 2^24 · 2 bytes each and 64 of them: no overflow.
			rows := TileRows
			if m.From != "" {
				rows = acrossRows
			}
			*group.bytes += 2 * uint64(roundUp(m.Rows, rows)) * uint64(roundUp(m.K, GroupK))
		}
	}
	hi, lo := bits.Mul64(layer, uint64(r.Layers))
	total, carry := bits.Add64(lo, final, 0)
	if hi+carry != 0 || total > maxPacked {
		return fmt.Errorf("pipeline: %s of %d B + %d B final weights are more than the %d B a packed buffer may have",
			count(r.Layers, "layer"), layer, final, int64(maxPacked))
	}
	return nil
}

func (m *Matrix) checkFormat(at string, stageBytes int) error {
	switch {
	case m.Format == "" || m.Format == FormatBF16:
		return nil
	case !slices.Contains(slices.Concat(Formats(), OwnFormats()), m.Format):
		return fmt.Errorf("%s: Format is %q, want one of %q", at, m.Format, Formats())
	case m.From != "":
		return fmt.Errorf("%s: %s and From %q, want bf16 or rows", at, m.Format, m.From)
	case stageBytes > 0 && m.Format.Of(m.Format.Run(m.K)) > stageBytes:
		return fmt.Errorf("%s: StageBytes is %d, want %d at least, a run of %s", at, stageBytes,
			m.Format.Of(m.Format.Run(m.K)), m.Format)
	}
	return nil
}

func (r *Request) checkRegions() error {
	seen := map[string]bool{}
	for i, g := range r.Fixed {
		at := fmt.Sprintf("pipeline: Fixed[%d] %q", i, g.Name)
		switch {
		case g.Name == "":
			return fmt.Errorf("%s: the name is empty", at)
		case g.Name == RegionRing || g.Name == RegionFull || g.Name == RegionEmpty:
			return fmt.Errorf("%s: the name is the planner's own", at)
		case seen[g.Name]:
			return fmt.Errorf("%s: the name is used twice", at)
		case g.Bytes < 1 || g.Bytes > maxShared:
			return fmt.Errorf("%s: Bytes is %d, want 1 to %d", at, g.Bytes, maxShared)
		case g.Align < 0 || g.Align > 1024 || g.Align&(g.Align-1) != 0:
			return fmt.Errorf("%s: Align is %d, want a power of two up to 1024", at, g.Align)
		}
		seen[g.Name] = true
	}
	return nil
}

func roundUp(n, to int) int { return (n + to - 1) / to * to }

// CeilDiv returns ⌈n/by⌉, for n from 0 on and positive by.
func CeilDiv(n, by int) int { return (n + by - 1) / by }

// count says "1 stage", "2 stages".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
