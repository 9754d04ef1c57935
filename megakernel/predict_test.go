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

// The factors of formats against the runs that they were fitted to, of llama3-8b at 1024 tokens on H200s: shares of
// each run's own ceiling are within 1 %. i4g128-f16, whose factor is its base's, is held against its own runs.
func TestPredictionsOfFormatsFollowTheirRuns(t *testing.T) {
	// What i4g128 takes since, on another H200, of what it took in the ablations, which read inputs by slower addresses.
	rows8, rows16 := 74.4*4610/(70.2*4716), 65.7*4610/(63.4*4678)
	for _, c := range []struct {
		format         pipeline.Format
		rows           int
		share, ceiling float64 // % of GB/s, of bench/results/h200
	}{
		{"e4m3", 1, 93.3, 4608}, {"e4m3b128", 1, 93.0, 4612}, {"i8", 1, 95.0, 4711}, // 29 November
		{"e4m3b128", 8, 74.9, 4610}, // 25 November

		// 30 November: figures of formats and rows, and the records of i4g128 and mxfp4
		{"i4g128", 1, 89.4, 4705}, {"i4g64", 1, 89.2, 4714}, {"i4g32", 1, 88.7, 4712}, {"i4", 1, 86.8, 4707},
		{"i4g128-zeros", 1, 88.2 * .983, 4712}, {"i4g128-f16", 1, 89.4, 4694}, {"i8g128", 1, 95.1, 4699},
		{"mxfp4", 1, 71.0, 4614}, {"i4g128", 8, 74.4, 4610}, {"i4g128", 16, 65.7, 4610}, {"e4m3b128", 16, 70.3, 4609},

		// its runs of what bounds several rows
		{"e4m3", 8, 78.6, 4715}, {"e4m3", 16, 77.1, 4713}, {"i8", 8, 82.1, 4715}, {"i8", 16, 73.7, 4702},

		// its ablations of 4 bits. Shares of mxfp4, whose scales took two bytes, and of zero points were of what is packed:
		// times what the format has of it
		{"i4g128", 1, 88.7, 4713}, {"nvfp4", 1, 70.9, 4713},
		{"i4g64", 8, 70.3 * rows8, 4716}, {"i4g32", 8, 68.2 * rows8, 4716},
		{"i4", 8, 67.2 * rows8, 4716}, {"i4g128-zeros", 8, 69.1 * rows8 * .986, 4716}, {"i4g128-f16", 8, 70.4 * rows8, 4716},
		{"mxfp4", 8, 58.3 * rows8 * .964, 4716}, {"nvfp4", 8, 54.2 * rows8, 4716},
		{"i4g64", 16, 61.9 * rows16, 4678}, {"i4g32", 16, 59.5 * rows16, 4678},
		{"i4", 16, 59.9 * rows16, 4678}, {"i4g128-zeros", 16, 63.3 * rows16 * .988, 4678},
		{"i4g128-f16", 16, 63.6 * rows16, 4678},
		{"mxfp4", 16, 56.2 * rows16 * .969, 4678}, {"nvfp4", 16, 50.4 * rows16, 4678},
	} {
		mk := build(t, "llama3-8b", Options{Weights: c.format, Tokens: c.rows})
		p := mk.Predict(machine.H200().At(c.ceiling*1e9), 1024, c.rows)
		t.Logf("%s, %d rows: %.1f %% predicted, %.1f measured", c.format, c.rows, 100*p.Floor/p.Total, c.share)
		require.InEpsilon(t, c.share, 100*p.Floor/p.Total, 0.01, "%s, %d rows", c.format, c.rows)
	}
}

// Every format but bf16 has a factor with every number of rows, its own or a neighbour's, which is above 1 and grows.
func TestEveryFormatHasADrainFactor(t *testing.T) {
	for _, f := range append(pipeline.Formats(), pipeline.OwnFormats()...) {
		for column := range 3 {
			if f == pipeline.FormatBF16 {
				continue
			}
			times, of := drainFactor(f, column)
			require.Greater(t, times, 1., f)
			for _, from := range of {
				require.NotContains(t, from, "-f16", f)
				measured := drainFactors[pipeline.Format(from)]
				require.Greater(t, measured[column], 0., "%s of %s", f, from)
			}
			if i := column - 1; column > 0 {
				fewer, _ := drainFactor(f, i)
				require.Greater(t, times, fewer, f)
			}
		}
	}
	for f, want := range map[pipeline.Format][]string{"i4g128": {"i4g128"}, "i4g128-f16": {"i4g128"},
		"i4g128-zeros-f16": {"i4g128", "i4g128-zeros"}, "i4g32-zeros": {"i4g32", "i4g128-zeros"}, "i8g32-f16": {"i8g128"}} {
		_, of := drainFactor(f, 0)
		require.Equal(t, want, of, f)
	}
	_, of := drainFactor("i8g64-zeros", 2)
	require.Equal(t, []string{"i8", "i4g128-zeros"}, of)
	zeros, _ := drainFactor("i4g128-zeros-f16", 0)
	require.InEpsilon(t, drainFactors["i4g128-zeros"][0], zeros, 1e-12)
}

// What a prediction took for formats is said, and of which measurement it is.
func TestPredictionsNameTheFactorsThatTheyTook(t *testing.T) {
	mixed := build(t, "llama3-8b", Options{Weights: "i4g128,down=i4g64-zeros"})
	require.Equal(t, " Consumers take for a chunk of i4g128 1.5 times as long as one of bf16, for a chunk of i4g64-zeros "+
		"1.8 times as long as one of bf16, not measured but by i4g64 and i4g128-zeros.", mixed.drainAssumed())
	require.Empty(t, build(t, "llama3-8b", Options{}).drainAssumed())
}
