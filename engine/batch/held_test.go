package batch_test

import (
	"testing"

	"github.com/mkgen/mkgen/engine/batch/batchtest"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/tasks/draw"
	"github.com/stretchr/testify/require"
)

// drawn is a client whose tokens come by a rule from the kernel.
type drawn struct {
	*client
	rule   draw.Rule
	scored []sampling.Logprobs
}

func (d *drawn) Draw() draw.Rule { return d.rule }
func (d *drawn) Scored(l []sampling.Logprobs) {
	require.LessOrEqual(d.t, len(d.scored)+len(l), int(d.handed.Load()))
	d.scored = append(d.scored, l...)
}

// withRule adds a job of a rule that has log-probabilities and takes the highest logit, so that the tokens are alone's.
func (b *bench) withRule(prompt []int, want int) *drawn {
	d := &drawn{client: &client{t: b.t, prompt: prompt, want: want, stop: -1}}
	d.rule.SetTops(2)
	b.Add(prompt, d)
	return d
}

// A prefill kernel takes highest logits alone. What needs more of the prompt's last token is fed in a step of rows.
func TestAPrefillLeavesALastTokenToTheKernelThatDraws(t *testing.T) {
	for _, several := range []int{1, 4} {
		b := newBench(t, sizes{rows: 4, page: 4, pages: 60, steps: 8, long: 32, several: several})
		b.f.Hosts = true
		d := b.withRule(count(1, 20), 5)
		b.all()
		require.Equal(t, []string{"1 0+19", "5 19+1"}, b.f.Log, "several %d", several)
		require.Equal(t, 1, b.f.Quiet)
		require.Equal(t, batchtest.Alone(d.prompt, 5, false), d.got)
		require.Len(t, d.scored, 5)
		greedy := b.add(count(2, 20), 5)
		b.all()
		require.Equal(t, "1 0+20", b.f.Log[2])
		require.Equal(t, greedy.alone(5), greedy.got)
		b.f.Hosts = false // a kernel of one row draws, whatever a launch feeds
		d = b.withRule(count(3, 20), 5)
		b.all()
		require.Equal(t, "1 0+20", b.f.Log[4])
		require.Equal(t, batchtest.Alone(d.prompt, 5, false), d.got)
		b.close()
	}
}

// Its last token does not wait for other prompts.
func TestALastTokenGoesBeforeTheNextPrompt(t *testing.T) {
	b := newBench(t, sizes{rows: 4, page: 4, pages: 60, steps: 8, long: 32, several: 4})
	b.f.Hosts = true
	first := b.withRule(count(1, 33), 2)
	second := b.add(count(2, 40), 2)
	b.step()
	b.step()
	require.Equal(t, []string{"1 0+32", "1 32+1 0+3"}, b.f.Log)
	require.Len(t, first.got, 1)
	b.all()
	require.Equal(t, batchtest.Alone(first.prompt, 2, false), first.got)
	require.Equal(t, second.alone(2), second.got)
	b.close()
}
