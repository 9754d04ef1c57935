package gate

import (
	"errors"

	"github.com/mkgen/mkgen/internal/jsonfile"
)

// File is a record of judgements, bench/results/<gpu>/<date>-gate-<model>.json.
type File struct {
	GPU     string         `json:"gpu"`
	Driver  string         `json:"driver"`
	CUDA    string         `json:"cuda"`
	Commit  string         `json:"commit"`
	Options map[string]any `json:"options"`
	Cases   []Case         `json:"cases"`
}

// Case is the judgement of one model.
type Case struct {
	Model        string `json:"model"`
	DType        string `json:"dtype"`
	Batch        int    `json:"batch"`            // sequences at a time
	Tokens       int    `json:"tokens,omitempty"` // query rows of a step at most; absent: 1, of one sequence
	Contexts     []int  `json:"contexts"`         // length of each sequence
	Transformers string `json:"transformers"`
	WeightsHash  string `json:"weights_hash"`
	// the first sequence run twice gave the same logits, bit for bit
	Identical bool `json:"bit_identical"`
	// each sequence alone gave the same bits as among the others
	Alone   *bool     `json:"bit_identical_alone,omitempty"`
	Gate    Record    `json:"gate"`
	Details []Verdict `json:"details"`
}

// NewCase describes a judgement of a kernel of the named model against ref.
func NewCase(model, dtype string, ref *Reference, r *Report) Case {
	c := Case{Model: model, DType: dtype, Batch: 1, Transformers: ref.Transformers, WeightsHash: ref.WeightsHash,
		Identical: r.Identical, Gate: r.Gate, Details: r.Details}
	if r.Depends != nil {
		alone := len(r.Depends) == 0
		c.Alone = &alone
	}
	for _, q := range ref.Sequences {
		c.Contexts = append(c.Contexts, q.Length)
	}
	return c
}

var fileKind = jsonfile.Kind{Name: "a record of a gate", Mark: "cases"}

// Parse reads a File strictly: an unknown field, text behind the object, or no case is an error.
func Parse(data []byte) (*File, error) { return jsonfile.ParseChecked[File](data, fileKind) }

// Check refuses a File without cases.
func (f *File) Check() error {
	if len(f.Cases) == 0 {
		return errors.New("cases is empty, want at least one")
	}
	return nil
}
