package verify

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/stretchr/testify/require"
)

func good() *Report {
	return &Report{
		Model:      "tiny",
		Equal:      []Fact{{"templates", "embedding, GEMV"}, {"roles", "8 consumers, 1 producer"}},
		Conditions: []Condition{{"ring goes around", "7.5 times", "at least 3 times", true}},
		Shrunk:     []Size{{"layers", 32, 2}, {"hidden", 4096, 96}},
		Seeds:      []uint64{1, 2, 3, 9}, Steps: 3, Ran: 12, Instructions: 1234567,
		Values: []Comparison{{What: "logits", Compared: 960, MaxError: 0.00123, Tolerance: 0.01,
			Where: "seed 3, step 1, row 17"}},
	}
}

func TestReportOfAGoodKernel(t *testing.T) {
	r := good()
	require.True(t, r.OK())
	require.NoError(t, r.Err())
	require.Equal(t, `tiny: the kernel's own program, shrunk, on the CPU

  equal to the real kernel
  templates                 embedding, GEMV
  roles                     8 consumers, 1 producer

  still exercised   here       wanted
  ring goes around  7.5 times  at least 3 times  ok

  shrunk  real  here
  layers    32     2
  hidden  4096    96

Ran 4 schedules (seeds 1-3, 9: uniform, bursts, starve), 3 steps each, 12
launches and 1234567 instructions of a warp in all
                                 largest
  against the reference  values    error  tolerance      where
  logits                    960  0.00123       0.01  ok  seed 3, step 1, row 17

No race, no deadlock, no access out of place.
`, text(t, r))
}

func TestReportOfABrokenKernelNamesTheGoLines(t *testing.T) {
	r := good()
	r.Findings = []Finding{{Kind: "data race", Text: "element 3 of @x: not ordered", Seed: 3, Step: 1, Sides: []Side{
		{What: "read", Op: "ld.f32", Thread: "cta 0 warp 1 lane 2",
			Pos: ir.Pos{Line: "product/gemv.go:40", Caller: "megakernel/build.go:12"}},
		{What: "earlier write", Pos: ir.Pos{Line: "product/vector.go:7"}}}},
		{Kind: "data race"}, {Kind: "deadlock", Text: "no warp can go on"}}
	require.EqualError(t, r.Err(), "tiny fails verification: 2 × data race; 1 × deadlock")
	require.Contains(t, text(t, r), `
Found
  1. data race (seed 3, starve, step 1): element 3 of @x: not ordered
       read, ld.f32, cta 0 warp 1 lane 2
         product/gemv.go:40 (called from megakernel/build.go:12)
       earlier write
         product/vector.go:7
`)
}

func TestWhatAReportMustNotPass(t *testing.T) {
	for want, change := range map[string]func(r *Report){
		"ring goes around 2.5 times, want at least 3 times": func(r *Report) {
			r.Conditions[0].Have,
				r.Conditions[0].Met = "2.5 times", false
		},
		"logits off by 0.02, want at most 0.01": func(r *Report) { r.Values[0].MaxError = 0.02 },
		"logits off by NaN, want at most 0.01":  func(r *Report) { r.Values[0].MaxError = math.NaN() },
		"logits off by 0.00123":                 func(r *Report) { r.Values[0].Compared = 0 },
		"1 × deadlock":                          func(r *Report) { r.Findings = []Finding{{Kind: "deadlock"}} },
		"nothing was run or compared":           func(r *Report) { r.Values = nil },
		"; nothing was run or compared":         func(r *Report) { r.Seeds, r.Conditions[0].Met = nil, false },
	} {
		r := good()
		change(r)
		require.False(t, r.OK(), want)
		require.ErrorContains(t, r.Err(), want)
	}
}

func text(t *testing.T, r *Report) string {
	var b strings.Builder
	require.NoError(t, r.Write(&b))
	return b.String()
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("full") }

func TestReportReturnsTheWritersError(t *testing.T) {
	require.EqualError(t, good().Write(full{}), "full")
}
