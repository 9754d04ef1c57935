package tune

import (
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// Among what an ablation compares are the rings of FlashFormer's: 32 KiB × 3, 4 and 5, and
// 64 KiB × 2 and, where there is room, 3; with and without leads.
func TestRingsOfLargeStagesAreThereInAllDepths(t *testing.T) {
	deep.Only(t)
	for name, want := range map[string][]string{
		"llama3-8b": {
			"--stage-bytes 32768 --stages 5 --in-flight 2 --leads 3:1 --held 3",
			"--stage-bytes 32768 --stages 5 --in-flight 2 --leads none --held 3",
			"--stage-bytes 32768 --stages 4 --in-flight 2 --leads 3:1 --held 3",
			"--stage-bytes 32768 --stages 3 --in-flight 2 --leads none --held 3",
			"--stage-bytes 65536 --stages 2 --in-flight 1 --leads none --held 2",
			"--stage-bytes 65536 --stages 2 --in-flight 2 --leads none --held 2",
		},
		"llama3.2-1b": {
			"--stage-bytes 32768 --stages 6 --in-flight 2 --leads none --held 2",
			"--stage-bytes 32768 --stages 5 --in-flight 2 --leads 2:1 --held 2",
			"--stage-bytes 65536 --stages 3 --in-flight 1 --leads none --held 1",
			"--stage-bytes 65536 --stages 2 --in-flight 2 --leads none --held 1",
		},
	} {
		c, err := models.Lookup(name)
		require.NoError(t, err)
		mk, err := megakernel.Build(c, megakernel.Options{})
		require.NoError(t, err)
		var got []string
		for _, o := range rings(mk) {
			built, err := megakernel.Build(mk.Config, o)
			require.NoError(t, err)
			got = append(got, difference(mk.Options, built.Options, []string{StageBytes, Stages}))
		}
		require.Subset(t, got, want, name)
	}
}
