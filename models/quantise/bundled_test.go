package quantise

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/stretchr/testify/require"
)

// TestBundledModelsAreWhatIsWritten of the models that they were made from.
func TestBundledModelsAreWhatIsWritten(t *testing.T) {
	for name, c := range map[string]struct{ from, format string }{
		"tiny-i4g32": {"tiny", "i4g32"}, "tiny-i8": {"tiny", "i8"}, "small-i4g128": {"small", "i4g128"},
	} {
		out, _, _ := quantised(t, "../bundled/"+c.from, Options{Format: format(t, c.format)})
		for _, file := range []string{checkpoint.ConfigFile, checkpoint.SingleFile} {
			want, err := os.ReadFile(filepath.Join(out, file))
			require.NoError(t, err)
			got, err := os.ReadFile(filepath.Join("../bundled", name, file))
			require.NoError(t, err)
			require.Equal(t, want, got, "%s: mkgen quantize --checkpoint models/bundled/%s --format %s", name, c.from, c.format)
		}
	}
}
