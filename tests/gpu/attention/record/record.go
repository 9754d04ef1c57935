// Package record is the record of the attention benchmark: what the kernel's
// attention phases took, beside the streaming ceiling of the same process and
// PyTorch's own decode attention on the same inputs, and whether what they computed
// agrees with the float64 reference of tests/gpu/attention.py.
package record

import (
	"errors"
	"fmt"

	"github.com/mkgen/mkgen/internal/jsonfile"
	"github.com/mkgen/mkgen/lab/bench/ceiling"
)

// Record is bench/results/<gpu>/<date>-attention.json. GB are 10⁹ bytes.
type Record struct {
	GPU     string  `json:"gpu"`
	Driver  string  `json:"driver"`
	CUDA    string  `json:"cuda"`
	Commit  string  `json:"commit"`
	Options Options `json:"options"`
	PyTorch PyTorch `json:"pytorch"`
	Cases   []Case  `json:"cases"`
}

// Options are what all kernels have in common.
type Options struct {
	Compiler string `json:"compiler"`
	SMs      int    `json:"sms"`
	Heads    int    `json:"heads"`
	KVHeads  int    `json:"kv_heads"`
	HeadDim  int    `json:"head_dim"`
}

// PyTorch says what was measured beside.
type PyTorch struct {
	Version string `json:"version"`
	Device  string `json:"device"`
}

// Case is one step's attention. Times are of one layer: attention and merge with
// their syncs.
type Case struct {
	Name     string   `json:"name"`
	DType    string   `json:"dtype"` // of the KV cache
	Batch    int      `json:"batch"` // sequences
	Tokens   int      `json:"tokens"`
	Lengths  []int    `json:"lengths"` // of each sequence, its new tokens among them
	Page     int      `json:"page"`
	Variants []string `json:"variants"`
	Layers   int      `json:"layers"` // each with a cache of its own; together they exceed the L2 cache
	Single   bool     `json:"single"` // no prefix is shared
	Prefixes int      `json:"prefixes"`
	Balance  float64  `json:"balance"` // greatest load of an SM over the mean, as planned

	PlanMicros float64          `json:"plan_us"` // of planning, on the host
	Micros     float64          `json:"us"`      // a layer, median of the rounds
	Rounds     []float64        `json:"rounds_us"`
	Steps      int              `json:"steps"`        // of a round, each all layers
	Bytes      int64            `json:"kv_bytes"`     // valid keys and values of a layer, each once
	GBps       float64          `json:"gb_s"`         // kv_bytes over us
	Ceiling    ceiling.Measured `json:"ceiling"`      // measured right before
	CeilingGB  float64          `json:"ceiling_gb_s"` // of that
	Share      float64          `json:"share"`        // gb_s over ceiling_gb_s

	Gate    Gate    `json:"gate"`
	PyTorch *Beside `json:"pytorch,omitempty"`
}

// Gate is the comparison with the reference; the errors are parts of what its rules
// allow, at most 1.
type Gate struct {
	Passed       bool    `json:"passed"`
	Identical    bool    `json:"bit_identical"` // the first step and the last of all rounds gave the same bits
	MaxError     float64 `json:"max_error"`
	WorstElement float64 `json:"worst_element"`
	WorstRMS     float64 `json:"worst_rms"`
	Where        string  `json:"where"` // of worst_rms
}

// Beside is PyTorch's attention on the same inputs. A prefix is read for every
// sequence: GBps counts it as often.
type Beside struct {
	SDPA    Way     `json:"sdpa"`
	Flex    Way     `json:"flex"`
	Layers  int     `json:"layers"`
	KVBytes int64   `json:"kv_bytes"`
	Error   string  `json:"error,omitempty"` // why nothing was timed
	Tried   []Way   `json:"tried,omitempty"`
	Speedup float64 `json:"speedup,omitempty"` // the faster one's time over ours
}

// Way is one way to have PyTorch do it.
type Way struct {
	How    string  `json:"how,omitempty"`
	Micros float64 `json:"us,omitempty"` // a layer
	GBps   float64 `json:"gb_s,omitempty"`
	Eager  string  `json:"eager,omitempty"` // why it was no CUDA graph
	Error  string  `json:"error,omitempty"`
}

var (
	recordKind = jsonfile.Kind{Name: "a record of attention", Mark: "cases"}
	torchKind  = jsonfile.Kind{Name: "what tests/gpu/attention.py writes", Mark: "torch"}
)

// Read reads a record strictly. It need not be judged yet: Check is the caller's.
func Read(path string) (*Record, error) {
	r := &Record{}
	return r, jsonfile.Read(path, r, recordKind)
}

// Save writes the record without a look at it: for measurements that are not
// judged yet.
func (r *Record) Save(path string) error { return jsonfile.Write(path, r) }

// Write writes the record if Check finds nothing.
func (r *Record) Write(path string) error {
	if err := r.Check(); err != nil {
		return fmt.Errorf("no record is written: %w", err)
	}
	return r.Save(path)
}

// problems collects what is wrong.
type problems []error

func (p *problems) rule(ok bool, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

func (p problems) err() error { return errors.Join(p...) }
