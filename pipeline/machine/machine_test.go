package machine

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// byHand is a machine with few, round figures.
func byHand(t *testing.T) *Machine {
	m, err := ReadFile("testdata/by_hand.json")
	require.NoError(t, err)
	return m
}

func TestAMachineIsReadAsItWasWritten(t *testing.T) {
	m := H200()
	path := filepath.Join(t.TempDir(), "new", "m.json")
	require.NoError(t, m.WriteFile(path))
	got, err := ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, m, got)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(text), "}\n"))
	_, err = ReadFile(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestABrokenMachineIsRefused(t *testing.T) {
	text, err := json.Marshal(byHand(t))
	require.NoError(t, err)
	for _, c := range []struct{ old, new, want string }{
		{`{"format":1`, `{"speed":1,"format":1`, `unknown field "speed"`},
		{`{"format":1`, `{"format":2`, "format is 2, want 1"},
		{`"gpu":"NVIDIA H200"`, `"gpu":""`, "gpu is missing"},
		{`"date":"2026-11-21"`, `"date":"yesterday"`, `date is "yesterday", want one such as 2026-11-21`},
		{`"sms":132`, `"sms":0`, "sms is 0, want at least 1"},
		{`"ceiling_gb_s":{"median":4600,"min":4590`, `"ceiling_gb_s":{"median":4600,"min":0`,
			"ceiling_gb_s: min is 0 and median 4600, want all above 0"},
		{`"ceiling_gb_s":{"median":4600`, `"ceiling_gb_s":{"median":46000`,
			"ceiling_gb_s: min 4590, median 46000, max 4680, want them in this order"},
		{`"ceiling_gb_s":{"median":4600,"min":4590,"max":4680`, `"ceiling_gb_s":{"median":1e300,"min":4590,"max":1e300`,
			"ceiling_gb_s: min 4590, median 1e+300, max 1e+300, want none beyond 1e+09"},
		{`{"in_flight":1,"gb_s":{"median":3121,"min":3121`, `{"in_flight":1,"gb_s":{"median":-3121,"min":-3121`,
			"copies[0]: gb_s: min is -3121"},
		{`{"in_flight":2,"gb_s"`, `{"in_flight":1,"gb_s"`, "copies[1]: in_flight is 1, want ascending numbers from 1"},
		{`"in_flight":3,"vector_bytes":16384`, `"in_flight":3,"vector_bytes":0`,
			"exchanges[7]: in_flight is 3 and vector_bytes 0, want both from 0, ascending"},
		{`"vector_bytes":16384,"wait_us":{"median":1.1,"min":1.1`, `"vector_bytes":16384,"wait_us":{"median":1.1,"min":0`,
			"exchanges[1]: wait_us: min is 0 and median 1.1, want all above 0"},
		{`"read_us":{"median":0,"min":0,"max":0}`, `"read_us":{"median":1,"min":1,"max":1}`,
			"exchanges[0]: read_us is 1 of no vector, want 0"},
		{`"chunk_us":{"median":0.3,"min":0.3`, `"chunk_us":{"median":0.3,"min":-1`,
			"drain: chunk_us: min is -1 and median 0.3, want all above 0"},
	} {
		broken := strings.Replace(string(text), c.old, c.new, 1)
		require.NotEqual(t, string(text), broken, c.old)
		_, err := Parse([]byte(broken))
		require.ErrorContains(t, err, c.want)
		require.NotContains(t, err.Error(), "\n")
	}
	_, err = Parse(append(text, "{}"...))
	require.EqualError(t, err, "something follows the object")
	m := byHand(t)
	m.Copies = nil
	require.EqualError(t, m.Check(), "copies is empty, want figures of one number of copies in flight at least")
	m = byHand(t)
	m.Exchanges = m.Exchanges[:3]
	require.EqualError(t, m.Check(),
		"exchanges: want some with nothing in flight (in_flight 0) and some with copies in flight")
	one := Figure{Median: 1, Min: 1, Max: 1}
	m = byHand(t)
	m.Exchanges[0].Counted = &Way{Took: one}
	require.EqualError(t, m.Check(), "exchanges[0]: counted of no vector, want it with one")
	m = byHand(t)
	m.Exchanges[1].Words = &Way{}
	require.EqualError(t, m.Check(), "exchanges[1]: words: took_us: min is 0 and median 0, want all above 0")
	m.Exchanges[1].Words = &Way{Took: one, Unhidden: &one}
	require.EqualError(t, m.Check(),
		"exchanges[1]: words: unhidden_us with nothing in flight, want it beside a stream only")
	m.Exchanges[1].Words = &Way{Took: one}
	last := len(m.Exchanges) - 1
	m.Exchanges[last].Words = &Way{Took: one, Unhidden: &Figure{Median: 1, Min: 2, Max: 3}}
	require.EqualError(t, m.Check(),
		fmt.Sprintf("exchanges[%d]: words: unhidden_us: min 2, median 1, max 3, want them in this order", last))
	m.Exchanges[last].Words.Unhidden = &one
	require.NoError(t, m.Check())
	m = byHand(t)
	m.Idle.Load.Median = math.NaN()
	path := filepath.Join(t.TempDir(), "m.json")
	require.ErrorContains(t, m.WriteFile(path), "no machine is written: idle: load_us: min ")
	require.NoFileExists(t, path)
}

func TestMachineFilesOfAnyFormatAreKnown(t *testing.T) {
	require.NoError(t, CheckFile(h200))
	require.NoError(t, CheckFile([]byte(`{"format": 0, "copies": []}`)))
	require.EqualError(t, CheckFile([]byte(`{"format": 1}`)),
		"it has no field copies, want a machine file of mkgen calibrate")
}

func TestAnotherGPUIsRefused(t *testing.T) {
	require.NoError(t, H200().Is("NVIDIA H200"))
	require.EqualError(t, H200().Is("NVIDIA H100 PCIe"),
		"it is of NVIDIA H200, this one is NVIDIA H100 PCIe; mkgen calibrate measures it")
}

// By what is in flight on all SMs together: linear to the first measured point, measured
// from there, never over the ceiling.
func TestBandwidthFollowsWhatIsInFlight(t *testing.T) {
	m := byHand(t)
	for _, c := range []struct {
		sms    int
		copies float64
		gbps   float64
	}{{132, 1, 3121}, {132, 0.5, 3121 / 2.}, {1, 1, 3121 / 132.}, {66, 2, 3121}, {132, 2, 4265},
		{132, 2.5, (4265 + 4509) / 2.}, {132, 12, 4571}, {132, 32, 4571}, {264, 6, 4571}} {
		require.InEpsilon(t, c.gbps*1e9, m.BytesPerSecond(c.sms, int64(c.copies*16384)), 1e-9, "%+v", c)
	}
	m.Ceiling.Median = 4500
	require.Equal(t, 4500e9, m.BytesPerSecond(132, 12*16384))
	require.InEpsilon(t, 132*16384/3121e9, m.CopySeconds(), 1e-9)
}

// Between the vectors and the copies measured, flat beyond; none without figures.
func TestWaysOfAVectorAreThoseMeasuredAndBetween(t *testing.T) {
	m := byHand(t)
	_, _, known := m.VectorSeconds("words", 8192, 3*16384)
	require.False(t, known)
	us := func(median, spread float64) *Figure { // not in the middle of its spread
		return &Figure{Median: median, Min: median - spread/2, Max: median + 3*spread/2}
	}
	m.Exchanges = []Exchange{{VectorBytes: 8192, Words: &Way{Unhidden: us(99, 9)}},
		{InFlight: 2, VectorBytes: 8192, Words: &Way{Unhidden: us(1, 5)}},
		{InFlight: 2, VectorBytes: 16384, Unhidden: us(7, 3), Words: &Way{Unhidden: us(2, 1)}},
		{InFlight: 4, Unhidden: us(50, 9)}, {InFlight: 4, VectorBytes: 8192, Words: &Way{Unhidden: us(3, 0.5)}},
		{InFlight: 4, VectorBytes: 16384, Words: &Way{Unhidden: us(6, 8)}}}
	for _, c := range []struct {
		bytes, copies int
		us, spread    float64
	}{{8192, 2, 1, 5}, {12288, 2, 1.5, 3}, {4096, 2, 1, 5}, {1 << 20, 2, 2, 1}, {8192, 3, 2, 2.75}, {16384, 3, 4, 4.5},
		{16384, 9, 6, 8}} {
		got, spread, known := m.VectorSeconds("words", c.bytes, int64(c.copies)*16384)
		require.True(t, known)
		require.InDelta(t, c.us*1e-6, got, 1e-15, "%+v", c)
		require.InDelta(t, c.spread*1e-6, spread, 1e-15, "%+v", c)
	}
	got, _, known := m.VectorSeconds("barrier", 16384, 2*16384)
	require.True(t, known)
	require.InDelta(t, 7e-6, got, 1e-15)
	_, _, known = m.VectorSeconds("counted", 16384, 2*16384)
	require.False(t, known)
}

// Another bandwidth changes no latency: what one SM alone streams stays the same, and
// twice the bandwidth takes twice the bytes in flight.
func TestAnotherBandwidthHasTheSameLatencies(t *testing.T) {
	m := byHand(t)
	twice := m.At(9200e9)
	require.Equal(t, 9200.0, twice.Ceiling.Median)
	require.InEpsilon(t, m.BytesPerSecond(1, 16384), twice.BytesPerSecond(1, 16384), 1e-9)
	require.InEpsilon(t, 2*4509e9, twice.BytesPerSecond(132, 6*16384), 1e-9)
	require.InEpsilon(t, m.BytesPerSecond(132, 3*16384), twice.At(4600e9).BytesPerSecond(132, 3*16384), 1e-9)
	require.Equal(t, m.LoadSeconds(1), twice.LoadSeconds(1))
	require.NoError(t, twice.Check())
	require.Contains(t, twice.About(), "memory of another bandwidth")
}

func TestLatenciesAreThoseMeasuredAndBetween(t *testing.T) {
	m := byHand(t)
	require.InDelta(t, 0.158e-6, m.LoadSeconds(0), 1e-12)
	require.InDelta(t, 0.285e-6, m.LoadSeconds(3*16384), 1e-12)
	require.InDelta(t, (0.217e-6+0.285e-6)/2, m.LoadSeconds(2*16384+8192), 1e-12)
	require.InDelta(t, 1.1e-6, m.WaitSeconds(0), 1e-12)
	require.InDelta(t, 1.99e-6, m.WaitSeconds(3*16384), 1e-12)
	require.InDelta(t, 1.51e-6, m.WaitSeconds(1), 1e-12, "fewer than measured")
	require.Zero(t, m.ReadSeconds(3*16384, 0))
	require.InDelta(t, 0.35e-6, m.ReadSeconds(0, 8192), 1e-12)
	require.InDelta(t, 1.7e-6, m.ReadSeconds(0, 57344), 1e-12)
	require.InDelta(t, 3.4e-6, m.ReadSeconds(0, 2*57344), 1e-12, "longer than measured")
	require.InDelta(t, 0.15e-6, m.DrainSeconds(8192), 1e-12)
	require.InDelta(t, 0.6e-6, m.FinishSeconds(), 1e-12)
}
