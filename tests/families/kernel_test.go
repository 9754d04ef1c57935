package families

import (
	"context"
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// tensors are a case's weights as a kernel asks for them.
type tensors reference.Weights

func (w tensors) Row(tensor string, row int, dst []half.BF16) error {
	if copy(dst, w[tensor][row*len(dst):]) != len(dst) {
		return fmt.Errorf("no row %d of %s", row, tensor)
	}
	return nil
}

// small are options under which a tiny model meets splits, several stages, SMs with uneven shares and pages in any
// order.
var small = megakernel.Options{SMs: 3, Splits: 2, StageBytes: 2048, Page: 8}

// backwards is a page table of n pages.
func backwards(n int) (table []uint32) {
	for i := range n {
		table = append(table, uint32(n-i))
	}
	return table
}

// decode feeds tokens to a kernel of one row on the executor and returns the logits after each.
func decode(t *testing.T, mk *megakernel.Kernel, w reference.Weights, tokens []int) (logits [][]float64) {
	return decodeAs(t, mk, w, tokens, false)
}

// decodeAs is decode of a sequence that is short or not, where that matters.
func decodeAs(t *testing.T, mk *megakernel.Kernel, w reference.Weights, tokens []int, short bool) (logits [][]float64) {
	t.Helper()
	sim, err := runtime.NewSim(mk.IR, 1)
	require.NoError(t, err)
	sim.Options.NoRaces = mk.Options.Fault != megakernel.NoFault // only its values matter
	pages := (len(tokens) + mk.KV.Page - 1) / mk.KV.Page
	s, err := runtime.NewSequence(mk, sim, tensors(w), pages+1, backwards(pages), 0)
	require.NoError(t, err)
	require.NoError(t, s.SetShort(short))
	out := make([]float32, mk.Config.Vocab)
	for _, id := range tokens {
		_, err := s.Step(id)
		require.NoError(t, err, "position %d", s.Pos())
		require.NoError(t, s.Logits(out))
		logits = append(logits, wide(out))
	}
	return logits
}

// together feeds tokens to a kernel of several rows, all but the last few as many a step as it takes.
func together(t *testing.T, mk *megakernel.Kernel, w reference.Weights, tokens []int) (logits [][]float64) {
	t.Helper()
	sim, err := runtime.NewSim(mk.IR, 1)
	require.NoError(t, err)
	pages := (len(tokens) + mk.KV.Page - 1) / mk.KV.Page
	s, err := runtime.Open(context.Background(), mk, sim, runtime.FromTensors(tensors(w), runtime.LoadOptions{}),
		runtime.Options{Pages: pages + 1})
	require.NoError(t, err)
	out := make([]float32, mk.Config.Vocab)
	for at := 0; at < len(tokens); {
		n := min(mk.Options.Tokens, len(tokens)-at)
		if at >= len(tokens)-mk.Options.Tokens {
			n = min(n, 3)
		}
		_, err := s.Run(context.Background(),
			batch.StepRequest{Steps: 1,
				Sequences: []batch.Sequence{{New: tokens[at:][:n], Cached: at, Pages: backwards(pages)}}})
		require.NoError(t, err, "position %d", at)
		for k := range n {
			require.NoError(t, s.TokenLogits(0, k, out))
			logits = append(logits, wide(out))
		}
		at += n
	}
	return logits
}

func wide(v []float32) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}

// distance is the root mean square of the differences of logits, relative to their spread, over all tokens.
func distance(got, want [][]float64) float64 {
	sum, n := 0.0, 0
	for i := range got {
		by := spread(want[i])
		for j, x := range got[i] {
			d := (x - want[i][j]) / by
			sum, n = sum+d*d, n+1
		}
	}
	return math.Sqrt(sum / float64(n))
}

// logitsOf are the reference's, rounded as the kernel rounds.
func logitsOf(t *testing.T, config models.Config, w reference.Weights, tokens []int,
	h reference.Hooks) (all [][]float64) {
	t.Helper()
	ref, err := reference.NewModel(config, w, h)
	require.NoError(t, err)
	for _, token := range tokens {
		all = append(all, ref.Step(token))
	}
	return all
}

// limit is how far a kernel's logits may be from the reference's that rounds where the kernel does, where these
// roundings cost own beside none: both are relative to the logits' spread. Half of own is for roundings that fall the
// other way, since most fall alike (0.16 to 0.47 of own is left of the models whose roundings cost 0.02 and more,
// Ministral's 0.07 among them). The rest is for what the reference does not round: attention's weights and sums in
// float32 (0.006 to 0.01 of Gemma 2 and 3, whose roundings cost no more).
func limit(own float64) float64 { return own/2 + 0.01 }

// eachFamily runs body, side by side, for a case of each family, and deeply for its variants, too.
func eachFamily(t *testing.T, body func(t *testing.T, c *Case, config models.Config, w reference.Weights)) {
	t.Helper()
	for _, c := range cases(t) {
		if strings.Contains(c.Name, "-") && !deep.On() { // a variant of a family that is there
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			config, err := c.Config(nil)
			require.NoError(t, err)
			w, err := c.Weights()
			require.NoError(t, err)
			body(t, &c, config, w)
		})
	}
}

// Every family's kernels, of one row and of several, against the reference that rounds as they do and against
// transformers in float32. What is left is roundings that fall the other way, and, beside transformers, bf16 in place
// of float32.
func TestKernelsEqualTransformersForEveryFamily(t *testing.T) {
	eachFamily(t, func(t *testing.T, c *Case, config models.Config, w reference.Weights) {
		tokens := c.Tokens
		if !deep.On() {
			tokens = tokens[:min(len(tokens), 21)]
		}
		want, exact := logitsOf(t, config, w, tokens, reference.AsKernel(config)),
			logitsOf(t, config, w, tokens, reference.Hooks{})
		for _, rows := range []int{1, 6} {
			tokens, want, exact := tokens, want, exact
			if rows == 1 && !deep.On() { // beyond the windows of 8 and the first page
				tokens, want, exact = tokens[:10], want[:10], exact[:10]
			}
			o := small
			run := decode
			if rows > 1 {
				o.Tokens, o.Splits, run = rows, 0, together
			}
			mk, err := megakernel.Build(config, o)
			require.NoError(t, err)
			got := run(t, mk, w, tokens)
			near, own, far := distance(got, want), distance(want, exact), 0.0
			for _, at := range c.Positions() {
				if at < len(tokens) {
					far = max(far, distance(got[at:at+1], [][]float64{c.At(at)}))
				}
			}
			t.Logf("%d rows: %.4f from the reference, whose roundings cost %.4f, at most %.4f from transformers", rows, near,
				own, far)
			require.Less(t, near, limit(own), "%d rows, roundings cost %.4f", rows, own)
			require.Less(t, far, 0.1, "%d rows", rows)
			for i := range got { // greedy choices are the same, but where two tokens are nearly as good
				best := reference.Argmax(got[i])
				require.LessOrEqual(t, slices.Max(want[i])-want[i][best], 0.1*spread(want[i]), "token %d", i)
			}
		}
	})
}

var every = flag.Bool("every", false, "every family's kernels in every format of weights: three CPU minutes")

// Every family's kernels in 8 and in 4 bits, of one row and of several, against the reference with the same weights and
// inputs. Without -deep each pair of a format and rows is in one case, and every second case has one.
func TestKernelsOfEveryFormatForEveryFamily(t *testing.T) {
	formats := pipeline.Formats()[1:]
	for n, c := range cases(t) {
		if !deep.On() && n%2 != 0 {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			config, err := c.Config(nil)
			require.NoError(t, err)
			config.Hidden = 128 // where norms stand behind branches, 4 bits want a multiple
			w, tokens := reference.Synthetic(config, Seed), c.Tokens[:3]
			if deep.On() {
				tokens = c.Tokens[:min(len(c.Tokens), 20)]
			}
			first, parts := n/2, 2*len(formats) // of all pairs of a format and rows, this case has one
			switch {
			case *every:
				parts = 1
			case deep.On():
				first, parts = len(c.Name), 5 // each pair is in six families or more
			}
			for i, format := range formats {
				for _, rows := range []int{1, 6} {
					if (2*i+rows/6+first)%parts != 0 {
						continue
					}
					o := small
					run := decode
					o.StageBytes, o.Weights = 8448, format
					if rows > 1 {
						o.Tokens, o.Splits, run = rows, 0, together
					}
					mk, err := megakernel.Build(config, o)
					require.NoError(t, err, format)
					rounded := reference.Weights{}
					for name := range w {
						rounded[name] = slices.Clone(w[name])
					}
					roundAs(t, mk, rounded)
					want := logitsOf(t, config, rounded, tokens, reference.AsKernelWith(config, mk.RoundInput, mk.RoundHeadInput))
					own := distance(want, logitsOf(t, config, rounded, tokens, reference.Hooks{}))
					near := distance(run(t, mk, w, tokens), want)
					t.Logf("%s, %d rows: %.4f from the reference, whose roundings cost %.4f", format, rows, near, own)
					// inputs are rounded to so few bits that all may fall another way: two such errors are √2 apart
					require.Less(t, near, math.Sqrt2*own+0.01, "%s, %d rows, roundings cost %.4f", format, rows, own)
				}
			}
		})
	}
}

// roundAs rounds weights as a kernel's format has them.
func roundAs(t *testing.T, mk *megakernel.Kernel, w reference.Weights) {
	t.Helper()
	from := mk.Rounded(tensors(w))
	for _, s := range mk.Config.Stored() {
		if len(s.Shape) < 2 {
			continue
		}
		rows := make([]half.BF16, len(w[s.Name]))
		for r := range s.Shape[0] {
			require.NoError(t, from.Row(s.Name, r, rows[r*s.Shape[1]:][:s.Shape[1]]))
		}
		w[s.Name] = rows
	}
}

// Kernels of a whole context take longrope's short factors for a sequence within the first training's, and the long
// ones for others.
func TestLongRoPEFollowsTheSequence(t *testing.T) {
	all := cases(t)
	for name, short := range map[string]bool{"phi4-mini-short": true, "phi4-mini": false} {
		c := all[slices.IndexFunc(all, func(c Case) bool { return c.Name == name })]
		config, err := models.Parse(strings.NewReader(string(c.Published)))
		require.NoError(t, err)
		require.Equal(t, 16, config.ShortPositions())
		w, err := c.Weights()
		require.NoError(t, err)
		mk, err := megakernel.Build(config, small)
		require.NoError(t, err)
		last := c.Positions()[1]
		for _, as := range []bool{short, !short} {
			far := distance(decodeAs(t, mk, w, c.Tokens[:last+1], as)[last:], [][]float64{c.At(last)})
			t.Logf("%s, short %v: %.3f from transformers", name, as, far)
			require.Equal(t, as == short, far < 0.08)
		}
	}
}

// A kernel with a planted fault is not the model any more: by far more than rounding.
func TestFaultsOfFeaturesShow(t *testing.T) {
	for _, f := range []struct {
		name  string
		fault megakernel.Fault
	}{{"qwen2", megakernel.FaultBias}, {"qwen3", megakernel.FaultQKNorm}, {"gemma3", megakernel.FaultPlusOne},
		{"gemma3", megakernel.FaultRopeBase}, {"gemma2", megakernel.FaultLogitCap}, {"gemma2", megakernel.FaultPostNorm},
		{"mistral", megakernel.FaultAttention}, {"gemma2", megakernel.FaultAttention}, {"gemma2", megakernel.FaultWindow},
		{"ministral3", megakernel.FaultGrowth}} {
		t.Run(string(f.fault), func(t *testing.T) {
			t.Parallel()
			all := cases(t)
			c := all[slices.IndexFunc(all, func(c Case) bool { return c.Name == f.name })]
			config, err := c.Config(nil)
			require.NoError(t, err)
			w, err := c.Weights()
			require.NoError(t, err)
			tokens, o := c.Tokens[:12], small
			switch {
			case f.fault == megakernel.FaultGrowth:
				tokens = c.Tokens[:24] // scores grow from position 16 on
			case f.name == "gemma2" && f.fault == megakernel.FaultAttention:
				tokens = c.Tokens[:8] // no window hides any of them: the soft cap of scores alone differs
			}
			o.Fault = f.fault
			mk, err := megakernel.Build(config, o)
			require.NoError(t, err)
			want := logitsOf(t, config, w, tokens, reference.AsKernel(config))
			far, own := distance(decode(t, mk, w, tokens), want),
				distance(want, logitsOf(t, config, w, tokens, reference.Hooks{}))
			t.Logf("%s of %s: %.3f, limit %.3f", f.fault, f.name, far, limit(own))
			require.Greater(t, far, 1.5*limit(own))
			o.Tokens, o.Splits = 4, 0
			_, err = megakernel.Build(config, o)
			require.NoError(t, err)
		})
	}
}
