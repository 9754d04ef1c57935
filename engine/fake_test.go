package engine

import (
	"errors"
	"testing"

	"github.com/mkgen/mkgen/engine/batch/batchtest"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/stretchr/testify/require"
)

const (
	fakePage  = 4
	fakeVocab = 50
)

// nothing is a device that can only be closed.
type nothing struct {
	runtime.Device
	closed int
}

func (n *nothing) Close() error { n.closed++; return nil }

type noTensors struct{}

func (noTensors) Row(string, int, []half.BF16) error { return errors.New("none") }

// fakeOptions are options of a fake with a cache of 10 pages.
func fakeOptions() Options {
	return Options{Device: &nothing{}, Weights: runtime.FromTensors(noTensors{}, runtime.LoadOptions{}),
		KVTokens: 10 * fakePage, PageSeed: 4, TokensPerLaunch: 6, Ends: []int{},
		Kernel: &megakernel.Kernel{Config: models.Config{Vocab: fakeVocab, MaxPositions: 1000, EOS: []int{1}},
			KV: attention.KVLayout{Page: fakePage}}}
}

// newFake is an Engine on a fake with steps of 8 rows.
func newFake(t *testing.T, change func(*Options), set func(*batchtest.Stepper)) (*Engine, *batchtest.Stepper) {
	t.Helper()
	o := fakeOptions()
	if change != nil {
		change(&o)
	}
	o, err := o.complete()
	require.NoError(t, err)
	f := &batchtest.Stepper{T: 8, Page: fakePage, Pages: (o.KVTokens + fakePage - 1) / fakePage, Ahead: 2,
		Ends: map[int]bool{}}
	for _, end := range o.Ends {
		f.Ends[end] = true
	}
	if set != nil {
		set(f)
	}
	b, err := newEngine(o, f, o.Device.Close)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b, f
}

// ask submits a request that must be taken.
func ask(t *testing.T, b *Engine, r Request) *Stream {
	t.Helper()
	s, err := b.Submit(t.Context(), r)
	require.NoError(t, err)
	return s
}
