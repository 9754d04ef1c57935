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
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/tasks/attention"
)

const vocab, length, scored = 4, 600, 5

// scripted is a session whose logits are the reference's, with noise, as long as
// nothing is planted; it keeps a log of what was done to it.
type scripted struct {
	t       *testing.T
	pos     int
	table   []uint32
	fault   megakernel.Fault
	gains   map[int64][]byte
	log     []string
	flaky   bool // other noise at every pass
	blind   bool // plants change nothing
	stuck   bool // launches feed nothing
	passes  int
	longest int // tokens of a launch
}

func (s *scripted) Pos() int { return s.pos }

func (s *scripted) Rewind(pos int) error {
	s.pos = pos
	s.passes++
	return nil
}

func (s *scripted) Generate(prompt []int, n int) ([]int, error) {
	require.Equal(s.t, 1, n)
	s.longest = max(s.longest, len(prompt))
	for i, token := range prompt {
		require.Equal(s.t, (s.pos+i)%vocab, token)
	}
	if !s.stuck {
		s.pos += len(prompt)
	}
	return []int{0}, nil
}

func (s *scripted) Logits(dst []float32) error {
	copy(dst, logits(s.pos-1))
	if s.flaky {
		dst[3] += float32(s.passes) * 1e-6
	}
	ones := false
	for _, g := range s.gains {
		ones = ones || slices.Equal(g, []byte{0x80, 0x3f, 0x80, 0x3f})
	}
	if !s.blind && (s.fault != "" || ones || s.table[0] != 5 && s.pos > 10) {
		dst[s.pos%vocab] += 30
	}
	return nil
}

func (s *scripted) SetTable(table []uint32) error {
	s.log = append(s.log, fmt.Sprintf("table %v at %d", table, s.pos))
	s.table = table
	return nil
}

func (s *scripted) plant(_ context.Context, fault megakernel.Fault) (func(), error) {
	s.log, s.fault = append(s.log, "plant "+string(fault)), fault
	return func() { s.log, s.fault = append(s.log, "restore"), "" }, nil
}

// logits are o at a position.
func logits(position int) []float32 {
	row := []float32{0, 1, 0.5, 0.25}
	row[position%vocab] += 5
	return row
}

// ones delivers weights that are all 2.
type twos struct{}

func (twos) Row(_ string, _ int, dst []half.BF16) error {
	for i := range dst {
		dst[i] = 0x4000
	}
	return nil
}

// bf16Roundings are those of a kernel with a cache in bf16.
var bf16Roundings = Roundings{Version: RoundingsVersion, KV: "bf16"}

// scriptedSubject has a reference of one sequence whose last positions are scored.
func scriptedSubject(t *testing.T) (*Subject, *scripted, *Reference) {
	t.Helper()
	dir := t.TempDir()
	var tokens, o, h, s []byte
	for p := range length {
		tokens = binary.LittleEndian.AppendUint32(tokens, uint32(p%vocab))
		if p < length-scored {
			continue
		}
		for _, x := range logits(p) {
			o = binary.LittleEndian.AppendUint32(o, math.Float32bits(x))
			h = binary.LittleEndian.AppendUint32(h, math.Float32bits(x*1.01))
		}
		s = binary.LittleEndian.AppendUint64(s, math.Float64bits(1e-5))
	}
	manifest, err := json.Marshal(Reference{Config: json.RawMessage("{}"), Vocab: vocab, Roundings: bf16Roundings,
		Sequences: []Sequence{{Length: length, First: length - scored, Scored: scored, Tokens: "t", O: "o", H: "h", S: "s"}}})
	require.NoError(t, err)
	for name, data := range map[string][]byte{"manifest.json": manifest, "t": tokens, "o": o, "h": h, "s": s} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o666))
	}
	ref, err := OpenReference(dir)
	require.NoError(t, err)
	session := &scripted{t: t, table: []uint32{5, 6, 7}, gains: map[int64][]byte{}}
	mk := &megakernel.Kernel{Config: models.Config{Layers: 3, Hidden: 2}, KV: attention.KVLayout{Page: 4}}
	return &Subject{Kernel: mk, Weights: twos{}, Session: session, Table: []uint32{5, 6, 7}, Plant: session.plant,
		Write: func(buffer string, offset int64, src []byte) error {
			require.Equal(t, "gains", buffer)
			session.gains[offset] = slices.Clone(src)
			session.log = append(session.log, fmt.Sprintf("gains %x at %d", src, offset))
			return nil
		}}, session, ref
}

func TestJudgePlantsEveryFaultAndTakesItOut(t *testing.T) {
	subject, s, ref := scriptedSubject(t)
	var heard []string
	subject.Progress = func(what string) { heard = append(heard, what) }
	r, err := subject.Judge(t.Context(), ref, small())
	require.NoError(t, err)
	require.NoError(t, r.Err())
	require.Equal(t, Faults(), r.Gate.FaultsCaught)
	require.Len(t, r.Details, 6)
	require.Equal(t, append([]string{"the kernel"}, Faults()...), heard)
	require.Equal(t, []string{
		"plant drop-token", "restore", "plant rope", "restore",
		"gains 803f803f at 8", "gains 00400040 at 8",
		"plant merge-share", "restore",
		"table [5 6 7] at 0", "table [7 6 5] at 10", fmt.Sprintf("table [5 6 7] at %d", length),
	}, s.log)
	var built []string
	for _, o := range Builds(subject.Kernel, false) {
		built = append(built, "plant "+string(o.Fault))
	}
	require.Equal(t, built, slices.DeleteFunc(slices.Clone(s.log),
		func(l string) bool { return !strings.HasPrefix(l, "plant") }), "what is compiled ahead")
	require.Equal(t, 0, s.pos, "an empty cache is left")
	require.Equal(t, most, s.longest, "tokens before the scored ones are fed many a launch")
}

func TestAKernelThatDoesNotRepeatItselfFails(t *testing.T) {
	subject, s, ref := scriptedSubject(t)
	s.flaky = true
	r, err := subject.Judge(t.Context(), ref, small())
	require.NoError(t, err)
	require.EqualError(t, r.Err(), "the first sequence run twice gave different logits")
}

func TestMissedFaultsFailTheGate(t *testing.T) {
	subject, s, ref := scriptedSubject(t)
	s.blind = true
	r, err := subject.Judge(t.Context(), ref, small())
	require.NoError(t, err)
	require.ErrorContains(t, r.Err(), "the gate is not passed: fault kv_token_dropped was not caught; fault rope")
	require.True(t, r.Details[0].Passed)
}

func TestWhatKeepsFromJudgingIsAnError(t *testing.T) {
	subject, s, ref := scriptedSubject(t)
	s.stuck = true
	_, err := subject.Judge(t.Context(), ref, small())
	require.EqualError(t, err, "sequence 0: the kernel stopped at position 0, want 512")

	subject, _, ref = scriptedSubject(t)
	broken := errors.New("no compiler")
	subject.Plant = func(context.Context, megakernel.Fault) (func(), error) { return nil, broken }
	_, err = subject.Judge(t.Context(), ref, small())
	require.EqualError(t, err, "kv_token_dropped: planting it: no compiler")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = subject.Judge(ctx, ref, small())
	require.ErrorIs(t, err, context.Canceled)
	subject.Table = subject.Table[:2]
	_, err = subject.Judge(t.Context(), ref, small())
	require.EqualError(t, err, "gate: a page table of 2 pages, want at least 3: two are swapped")
}

func TestShuffledTableIsAPermutation(t *testing.T) {
	for pages := range 100 {
		table := ShuffledTable(pages)
		for i := 1; i < len(table); i++ {
			require.NotEqual(t, table[i-1]+1, table[i])
		}
		slices.Sort(table)
		for i, p := range table {
			require.Equal(t, uint32(i), p)
		}
	}
}

// The hashes that tests/gpu/reference.py --checkpoint wrote of these directories.
func TestHashOfACheckpointIsWhatTheReferenceProgramSays(t *testing.T) {
	for name, want := range map[string]string{
		"single_f32":    "2326040891ba6625ad21b97b78ece46df249303991ac515fd99f2cf87e51c643",
		"tied_bf16":     "e56b01674613b71962e0847844eeabbeade56e9e1c8c3404f2312a311bbd63b0",
		"sharded_f16":   "fe9398941b92c956083cf61e1c87e414a1a1e6a420f653031d02c25e781fec52",
		"tied_head_f32": "6074e832ac5f8c21f2077c6af3ee5fa53b06cf2b21f56352ad7090404bfe22fc",
	} {
		c, err := checkpoint.Open("../../models/checkpoint/testdata/" + name)
		require.NoError(t, err)
		hash, err := weightsHash(1, c.Config(), c, false)
		require.NoError(t, errors.Join(err, c.Close()))
		require.Equal(t, want, hash, name)
	}
}
