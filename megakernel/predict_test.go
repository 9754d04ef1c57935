package megakernel

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/machine"
	"github.com/stretchr/testify/require"
)

// quiet is a machine whose syncs and arithmetic take next to no time.
func quiet() *machine.Machine {
	m := machine.H200()
	for i := range m.Exchanges {
		m.Exchanges[i].Wait, m.Exchanges[i].Read = machine.Figure{}, machine.Figure{}
	}
	for i := range m.Copies {
		m.Copies[i].Load = machine.Figure{}
	}
	m.Idle.Load, m.Drain = machine.Figure{}, machine.Drain{}
	return m
}

// With nothing but memory a step takes what its bytes do.
func TestPredictionWithoutSyncsIsBytesOverBandwidth(t *testing.T) {
	mk := build(t, "llama3-8b", Options{SMs: 1, Splits: 1, InFlight: 3})
	m := quiet()
	for _, context := range []int{0, 1, 1024} {
		p := mk.Predict(m, context, 1)
		kv := float64(mk.Config.KVBytesPerToken()) * float64(context)
		require.InDelta(t, (float64(mk.Plan.WeightBytes())+kv)/(m.Ceiling.Median*1e9), p.Floor, 1e-12)
		require.InEpsilon(t, float64(mk.Plan.WeightBytes())+kv, p.Stream*m.BytesPerSecond(1, 3*16384), 1e-5,
			"one SM reads everything; nothing is padded")
		require.InEpsilon(t, p.Stream, p.Total, 1e-3, "and what the shorter copies of tails take")
	}
}

// One SM with three 16-KiB copies in flight streams three times what one of a GPU's copies
// brings; with all SMs the measured curve is the limit.
func TestPredictionOfFewSMsIsWhatTheirCopiesBring(t *testing.T) {
	m := machine.H200()
	copies := func(n int) float64 { return m.BytesPerSecond(132, int64(n)*16384) } // of all SMs
	for sms, rate := range map[int]float64{1: 3 * copies(1) / 132, 2: 6 * copies(1) / 132, 132: copies(3)} {
		mk := build(t, "llama3-8b", Options{SMs: sms, InFlight: 3})
		require.Equal(t, 3*16384, mk.Plan.InFlight*mk.Plan.StageBytes)
		p, e := mk.Predict(machine.H200(), 0, 1), mk.Plan.Efficiency().Step
		require.InEpsilon(t, float64(mk.Plan.PackedBytes)/e/rate, p.Stream, 1e-9, "%d SMs", sms)
	}
	one := build(t, "llama3-8b", Options{SMs: 1, InFlight: 1})
	require.InEpsilon(t, float64(one.Plan.PackedBytes)/(copies(1)/132), one.Predict(machine.H200(), 0, 1).Stream, 1e-9)
}

func TestPhasesAddUp(t *testing.T) {
	for _, o := range []Options{{}, {SMs: 3}, {Merge: MergePhase}, {Held: 3}, {Tokens: 8},
		{SMs: 5, Stages: 4, InFlight: 1}} {
		for _, name := range []string{"tiny", "llama3.2-1b"} {
			mk := build(t, name, o)
			p := mk.Predict(machine.H200(), 100, max(1, o.Tokens))
			require.Len(t, p.Phases, len(mk.predicted()))
			sum, bytes := 0.0, int64(0)
			for _, f := range p.Phases {
				require.Positive(t, f.Time, f.Name)
				require.Positive(t, f.Sync, f.Name)
				require.GreaterOrEqual(t, f.Work, 0.0, f.Name)
				require.InEpsilon(t, f.Time, f.Work+f.Chunks+f.Sync, 1e-9, f.Name)
				require.LessOrEqual(t, f.Most, f.Bytes)
				if f.Name == "attention" && o.Tokens <= 1 {
					require.Equal(t, mk.KVBytes(100), int64(f.Runs)*f.Bytes)
				}
				sum += float64(f.Runs) * f.Time
				bytes += int64(f.Runs) * f.Bytes
			}
			require.InEpsilon(t, p.Total, sum, 1e-9)
			require.GreaterOrEqual(t, bytes, mk.Plan.WeightBytes()+int64(max(1, o.Tokens))*mk.KVBytes(100)) // some is padded
			require.Greater(t, p.Total, p.Floor)
		}
	}
}

// What several sequences have in the cache is read for each.
func TestSequencesAreReadEachForItself(t *testing.T) {
	mk := build(t, "llama3-8b", Options{Tokens: 8})
	one, eight := mk.Predict(machine.H200(), 4096, 1), mk.Predict(machine.H200(), 4096, 8)
	require.InDelta(t, float64(7*mk.KVBytes(4096))/(machine.H200().Ceiling.Median*1e9), eight.Floor-one.Floor, 1e-9)
	require.Greater(t, eight.Total-one.Total, 0.9*(eight.Floor-one.Floor))
	for _, p := range eight.Phases {
		require.NotEqual(t, "merge", p.Name, "no plan has work for it")
	}
}

func TestASlowerMachineIsPredictedSlower(t *testing.T) {
	mk := build(t, "llama3.2-1b", Options{})
	base := mk.Predict(machine.H200(), 1024, 1).Total
	for what, change := range map[string]func(m *machine.Machine){
		"bandwidth": func(m *machine.Machine) { *m = *m.At(4000e9) },
		"exchange": func(m *machine.Machine) {
			for i := range m.Exchanges {
				m.Exchanges[i].Wait.Median *= 2
			}
		},
		"reading": func(m *machine.Machine) {
			for i := range m.Exchanges {
				m.Exchanges[i].Read.Median *= 2
			}
		},
		"L2": func(m *machine.Machine) {
			for i := range m.Copies {
				m.Copies[i].Load.Median *= 4
			}
		},
		"arithmetic":     func(m *machine.Machine) { m.Drain.Chunk.Median *= 2 },
		"product's ends": func(m *machine.Machine) { m.Drain.Finish.Median *= 2 },
	} {
		m := machine.H200()
		change(m)
		require.Greater(t, mk.Predict(m, 1024, 1).Total, base, what)
	}
}

// The machine that is built in, with the ceiling of the GPU at hand, against what was
// measured: nothing is fitted. What lies between phases is left out, so all come out too
// fast, small layers most.
func TestPredictionsAreNearTheRecords(t *testing.T) {
	for _, name := range []string{"llama3-8b", "llama3.2-1b", "llama3.2-3b"} {
		records, err := filepath.Glob("../bench/results/h200/*-decode-" + name + ".json")
		require.NoError(t, err)
		require.NotEmpty(t, records)
		data, err := os.ReadFile(slices.Max(records)) // they begin with their dates
		require.NoError(t, err)
		var record struct {
			Cases []struct {
				Context int
				Micros  float64 `json:"device_us_per_token"`
				Ceiling float64 `json:"ceiling_gb_s"`
			}
		}
		require.NoError(t, json.Unmarshal(data, &record))
		require.NotEmpty(t, record.Cases)
		mk := build(t, name, Options{})
		for _, c := range record.Cases {
			p := mk.Predict(machine.H200().At(c.Ceiling*1e9), c.Context, 1)
			t.Logf("%s, context %d: %.1f µs predicted, %.1f measured: %+.1f %%", name, c.Context, p.Total*1e6, c.Micros,
				100*(p.Total*1e6/c.Micros-1))
			require.InEpsilon(t, c.Micros, p.Total*1e6, 0.075)
		}
	}
}

// Layers with a window read what they see: further tokens cost those without one only, and take none of their time.
func TestPredictionOfWindowsCountsWhatIsSeen(t *testing.T) {
	mk := build(t, "gemma-3-4b", Options{Splits: 22}) // five layers with a window of 1024, one without
	token := mk.KVTokenBytes() / 34
	require.EqualValues(t, 34*1023*token, mk.KVBytes(1023))
	require.EqualValues(t, (29*1023+5*6144)*token, mk.KVBytes(6144))
	sinks := build(t, "llama3-8b", Options{Attention: "window=100+sinks=4"})
	require.EqualValues(t, 103*sinks.KVTokenBytes(), sinks.KVBytes(1000))
	require.EqualValues(t, 103*sinks.KVTokenBytes(), sinks.KVBytes(103))
	require.EqualValues(t, 0, build(t, "llama3-8b", Options{Attention: "window=1"}).KVBytes(1000))

	m := machine.H200()
	within, behind := mk.Predict(m, 1024, 1), mk.Predict(m, 32768, 1)
	all := build(t, "gemma-3-4b", Options{Attention: "causal"}).Predict(m, 32768, 1)
	added := float64(5*(32768-1024)*token) / (m.Ceiling.Median * 1e9)
	require.InEpsilon(t, added, behind.Floor-within.Floor, 0.01)
	require.InEpsilon(t, 34./5, (all.Floor-within.Floor)/(behind.Floor-within.Floor), 0.01)
	require.Greater(t, behind.Total-within.Total, 0.8*added)
	require.Less(t, behind.Total-within.Total, 1.8*added, "88 of 132 SMs have a part of the cache")
	require.Greater(t, all.Total-behind.Total, 0.9*(all.Floor-behind.Floor))

	rows := build(t, "gemma-3-4b", Options{Tokens: 8})
	require.Less(t, rows.Predict(m, 32768, 8).Total,
		build(t, "gemma-3-4b", Options{Tokens: 8, Attention: "causal"}).Predict(m, 32768, 8).Total/2)
}

// The factors of formats against the shares of the ceiling of the runs that they were fitted to, at 1024 tokens on
// H200s; a prediction is of the H200 that is built in.
func TestPredictionsOfFormatsFollowTheirRuns(t *testing.T) {
	for _, c := range []struct {
		format pipeline.Format
		rows   int
		share  float64 // of docs/weight-formats.md and bench/results/h200
	}{
		{"e4m3", 1, 93.3}, {"e4m3", 8, 77.8}, {"e4m3b128", 1, 93.0}, {"e4m3b128", 8, 74.9}, {"i8", 1, 95.1}, {"i8", 8, 80.1},
		{"i4g128", 1, 89.4}, {"i4g128", 8, 71.0}, {"i4g128", 16, 62.2}, {"mxfp4", 1, 70.0},
		{"mxfp4", 16, 49.9}, {"nvfp4", 1, 71.3}, {"nvfp4", 16, 44.2},
	} {
		p := build(t, "llama3-8b", Options{Weights: c.format, Tokens: c.rows}).Predict(machine.H200(), 1024, c.rows)
		require.InDelta(t, c.share, 100*p.Floor/p.Total, 0.5, "%s, %d rows", c.format, c.rows)
	}
	p := build(t, "llama3-8b", Options{Weights: "i4g32", Vectors: string(SyncCounted)}).Predict(machine.H200(), 1024, 1)
	require.InDelta(t, 80.6, 100*p.Floor/p.Total, 0.5, "i4g32, whose run had gate_up's output behind a barrier")
	mixed := build(t, "llama3-8b", Options{Weights: "i4g128,down=i4g64"})
	require.Equal(t, " Consumers take for a chunk of i4g128 1.6 times as long as one of bf16, for a chunk of i4g64 as long as "+
		"one of bf16, which was not measured.", mixed.drainAssumed())
	require.Empty(t, build(t, "llama3-8b", Options{}).drainAssumed())
}
