package tests

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/mkgen/mkgen/dsl/ir/mutate"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/verify"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

func TestMutants(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.Intermediate = 160
	c.Vocab = 64
	c.BOS, c.EOS = models.NoToken, nil
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 3, Splits: 2, Consumers: 3})
	require.NoError(t, err)
	tr, err := verify.NewTrial(mk, 2)
	require.NoError(t, err)
	t0 := time.Now()
	good, err := tr.Run(t.Context(), mk.IR, 1)
	require.NoError(t, err)
	fmt.Println(good.Findings, time.Since(t0), tr.Context(), mk.Plan.Stages, mk.Plan.StageBytes)
	ms := mutate.List(mk.IR)
	fmt.Println(len(ms), "mutants")
	var wg sync.WaitGroup
	next := make(chan int)
	out := make([]string, len(ms))
	for range 2 {
		wg.Go(func() {
			for i := range next {
				t0 := time.Now()
				k, err := mutate.Apply(mk.IR, ms[i])
				if err != nil {
					out[i] = err.Error()
					continue
				}
				out[i] = "SURVIVED"
				for seed := uint64(1); seed <= 8; seed++ {
					r, err := tr.Run(t.Context(), k, seed)
					if err != nil {
						out[i] = "ERR " + err.Error()
						break
					}
					if len(r.Findings) > 0 {
						out[i] = fmt.Sprintf("seed %d %s", seed, r.Findings[0].Kind)
						for n, s := range r.Findings[0].Sides {
							if n < 2 {
								out[i] += " | " + s.Pos.Line
							}
						}
						break
					}
					if d := r.Differs(good); d != "" {
						out[i] = fmt.Sprintf("seed %d differs %s", seed, d)
						break
					}
				}
				out[i] += fmt.Sprint(" ", time.Since(t0).Round(time.Millisecond))
			}
		})
	}
	for i := range ms {
		next <- i
	}
	close(next)
	wg.Wait()
	for i, m := range ms {
		fmt.Println(m, "=>", out[i])
	}
	fmt.Println(time.Since(t0))
}
