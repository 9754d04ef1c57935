package kv

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// planAndCheck plans what d draws; a refusal must be one that nothing could help.
func planAndCheck(t *testing.T, d draw) {
	t.Helper()
	l := randomLimits(d)
	r := randomRequest(d, &l)
	p, err := NewPlanner(l)
	require.NoError(t, err)
	plan, err := p.Plan(r)
	if err != nil {
		tight := uncut(&l, &r) > l.CTAs*l.ItemsPerCTA
		require.True(t, tight || r.PinTokens > 0, "%v: %+v", err, l)
		return
	}
	require.NoError(t, plan.Check(r), "%+v", l)
}

func TestEveryTokenIsMetExactlyOnce(t *testing.T) {
	for seed := range uint64(300) {
		planAndCheck(t, fromSeed(seed))
	}
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
