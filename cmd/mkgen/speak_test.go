package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// How far a prompt is is told of long ones only, and in the end, which is no terminal here, in one line.
func TestALongPromptHasALineOfProgress(t *testing.T) {
	var out strings.Builder
	short := tellPrompt(&out)
	short(16, longPrompt-1)
	short(longPrompt-1, longPrompt-1)
	require.Empty(t, out.String())
	long := tellPrompt(&out)
	long(longPrompt, 1000)
	long(1000, 1000)
	require.Regexp(t, `^prompt: 1000 tokens in [0-9.]+ s, [0-9]+ a second\n$`, out.String())
}
