package revision

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckoutIsWhatGitSays(t *testing.T) {
	head, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		require.Equal(t, "unknown", Checkout())
		return
	}
	require.Equal(t, strings.TrimSpace(string(head)), strings.TrimSuffix(Checkout(), "+modified"))
}

func TestAStampedProgramSaysWhatItWasStampedWith(t *testing.T) {
	defer func(s string) { stamped = s }(stamped)
	stamped = "0123abc"
	require.Equal(t, "0123abc", String())
}
