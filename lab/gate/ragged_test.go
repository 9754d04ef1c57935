package gate

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/tasks/attention"
)

func TestStepsFeedEveryTokenOnceAndInOrder(t *testing.T) {
	for _, lengths := range [][]int{{1}, {5, 1, 40}, slices.Repeat([]int{9, 30, 2}, 7), {200, 100, 3, 3}} {
		for _, rows := range []int{1, 4, 8, 16} {
			fed := make([]int, len(lengths))
			for _, step := range stepsOf(lengths, rows, 0, nil) {
				require.NotEmpty(t, step)
				n, seen := 0, map[int]bool{}
				for _, p := range step {
					require.Equal(t, fed[p.Sequence], p.From)
					require.Greater(t, p.To, p.From)
					require.False(t, seen[p.Sequence])
					seen[p.Sequence] = true
					fed[p.Sequence] = p.To
					n += p.To - p.From
				}
				require.LessOrEqual(t, n, rows)
			}
			require.Equal(t, lengths, fed)
		}
	}
}

func TestStepsMixSequencesInChunksOfAllSizes(t *testing.T) {
	lengths := slices.Repeat([]int{150}, 20)
	for _, rows := range []int{4, 8, 16} {
		sizes, batches := map[int]bool{}, map[int]bool{}
		for _, step := range stepsOf(lengths, rows, 0, nil) {
			batches[len(step)] = true
			for _, p := range step {
				sizes[p.To-p.From] = true
			}
		}
		for n := 1; n <= rows; n++ {
			require.True(t, sizes[n], "%d rows, a chunk of %d", rows, n)
			require.True(t, batches[n], "%d rows, %d sequences", rows, n)
		}
	}
	require.Equal(t, stepsOf(lengths, 8, 0, nil), stepsOf(lengths, 8, 0, nil))
}

// Prompts of the figures come in chunks of 17, 256 and 512 tokens, among them some beside other sequences, and of other
// sizes.
func TestPromptsComeInChunksOfSomeSizes(t *testing.T) {
	lengths := append(slices.Repeat([]int{256}, 8), 2304, 1920)
	for _, rows := range []int{1024, 2048, 4096, 64} {
		fed, sizes, beside := make([]int, len(lengths)), map[int]map[int]int{}, map[int]int{}
		for _, step := range stepsOf(lengths, rows, 0, prefillChunks(lengths)) {
			n := 0
			for _, p := range step {
				require.Equal(t, fed[p.Sequence], p.From)
				fed[p.Sequence] = p.To
				size := p.To - p.From
				if sizes[p.Sequence] == nil {
					sizes[p.Sequence] = map[int]int{}
				}
				sizes[p.Sequence][size]++
				n += size
				if len(step) > 1 {
					beside[size]++
				}
			}
			require.Positive(t, n)
			require.LessOrEqual(t, n, rows)
		}
		require.Equal(t, lengths, fed)
		if rows == 64 {
			require.Equal(t, map[int]int{64: 4}, sizes[1])
			continue
		}
		require.Equal(t, map[int]int{17: 15, 1: 1}, sizes[0])
		require.Equal(t, map[int]int{256: 1}, sizes[1])
		require.Equal(t, map[int]int{512: 4, 256: 1}, sizes[8])
		require.Positive(t, beside[17])
		require.Positive(t, beside[256])
		require.Positive(t, beside[512])
		require.GreaterOrEqual(t, len(sizes[9]), 3)
	}
}

// paged is a runner whose logits depend on all earlier tokens, which it finds in
// its pages only.
type paged struct {
	t                   *testing.T
	cache               map[[2]int]uint32 // page and slot
	page                int
	fault               megakernel.Fault
	gains               []byte
	flaky, blind, short bool
	mixes               bool // other rows change a row's logits
	runs                int
	window              int // tokens that another attention does not change
	most                int // rows of a step
}

// logitsOf is o after a text, so that earlier tokens count as well as the last ones.
func logitsOf(text []uint32) []float32 {
	row, x := []float32{0, 1, 0.5, 0.25}, uint32(7)
	for _, token := range text {
		x = scramble(x ^ token)
	}
	row[x%vocab] += 5
	return row
}

func (p *paged) Mask([]uint32) error { return errors.New("a mask of a kernel that has none") }

func (p *paged) Run(_ context.Context, step []kv.Sequence, _ []int) (logits [][]float32, err error) {
	p.runs++
	rows := 0
	for _, s := range step {
		rows += s.New
		require.Len(p.t, s.Tokens, s.New)
		for i, token := range s.Tokens {
			p.cache[p.at(s, s.Cached+i)] = token
		}
		for i := range s.New {
			var text []uint32
			for at := range s.Cached + i + 1 {
				text = append(text, p.cache[p.at(s, at)])
			}
			row := logitsOf(text)
			late := p.fault == megakernel.FaultAttention && len(text) <= p.window
			if !p.blind && !late && (p.fault != "" || slices.Equal(p.gains, []byte{0x80, 0x3f, 0x80, 0x3f})) {
				row[len(text)%vocab] += 30
			}
			if p.mixes {
				row[0] += float32(len(step)) * 1e-6
			}
			if p.flaky {
				row[0] += float32(p.runs) * 1e-6
			}
			logits = append(logits, row)
		}
	}
	p.most = max(p.most, rows)
	if p.short {
		logits = logits[1:]
	}
	return logits, nil
}

func (p *paged) at(s kv.Sequence, i int) [2]int {
	require.LessOrEqual(p.t, len(s.Pages)*p.page, 100)
	return [2]int{int(s.Pages[i/p.page]), i % p.page}
}

// raggedSubject has a reference of three sequences.
func raggedSubject(t *testing.T, rows int) (*RaggedSubject, *paged, *Reference) {
	t.Helper()
	dir, manifest := t.TempDir(), Reference{Config: json.RawMessage("{}"), Vocab: vocab, Roundings: bf16Roundings}
	for q, length := range []int{30, 7, 41} {
		var tokens, o, h, own []byte
		var text []uint32
		for i := range length {
			token := scramble(uint32(100*q+i)) % vocab
			text = append(text, token)
			tokens = binary.LittleEndian.AppendUint32(tokens, token)
			if q == 2 && i < 30 {
				continue
			}
			for _, x := range logitsOf(text) {
				o = binary.LittleEndian.AppendUint32(o, math.Float32bits(x))
				h = binary.LittleEndian.AppendUint32(h, math.Float32bits(x*1.01))
			}
			own = binary.LittleEndian.AppendUint64(own, math.Float64bits(1e-5))
		}
		s := Sequence{Length: length, Scored: len(o) / 4 / vocab, Tokens: fmt.Sprint("t", q), O: fmt.Sprint("o", q),
			H: fmt.Sprint("h", q), S: fmt.Sprint("s", q)}
		s.First = length - s.Scored
		for name, data := range map[string][]byte{s.Tokens: tokens, s.O: o, s.H: h, s.S: own} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o666))
		}
		manifest.Sequences = append(manifest.Sequences, s)
	}
	text, err := json.Marshal(manifest)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "manifest.json"), text, 0o666))
	ref, err := OpenReference(dir)
	require.NoError(t, err)
	p := &paged{t: t, cache: map[[2]int]uint32{}, page: 4}
	return &RaggedSubject{Kernel: &megakernel.Kernel{Config: models.Config{Layers: 3, Hidden: 2},
		KV: attention.KVLayout{Page: 4}}, Weights: twos{},
		Runner: p, Rows: rows, Pages: RaggedPages(ref, 4), Write: func(buffer string, offset int64, src []byte) error {
			require.Equal(t, "gains", buffer)
			p.gains = slices.Clone(src)
			return nil
		}, Plant: func(_ context.Context, fault megakernel.Fault) (func(), error) {
			p.fault = fault
			return func() { p.fault = "" }, nil
		}}, p, ref
}

// raggedRules want little evidence.
func raggedRules() Rules {
	r := DefaultRules()
	r.MinPositions = 48
	return r
}

func TestRaggedStepsAreJudgedAtEveryPosition(t *testing.T) {
	for _, rows := range []int{1, 4, 16} {
		subject, p, ref := raggedSubject(t, rows)
		report, err := subject.Judge(t.Context(), ref, raggedRules())
		require.NoError(t, err)
		g := report.Gate
		require.True(t, report.Identical)
		require.True(t, report.Details[0].Passed, "%v", report.Details[0].Reasons)
		require.Equal(t, 30+7+11, g.Positions)
		require.Equal(t, 3, g.Sequences)
		require.Zero(t, float64(g.KLOurs))
		require.Len(t, report.Details, 1+len(Faults()))
		for _, d := range report.Details[1:] {
			require.False(t, d.Passed, d.Fault)
			require.Positive(t, d.Flips, d.Fault)
		}
		require.Equal(t, rows, p.most)
		require.Equal(t, []byte{0, 0x40, 0, 0x40}, p.gains, "the weights are 2 again")
		require.Empty(t, p.fault)
	}
}

func TestARaggedKernelThatDoesNotRepeatItselfFails(t *testing.T) {
	subject, p, ref := raggedSubject(t, 8)
	p.flaky = true
	report, err := subject.Judge(t.Context(), ref, raggedRules())
	require.NoError(t, err)
	require.EqualError(t, report.Err(), "the first sequence run twice gave different logits")
}

func TestMissedFaultsOfARaggedKernelFailTheGate(t *testing.T) {
	subject, p, ref := raggedSubject(t, 8)
	p.blind = true
	report, err := subject.Judge(t.Context(), ref, raggedRules())
	require.NoError(t, err)
	require.Equal(t, []string{KVTokenDropped, RopeOffByOne, NormGainSkipped, MergeWeightWrong}, report.Gate.FaultsMissed)
	require.Error(t, report.Err())
}

// Scales of tokens have a fault of their own where inputs of products have any.
func TestTokenScalesOfPrefillKernelsAreSpoiled(t *testing.T) {
	subject, p, ref := raggedSubject(t, 8)
	subject.Prefill, subject.Inputs, ref.Roundings.Inputs = true, TokenE4M3, string(TokenE4M3)
	p.blind = true
	report, err := subject.Judge(t.Context(), ref, raggedRules())
	require.NoError(t, err)
	require.Equal(t, []string{KVTokenDropped, RopeOffByOne, NormGainSkipped, TokenScaleOfNeighbour},
		report.Gate.FaultsMissed)
}

// Another attention shows behind the window only, which the sequences that are scored whole may not reach.
func TestAnotherAttentionIsJudgedOnLongSequences(t *testing.T) {
	subject, p, ref := raggedSubject(t, 8)
	subject.Kernel.Options.Attention, ref.Variant.Attention, p.window = "window=31", "window=31", 31
	rules := raggedRules()
	rules.MinPositions, rules.MinSequences = 30, 2
	report, err := subject.Judge(t.Context(), ref, rules)
	require.NoError(t, err)
	require.Empty(t, report.Gate.FaultsMissed)
	require.Contains(t, report.Gate.FaultsCaught, AttentionChanged)
}

func TestWhatKeepsFromJudgingRaggedStepsIsAnError(t *testing.T) {
	subject, p, ref := raggedSubject(t, 8)
	subject.Pages--
	_, err := subject.Judge(t.Context(), ref, raggedRules())
	require.EqualError(t, err, "gate: 3 sequences that take 21 pages, the cache has 20; want at least 2 that fit")
	subject.Pages++
	p.short = true
	_, err = subject.Judge(t.Context(), ref, raggedRules())
	require.ErrorContains(t, err, "step 0: the runner gave the logits of ")
	p.short = false
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = subject.Judge(ctx, ref, raggedRules())
	require.ErrorIs(t, err, context.Canceled)
	subject.Plant = func(context.Context, megakernel.Fault) (func(), error) { return nil, errors.New("none") }
	_, err = subject.Judge(t.Context(), ref, raggedRules())
	require.EqualError(t, err, "kv_token_dropped: planting it: none")
}

func TestPinnedResultsDoNotDependOnOtherSequences(t *testing.T) {
	subject, p, ref := raggedSubject(t, 8)
	subject.Pinned = true
	report, err := subject.Judge(t.Context(), ref, raggedRules())
	require.NoError(t, err)
	require.Equal(t, []int{}, report.Depends)
	require.NoError(t, report.Err())
	require.True(t, *NewCase("m", "bf16", ref, report).Alone)
	p.mixes = true
	report, err = subject.Judge(t.Context(), ref, raggedRules())
	require.NoError(t, err)
	require.True(t, report.Identical)
	require.Equal(t, []int{0, 1, 2}, report.Depends)
	require.EqualError(t, report.Err(), "sequences [0 1 2] gave other logits alone than among others")
	require.False(t, *NewCase("m", "bf16", ref, report).Alone)
}
