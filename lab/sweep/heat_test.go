package sweep_test

import (
	"encoding/xml"
	"errors"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/sweep"
	"github.com/stretchr/testify/require"
)

// The picture of a record that was made by hand, byte for byte. -update writes it.
func TestThePictureIsTheGolden(t *testing.T) {
	for name, r := range map[string]*sweep.Record{"ungated": sample(), "gated": gated()} {
		picture, err := sweep.SVG(r)
		require.NoError(t, err)
		golden(t, name+".svg", picture)
		again, err := sweep.SVG(r)
		require.NoError(t, err)
		require.Equal(t, picture, again)
		require.True(t, bench.IsPlot(picture[:128]), "another is written over it")
		d := xml.NewDecoder(strings.NewReader(string(picture)))
		for err == nil {
			_, err = d.Token()
		}
		require.ErrorIs(t, err, io.EOF, "it is XML")
	}
}

func TestThePictureSaysEverything(t *testing.T) {
	picture, err := sweep.SVG(sample())
	require.NoError(t, err)
	for _, want := range []string{"llama3.2-1b: share of the streaming ceiling", "NVIDIA H200", "2026-11-25",
		"commit 0123456789ab", ">UNGATED<", ">79.1 %<", ">678.5 µs a step<", ">677.8<", ">681.2<", ">687.3<", ">32768<",
		">16<", ">16 rows<", ">not measured yet<", ">does not fit<", ">takes 99.5 GB of<", ">failed<", ">≤ 50 %<", ">100 %<",
		"ceiling 4610 GB/s"} {
		require.True(t, strings.Contains(string(picture), want), want)
	}
	picture, err = sweep.SVG(gated())
	require.NoError(t, err)
	require.Contains(t, string(picture), ">gate passed<")
	require.NotContains(t, string(picture), "UNGATED")
}

// No line at the left goes beyond the picture, with letters as wide as DejaVu's, in the
// narrowest picture there is (860 pixels).
func TestTheHeadOfThePictureFits(t *testing.T) {
	r := sample()
	r.Weights, r.Driver = "random, seed 1, hash "+strings.Repeat("0123456789abcdef", 4), "580.159.04"
	for i := range r.Cells {
		if c := r.Cells[i].Case; c != nil {
			c.Weights = r.Weights
		}
	}
	picture, err := sweep.SVG(r)
	require.NoError(t, err)
	lines := regexp.MustCompile(`<text x="28.0" y="[\d.]+" font-size="(\d+)"[^>]*>([^<]*)<`).
		FindAllStringSubmatch(string(picture), -1)
	require.Equal(t, "bf16 weights, random, seed 1, hash 0123456789ab  ·  7 rounds of 128 tokens  ·  ceiling 4610 GB/s",
		lines[2][2])
	for _, line := range lines {
		size, err := strconv.ParseFloat(line[1], 64)
		require.NoError(t, err)
		// at its longest, as it is drawn
		text := strings.ReplaceAll(strings.Replace(line[2], "4610 GB", "4590 to 4610 GB", 1), "  ", " ")
		require.Less(t, 28+0.55*size*float64(utf8.RuneCountInString(text)), 860.0, text)
	}
}

func TestTextOfARecordIsNoMarkup(t *testing.T) {
	r := sample()
	r.GPU, r.Cells[24].Why = `<b>"GPU"&`, "</text><script>"
	picture, err := sweep.SVG(r)
	require.NoError(t, err)
	require.NotContains(t, string(picture), "<b>")
	require.NotContains(t, string(picture), "<script>")
}

func TestThereIsNoPictureOfTheExecutorOrOfABrokenRecord(t *testing.T) {
	r := sample()
	r.GPU = "executor"
	_, err := sweep.SVG(r)
	require.EqualError(t, err, "plot: the sweep is of the executor, whose times are none of a GPU")
	r = sample()
	r.Cells = nil
	require.Error(t, sweep.WriteSVG(filepath.Join(t.TempDir(), "p.svg"), r))
	require.False(t, errors.Is(err, sweep.ErrUngated))
}
