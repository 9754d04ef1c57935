package enginecases

import (
	"context"
	"errors"
	"strings"

	"github.com/mkgen/mkgen/engine"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/stretchr/testify/require"
)

var background = context.Background()

// What a bare session chooses, a token a launch, the pages in order, is what
// engines choose, however many tokens a launch.
func launchesOfAnyLength(t T, b *Bench) {
	device, err := b.Device()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, device.Close()) })
	s, err := runtime.NewSequence(b.Kernel, device, b.weights(), b.kvTokens()/b.Kernel.KV.Page, nil, 0)
	require.NoError(t, err)
	prompt := b.prompt(1, 9)
	want := make([]int, 20)
	for _, token := range prompt {
		want[0], err = s.Step(token)
		require.NoError(t, err)
	}
	for i := range want[1:] {
		want[i+1], err = s.Step(want[i])
		require.NoError(t, err)
	}
	for _, n := range []int{1, 3, 64} {
		e := b.open(t, func(o *engine.Options) { o.TokensPerLaunch = n })
		var handed []int
		got, err := e.Generate(background, engine.Request{Tokens: prompt, MaxTokens: len(want)}, func(p engine.Piece) bool {
			if p.Token != engine.NoToken {
				handed = append(handed, p.Token)
			}
			return true
		})
		require.NoError(t, err)
		require.Equal(t, want, got.Tokens, "%d tokens a launch", n)
		require.Equal(t, want, handed)
		require.Equal(t, engine.Length, got.Finish)
		require.Equal(t, len(prompt), got.Usage.Prompt)
		require.Zero(t, got.Usage.Reused)
		require.Positive(t, got.Usage.First)
		require.GreaterOrEqual(t, got.Usage.Total, got.Usage.First)
	}
}

func pagesInAnyOrder(t T, b *Bench) {
	r := engine.Request{Tokens: b.prompt(2, 11), MaxTokens: 3 * b.Kernel.KV.Page}
	var want engine.Result
	for i, seed := range []uint64{0, 1, 2} {
		e := b.open(t, func(o *engine.Options) { o.PageSeed = seed })
		// Leave the free list in a disorder of its own.
		answer(t, e, engine.Request{Tokens: b.prompt(3, 5+int(seed)), MaxTokens: 9})
		got := answer(t, e, r)
		if i == 0 {
			want = got
		}
		require.Equal(t, want.Tokens, got.Tokens, "page seed %d", seed)
		requireFree(t, e)
	}
}

func textIsDecoded(t T, b *Bench) {
	e := b.open(t, nil)
	var pieces []string
	got, err := e.Generate(background, engine.Request{Prompt: "in the end", MaxTokens: 40}, func(p engine.Piece) bool {
		require.True(t, strings.ToValidUTF8(p.Text, "") == p.Text, "%q", p.Text)
		pieces = append(pieces, p.Text)
		return true
	})
	require.NoError(t, err)
	require.Equal(t, b.Text.Decode(got.Tokens, true), got.Text)
	require.Equal(t, got.Text, strings.Join(pieces, ""))
	ids, err := b.Text.Encode("in the end", true)
	require.NoError(t, err)
	require.Equal(t, len(ids), got.Usage.Prompt)
	require.Equal(t, got.Tokens, b.fresh(t, engine.Request{Tokens: ids, MaxTokens: 40}).Tokens)
	chat := answer(t, e, engine.Request{Messages: messages("user", "hi"), MaxTokens: 3})
	ids, err = b.Text.Encode("<s><user>hi</s><assistant>", false)
	require.NoError(t, err)
	require.Equal(t, b.fresh(t, engine.Request{Tokens: ids, MaxTokens: 3}).Tokens, chat.Tokens)
}

// Any piece of the text as a stop text ends it where the piece first is, whether
// it lies in one token or over several.
func stopTexts(t T, b *Bench) {
	r := engine.Request{Tokens: b.prompt(4, 6), MaxTokens: 24}
	want := b.fresh(t, r)
	e := b.open(t, nil)
	text := []rune(want.Text)
	require.Greater(t, len(text), 8)
	for at := 0; at+1 < len(text); at += max(1, len(text)/6) {
		r.Stop = []string{"nowhere in it", string(text[at:min(at+1+at%4, len(text))])}
		before, _, _ := strings.Cut(want.Text, r.Stop[1])
		shown := ""
		got, err := e.Generate(background, r, func(p engine.Piece) bool { shown += p.Text; return true })
		require.NoError(t, err)
		require.Equal(t, before, got.Text, "stop at %q", r.Stop[1])
		require.Equal(t, before, shown)
		require.Equal(t, engine.Stopped, got.Finish)
		require.Equal(t, want.Tokens[:len(got.Tokens)], got.Tokens)
	}
	r.Stop = []string{"nowhere in it"}
	require.Equal(t, want.Text, answer(t, e, r).Text)
}

func endTokens(t T, b *Bench) {
	r := engine.Request{Tokens: b.prompt(5, 6), MaxTokens: 20}
	want := b.fresh(t, r)
	end := want.Tokens[12]
	first := 0
	for want.Tokens[first] != end {
		first++
	}
	for _, launch := range []int{1, 5, 64} {
		e := b.open(t, func(o *engine.Options) { o.Ends, o.TokensPerLaunch = []int{beginToken, end}, launch })
		got := answer(t, e, r)
		require.Equal(t, engine.End, got.Finish)
		require.Equal(t, want.Tokens[:first+1], got.Tokens)
		require.Equal(t, b.Text.Decode(want.Tokens[:first], true), got.Text)
	}
}

func kvLimit(t T, b *Bench) {
	page := b.Kernel.KV.Page
	room := 3 * page
	prompt := b.prompt(6, page+1)
	want := b.fresh(t, engine.Request{Tokens: prompt, MaxTokens: room - len(prompt) + 1})
	e := b.open(t, func(o *engine.Options) { o.KVTokens = room - 1 }) // rounded up to pages
	require.Equal(t, room, e.KVTokens())
	var full *engine.FullError
	got, err := e.Generate(background, engine.Request{Tokens: prompt}, nil)
	require.True(t, errors.As(err, &full), "%v", err)
	require.Equal(t, engine.FullError{Prompt: len(prompt), Chosen: len(want.Tokens), Limit: room}, *full)
	require.Equal(t, engine.KVFull, got.Finish)
	require.Equal(t, want.Tokens, got.Tokens)
	require.Equal(t, want.Text, got.Text)

	got, err = e.Generate(background, engine.Request{Tokens: b.prompt(7, room+1)}, nil)
	require.True(t, errors.As(err, &full), "%v", err)
	require.Zero(t, full.Chosen)
	require.Empty(t, got.Tokens)
	got, err = e.Generate(background, engine.Request{Tokens: b.prompt(7, room)}, nil)
	require.True(t, errors.As(err, &full), "%v", err)
	require.Len(t, got.Tokens, 1)
	again := answer(t, e, engine.Request{Tokens: prompt, MaxTokens: len(want.Tokens)})
	require.Equal(t, want.Tokens, again.Tokens)
	requireFree(t, e)
}
