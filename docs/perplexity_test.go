package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/lab/perplexity"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/bundled"
	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/quant"
	"github.com/mkgen/mkgen/models/quantise"
	"github.com/mkgen/mkgen/models/tokenizer"
	"github.com/stretchr/testify/require"
)

// tale is the text of the rows that are checked.
const tale = "../lab/perplexity/testdata/tale.txt"

// weights are a checkpoint's, quantised or not.
type weights interface {
	perplexity.Tensors
	Config() models.Config
	Close() error
}

// inFormat opens a bundled model in a format as mkgen quantize --text reads it. Where none of that format is bundled,
// the model is quantised first, as mkgen quantize does.
func inFormat(t *testing.T, name, format string) weights {
	t.Helper()
	dir := filepath.Join("../models/bundled", name)
	if format == "bf16" {
		c, err := checkpoint.Open(dir)
		require.NoError(t, err)
		return c
	}
	if files, ok := bundled.Files(name + "-" + format); ok {
		q, err := quant.OpenModelFS(files)
		require.NoError(t, err)
		return q
	}
	f, err := quantise.Parse(format)
	require.NoError(t, err)
	out := filepath.Join(t.TempDir(), "out")
	_, err = quantise.Checkpoint(t.Context(), dir, out, quantise.Options{Format: f})
	require.NoError(t, err)
	q, err := quant.OpenModel(out, models.Reading{})
	require.NoError(t, err)
	return q
}

// ofTale measures the perplexity of the tale.
func ofTale(t *testing.T, name, format string) perplexity.Result {
	t.Helper()
	text, err := os.ReadFile(tale)
	require.NoError(t, err)
	tok, err := tokenizer.Open(filepath.Join("../models/bundled", name))
	require.NoError(t, err)
	w := inFormat(t, name, format)
	defer w.Close()
	windows, err := perplexity.Cut(w.Config(), tok, string(text))
	require.NoError(t, err)
	r, err := perplexity.Measure(t.Context(), w.Config(), w, windows, nil)
	require.NoError(t, err)
	return r
}

// transformers is what testdata/make_tale.py computed of a model, by format.
type transformers struct {
	Tokens     int
	Perplexity map[string]float64
}

// What formats cost, as weight-formats.md has it for our tale, is to its last digit what is measured, and what
// transformers computes in float64 of the weights that compressed-tensors reads. Without -deep tiny is measured in bf16
// and in two formats. That small is worse in 8 bits than in bf16 is not asked: so short a text does not show it.
func TestPerplexitiesOfTheTaleAreMeasured(t *testing.T) {
	quick := map[string]bool{"tiny bf16": true, "tiny i8": true, "tiny i4g32": true}
	data, err := os.ReadFile("../lab/perplexity/testdata/tale.json")
	require.NoError(t, err)
	var golden map[string]transformers
	require.NoError(t, json.Unmarshal(data, &golden))
	found := map[string]float64{}
	rows(t, "weight-formats.md", func(line int, row map[string]string) {
		name, text, _ := strings.Cut(row["model, text"], ", ")
		if name = strings.Trim(name, "`"); !strings.Contains(text, "("+tale+")") {
			return
		}
		want := golden[name]
		require.True(t, strings.HasSuffix(text, fmt.Sprintf(", %d tokens", want.Tokens)), "weight-formats.md:%d", line)
		for format, p := range want.Perplexity {
			at := fmt.Sprintf("weight-formats.md:%d, %s", line, format)
			require.Regexp(t, `^\d\.\d{4}$`, row[format], at)
			if c := name + " " + format; deep.On() || quick[c] {
				r := ofTale(t, name, format)
				require.Equal(t, want.Tokens, r.Tokens)
				require.InEpsilon(t, p, r.Perplexity(), 1e-6, at)
				found[c], p = r.Perplexity(), r.Perplexity()
			}
			require.True(t, is(row[format], p), "%s: found %s, want %.4f", at, row[format], p)
		}
		delete(golden, name)
	})
	require.Empty(t, golden, "weight-formats.md has no row of these")
	require.Less(t, found["tiny bf16"], found["tiny i8"])
	require.Less(t, found["tiny i8"], found["tiny i4g32"])
	for _, four := range []string{"i4g32", "i4g64", "i4g128"} {
		for _, more := range []string{"bf16", "i8", "e4m3"} {
			require.True(t, !deep.On() || found["small "+more] < found["small "+four], "small in %s and %s", more, four)
		}
	}
}
