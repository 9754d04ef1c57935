package engine

import (
	"slices"
	"testing"

	"github.com/mkgen/mkgen/engine/batch/batchtest"
	"github.com/stretchr/testify/require"
)

// An end token at index 2 of the greedy text is ignored or put off.
func TestEndTokensAreIgnoredAndPutOff(t *testing.T) {
	follow := func(prompt []int, n int) []int { return append([]int{}, batchtest.Alone(prompt, n, false)...) }
	end := follow([]int{1, 2, 3}, 3)[2]
	e, _ := newFake(t, func(o *Options) { o.Ends = []int{end} }, nil)
	generate := func(r Request) (Result, error) { return e.Generate(t.Context(), r, nil) }
	prompt := []int{1, 2, 3}
	free := follow(prompt, 9)

	got, err := generate(Request{Tokens: prompt, MaxTokens: 9, IgnoreEnds: true, MinTokens: 4})
	require.NoError(t, err)
	require.Equal(t, Length, got.Finish)
	require.Equal(t, free, got.Tokens)

	got, err = generate(Request{Tokens: prompt, MaxTokens: 9, MinTokens: 2})
	require.NoError(t, err)
	require.Equal(t, End, got.Finish)
	require.Equal(t, free[:3], got.Tokens)

	got, err = generate(Request{Tokens: prompt, MaxTokens: 9, MinTokens: 5})
	require.NoError(t, err)
	require.Equal(t, free[:2], got.Tokens[:2])
	require.GreaterOrEqual(t, len(got.Tokens), 5)
	require.NotContains(t, got.Tokens[:5], end)
	// Behind the last token that the host chose the kernel's own choices follow.
	rest := follow(slices.Concat(prompt, got.Tokens[:5]), len(got.Tokens)-5)
	require.Equal(t, rest, slices.Concat(got.Tokens[5:]))

	_, err = generate(Request{Tokens: prompt, MaxTokens: 3, MinTokens: 4})
	require.ErrorContains(t, err, "MinTokens is 4")
	_, err = generate(Request{Tokens: prompt, MinTokens: -1})
	require.ErrorContains(t, err, "MinTokens is -1")
}

// The last token's piece says why the generation ends, no other does.
func TestTheLastPieceSaysWhy(t *testing.T) {
	b, _ := newFake(t, nil, nil)
	var finishes []Finish
	_, err := b.Generate(t.Context(), Request{Tokens: []int{1}, MaxTokens: 3}, func(p Piece) bool {
		finishes = append(finishes, p.Finish)
		return true
	})
	require.NoError(t, err)
	require.Equal(t, []Finish{"", "", Length}, finishes)
}
