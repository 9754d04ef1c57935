package gate

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/pipeline"
)

// MismatchError says in what a reference is of something else than what is run.
type MismatchError struct {
	What        string // such as "hidden size"
	Found, Want string // the reference's and the run's
}

// Error is one sentence.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("reference: its %s is %s, that of what runs here %s", e.What, e.Found, e.Want)
}

// Matches returns nil when the reference was made with this model and these
// weights and with tokens of its seed; else a *MismatchError, or what kept it from
// finding out. random is the seed of random weights, nil for others: those are
// compared by reading them, which for large models takes some seconds.
func (r *Reference) Matches(c models.Config, w megakernel.Tensors, random *uint64) error {
	theirs, err := models.Parse(bytes.NewReader(r.Config))
	if err != nil {
		return fmt.Errorf("reference: its config: %w", err)
	}
	if err := sameModel(theirs, c); err != nil {
		return err
	}
	if r.Vocab != c.Vocab {
		return &MismatchError{"vocabulary", fmt.Sprint(r.Vocab), fmt.Sprint(c.Vocab)}
	}
	if random != nil && *random != r.Seed {
		return &MismatchError{"seed", fmt.Sprint(r.Seed), fmt.Sprint(*random)}
	}
	hash, err := weightsHash(r.Seed, c, w, random != nil)
	if err != nil {
		return fmt.Errorf("reference: the weights' hash: %w", err)
	}
	if hash != r.WeightsHash {
		return &MismatchError{"weights hash", r.WeightsHash, hash}
	}
	for q, s := range r.Sequences {
		tokens, err := r.Tokens(q)
		if err != nil {
			return err
		}
		if !slices.Equal(tokens, synth.Tokens(r.Seed, q, s.Length, c.Vocab)) {
			return fmt.Errorf("reference: the tokens of sequence %d are not those of seed %d", q, r.Seed)
		}
		if s.Length > c.MaxPositions {
			return fmt.Errorf("reference: sequence %d has %d tokens, the model was made for %d", q, s.Length, c.MaxPositions)
		}
	}
	return nil
}

// MatchesFormats refuses a kernel whose layers' weights or LM head have another format than the reference's: hashes
// are of the weights before they are rounded.
func (r *Reference) MatchesFormats(weights, head pipeline.Format) error {
	for _, f := range []struct {
		what, theirs string
		ours         pipeline.Format
	}{{"weight format", r.WeightFormat, weights}, {"format of the LM head", r.HeadFormat, head}} {
		if theirs, ours := cmp.Or(f.theirs, "bf16"), cmp.Or(string(f.ours), "bf16"); theirs != ours {
			return &MismatchError{f.what, theirs, ours}
		}
	}
	return nil
}

// Longest is the length of the longest sequence.
func (r *Reference) Longest() int {
	n := 0
	for _, s := range r.Sequences {
		n = max(n, s.Length)
	}
	return n
}

// sameModel compares what the logits depend on.
func sameModel(theirs, ours models.Config) error {
	rope := func(c models.Config) string {
		if c.Rope.Scaling == nil {
			return fmt.Sprintf("theta %v, not scaled", c.Rope.Theta)
		}
		return fmt.Sprintf("theta %v, scaling %+v", c.Rope.Theta, *c.Rope.Scaling)
	}
	for _, f := range []struct {
		what         string
		theirs, ours any
	}{
		{"number of layers", theirs.Layers, ours.Layers}, {"hidden size", theirs.Hidden, ours.Hidden},
		{"intermediate size", theirs.Intermediate, ours.Intermediate}, {"number of heads", theirs.Heads, ours.Heads},
		{"number of KV heads", theirs.KVHeads, ours.KVHeads}, {"head dimension", theirs.HeadDim, ours.HeadDim},
		{"vocabulary", theirs.Vocab, ours.Vocab}, {"norm epsilon", theirs.NormEps, ours.NormEps},
		{"tying of embeddings", theirs.TieEmbeddings, ours.TieEmbeddings}, {"rotary embedding", rope(theirs), rope(ours)},
	} {
		if !reflect.DeepEqual(f.theirs, f.ours) {
			return &MismatchError{f.what, fmt.Sprint(f.theirs), fmt.Sprint(f.ours)}
		}
	}
	if what, theirs, ours := theirs.Differs(ours); what != "" {
		return &MismatchError{what, theirs, ours}
	}
	return nil
}

// weightsHash is synth.SampleHash of what runs here, as the reference's program
// computes it of its model.
func weightsHash(seed uint64, c models.Config, w megakernel.Tensors, random bool) (string, error) {
	tensors := synth.Tensors(c)
	if random {
		return synth.SampleHash(seed, tensors, nil)
	}
	r := rows{w: w}
	hash, err := synth.SampleHash(seed, tensors, r.at)
	if r.err != nil {
		err = r.err
	}
	return hash, err
}

// rows reads single elements and keeps the last row: a hash asks in order.
type rows struct {
	w    megakernel.Tensors
	name string
	row  int64
	last []half.BF16
	err  error
}

func (r *rows) at(t synth.Tensor, i int64) half.BF16 {
	n := int64(t.Shape[len(t.Shape)-1])
	if r.name != t.Name || r.row != i/n || int64(len(r.last)) != n {
		r.name, r.row, r.last = t.Name, i/n, make([]half.BF16, n)
		if err := r.w.Row(t.Name, int(i/n), r.last); err != nil && r.err == nil {
			r.err = err
		}
	}
	return r.last[i%n]
}
