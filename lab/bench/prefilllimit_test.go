package bench

import (
	"testing"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/stretchr/testify/require"
)

// How far the logits of both ways may be apart follows from what is rounded to e4m3: keys and values, or the inputs of
// products.
func TestLimitOfPromptsFollowsWhatIsE4M3(t *testing.T) {
	tiny, err := models.Lookup("tiny")
	require.NoError(t, err)
	for _, c := range []struct {
		kv     attention.KVType
		inputs pipeline.Format
		want   float64
	}{
		{attention.KVBF16, pipeline.FormatBF16, MaxPrefillError},
		{attention.KVE4M3, pipeline.FormatBF16, MaxCachedError},
		{attention.KVBF16, pipeline.FormatE4M3, MaxCodedError},
		{attention.KVE4M3, pipeline.FormatE4M3, MaxCodedError},
	} {
		o := megakernel.Options{SMs: 3, KV: c.kv}
		if c.inputs == pipeline.FormatE4M3 {
			o.Weights = pipeline.FormatE4M3
		}
		mk, err := megakernel.Build(tiny, o)
		require.NoError(t, err)
		p, err := megakernel.BuildPrefill(mk, megakernel.PrefillOptions{Tokens: 32, Groups: 1, Activations: c.inputs})
		require.NoError(t, err)
		s := &PrefillSuite{Decode: []*megakernel.Kernel{mk}, Prefill: []*megakernel.Prefill{p}}
		require.Equal(t, c.want, s.most(), "%s, %s", c.kv, c.inputs)
	}
}
