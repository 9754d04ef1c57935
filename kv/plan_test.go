package kv

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// planAndCheck plans what d draws; a refusal must be one that nothing could help, and where
// parts are pinned just when there are more than the kernel has room for.
func planAndCheck(t *testing.T, d draw) {
	t.Helper()
	l := randomLimits(d)
	r := randomRequest(d, &l)
	require.NoError(t, r.CheckWrites(l.PageSize))
	p, err := NewPlanner(l)
	require.NoError(t, err)
	plan, err := p.Plan(r)
	if r.PinTokens > 0 {
		items, states := pinnedNeeds(&l, &r)
		require.Equal(t, items > l.CTAs*l.ItemsPerCTA || states > l.Partials, err != nil, "%v: %+v", err, l)
	} else if err != nil {
		require.Greater(t, uncut(&l, &r), l.CTAs*l.ItemsPerCTA, "%v: %+v", err, l)
	}
	if err == nil {
		require.NoError(t, plan.Check(r), "%+v", l)
	}
}

func TestEveryTokenIsMetExactlyOnce(t *testing.T) {
	for seed := range uint64(300) {
		planAndCheck(t, fromSeed(seed))
	}
}

func TestPinnedPartsAreRefusedJustWhenThereAreTooMany(t *testing.T) {
	refused := map[bool]int{}
	for seed := range uint64(2000) {
		d := fromSeed(seed)
		l := randomLimits(d)
		r := randomRequest(d, &l)
		r.PinTokens = l.ChunkTokens * (1 + d(30))
		items, states := pinnedNeeds(&l, &r) // just enough, or one too few
		l.ItemsPerCTA, l.Partials = max(1, ceilDiv(items, l.CTAs)-d(4)/3), max(0, states-d(4)/3)
		p, err := NewPlanner(l)
		require.NoError(t, err)
		_, err = p.Plan(r)
		want := items > l.CTAs*l.ItemsPerCTA || states > l.Partials
		require.Equal(t, want, err != nil, "seed %d: %v: %+v", seed, err, l)
		refused[want]++
	}
	require.Greater(t, min(refused[true], refused[false]), 500)
}

func TestAReusedPlannerPlansLikeAFreshOne(t *testing.T) {
	l := h200()
	l.Selection, l.PageSize = true, 8
	used, err := NewPlanner(l)
	require.NoError(t, err)
	plans := 0
	for seed := range uint64(60) {
		r := randomRequest(fromSeed(seed), &l)
		fresh, err := NewPlanner(l)
		require.NoError(t, err)
		want, wantErr := fresh.Plan(r)
		got, gotErr := used.Plan(r)
		require.Equal(t, wantErr, gotErr)
		if wantErr == nil {
			require.Equal(t, words(want), words(got), "seed %d", seed)
			plans++
		}
	}
	require.Greater(t, plans, 30)
}

// words is all that a plan gives the kernel.
func words(p *Plan) [][]uint32 {
	work := make([]uint32, p.Limits.WorkWords(len(p.Classes)))
	merge := make([]uint32, p.Limits.MergeWords(len(p.Classes)))
	p.EncodeWork(work)
	p.EncodeMerge(merge)
	rows := append([]uint32{}, p.Rows...)
	return [][]uint32{work, merge, rows, append([]uint32{}, p.Entries...), append([]uint32{}, p.Positions...)}
}

func TestEncodedWorkIsARecordACTA(t *testing.T) {
	r := decoding(16, 1000, 20)
	r.Classes = []Class{{}, {Window: 64}}
	p := plan(t, h200(), r)
	l := &p.Limits
	work := words(p)[0]
	for class := range p.Classes {
		for cta := range l.CTAs {
			record := work[(class*l.CTAs+cta)*(l.ItemsPerCTA+1)*ItemWords:]
			require.EqualValues(t, p.Classes[class].Count(cta), record[0])
			for i := range int(record[0]) {
				require.Equal(t, p.Classes[class].Words(cta, i), record[(i+1)*ItemWords:][:ItemWords])
			}
		}
	}
}

func TestRowsOfADraftTree(t *testing.T) {
	r := decoding(16, 100)
	s := &r.Sequences[0]
	s.Cached, s.New, s.Grow, s.Parents = 95, 5, false, []int{-1, 0, 0, 2, -1}
	s.Tokens, s.Masks = []uint32{9, 8, 7, 6, 5}, []uint32{0, 4, 8, 12, 16}
	r.Sequences = append(decoding(16, 1).Sequences, *s)
	r.Sequences[0].Pages[0] = 90
	p := plan(t, h200(), r)
	want := [][]uint32{
		{0, 0, 0, 0, 1, 0, 0, 0},
		{9, 95, 1, 95, 0b00001, 0, 1, 0},
		{8, 96, 1, 96, 0b00011, 4, 1, 0},
		{7, 96, 1, 97, 0b00101, 8, 1, 0},
		{6, 97, 1, 98, 0b01101, 12, 1, 0},
		{5, 95, 1, 99, 0b10000, 16, 1, 0},
	}
	for i, w := range want {
		require.Equal(t, w, p.Rows[i*RowWords:][:RowWords], "row %d", i)
	}
	require.Zero(t, p.Rows[len(want)*RowWords+RowTail], "rows without a sequence attend to nothing")
}

func TestRowsWithoutASequenceGetItemsOfNothing(t *testing.T) {
	r := decoding(16, 1, 40)
	r.FillRows = true
	p := plan(t, h200(), r)
	require.Equal(t, 8*(1+1+1), p.Classes[0].Items, "40 tokens are not worth cutting; 14 rows are 1 tile")
	r.Sequences = nil
	require.Equal(t, 8, plan(t, h200(), r).Classes[0].Items)
	r.FillRows = false
	require.Zero(t, plan(t, h200(), r).Classes[0].Items)
}

func FuzzPlan(f *testing.F) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 5))
		data := make([]byte, 256)
		for i := 0; i < len(data); i += 8 {
			binary.LittleEndian.PutUint64(data[i:], r.Uint64())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { planAndCheck(t, fromBytes(data)) })
}

// Numbers that nobody means are refused, or planned for what they are.
func FuzzPlanOfAnyNumbers(f *testing.F) {
	for _, v := range []int{-1, 0, MaxRows, MaxRows + 1, maxTokens, maxTokens + 1, 1 << 37, math.MaxInt - 15, math.MaxInt,
		math.MinInt} {
		f.Add(v, 1, 1, 0, 0, 0)
		f.Add(100, v, 1, 0, 0, 0)
		f.Add(100, 1, v, 0, 0, 0)
		f.Add(100, 2, 1, v, 0, 0)
		f.Add(100, 2, 1, 0, v, v)
		f.Add(v, v, v, v, v, v)
	}
	f.Fuzz(func(t *testing.T, cached, fresh, steps, pin, window, sinks int) {
		s := Sequence{Cached: cached, New: fresh, Grow: steps > 1, Pages: decoding(16, 1000).Sequences[0].Pages}
		r := Request{Sequences: []Sequence{s, s}, Steps: steps, PinTokens: pin,
			Classes: []Class{{}, {Window: window, Sinks: sinks}}}
		planner, err := NewPlanner(h200())
		require.NoError(t, err)
		if p, err := planner.Plan(r); err == nil && steps < 1000 {
			require.NoError(t, p.Check(r))
		}
	})
}
