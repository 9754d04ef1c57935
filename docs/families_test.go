package docs

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tests/families"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the table of families.md")

// traitsOf lists what an architecture has beyond Llama 3's.
func traitsOf(a *models.Arch) (traits []string) {
	has := func(on bool, trait string) {
		if on && !slices.Contains(traits, trait) {
			traits = append(traits, trait)
		}
	}
	has(a.Embed.Scale != 1, "scaled embedding")
	for i := range a.Kinds {
		l := &a.Kinds[i]
		has(l.Attn.QKVBias && !l.Attn.OBias, "biases of q, k, v")
		has(l.Attn.QKVBias && l.Attn.OBias, "biases of q, k, v, o")
		has(l.MLP.Bias, "biases of the MLP")
		has(l.Attn.QKNorm.Kind != models.NoNorm && !l.Attn.QKNormWide, "norms of q and k by head")
		has(l.Attn.QKNormWide, "norms of all of q and of k")
		has(l.Attn.QKNorm.PlusOne || a.Final.PlusOne, "norms by 1 + w")
		has(l.PreAttn.Kind == models.NoNorm, "norms behind the branches alone")
		has(l.PreAttn.Kind != models.NoNorm && l.PostAttn.Kind != models.NoNorm, "norms around the branches")
		has(l.MLP.Act == models.GELUTanh, "GeGLU")
		has(l.Attn.Window > 0 && len(a.Kinds) == 1, "window")
		has(l.Attn.Window > 0 && len(a.Kinds) > 1, "windows in some layers")
		has(l.Attn.SoftCap > 0, "soft cap of scores")
		has(l.Attn.Scale != models.PlainScale(l.Attn.HeadDim), "another scale of scores")
		has(l.Attn.Grows.Every > 0, "scores that grow with the position")
		has(l.Attn.Rope.Dims == 0, "layers without RoPE")
		has(l.Attn.Rope.Dims > 0 && l.Attn.Rope.Dims < l.Attn.HeadDim, "partial RoPE")
		has(l.Attn.Rope.Interleaved, "interleaved RoPE")
		has(l.Attn.Rope.Theta != a.Kinds[0].Attn.Rope.Theta && l.Attn.Rope.Dims > 0 && a.Kinds[0].Attn.Rope.Dims > 0,
			"RoPE bases by layer")
		if s := l.Attn.Rope.Scaling; s != nil && s.Type != models.ScalingLlama3 {
			has(true, string(s.Type)+" scaling")
		}
		has(l.Residual != 1, "scaled residuals")
	}
	has(a.Head.Scale != 1, "scaled logits")
	has(a.Head.SoftCap > 0, "soft cap of logits")
	return traits
}

// familyTable is the table of families.md: what the goldens of a family have, and what of it the kernel lacks.
func familyTable(t *testing.T) string {
	all, err := families.All()
	require.NoError(t, err)
	traits, missing := map[string][]string{}, map[string][]string{}
	for _, c := range all {
		config, err := c.Config(nil)
		require.NoError(t, err)
		a := config.Arch()
		traits[config.Family] = append(traits[config.Family], traitsOf(&a)...)
		if len(config.Skipped) > 0 {
			traits[config.Family] = append(traits[config.Family], "layers that text passes by")
		}
		missing[config.Family] = append(missing[config.Family], megakernel.Supports(&a)...)
	}
	unique := func(list []string) string {
		slices.Sort(list)
		return strings.Join(slices.Compact(list), ", ")
	}
	var b strings.Builder
	b.WriteString("| family | `model_type` | beyond Llama 3, where a config.json asks for it | the kernel lacks |\n|---|---|---|---|\n")
	for _, f := range models.Families() {
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", f.Title, f.Name, unique(traits[f.Name]), unique(missing[f.Name]))
	}
	return b.String()
}

// formatTable is the table of families.md of which kernels each family has: those that are built, of a model as wide as
// all formats want.
func formatTable(t *testing.T) string {
	all, err := families.All()
	require.NoError(t, err)
	columns := []megakernel.Options{{}, {Weights: pipeline.FormatE4M3}, {Weights: pipeline.FormatE4M3B128},
		{Weights: pipeline.FormatI8}, {Weights: pipeline.FormatI4}, {Weights: pipeline.FormatI4G128},
		{Weights: pipeline.FormatMXFP4}, {Weights: pipeline.FormatNVFP4}, {KV: attention.KVE4M3}}
	var b strings.Builder
	b.WriteString("| family | `bf16` | `e4m3` | `e4m3b128` | `i8` | `i4` | `i4g32` to `i4g128` | `mxfp4` | `nvfp4` | `--kv e4m3` | `--draws` | `--prefill` |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, f := range models.Families() {
		i := slices.IndexFunc(all, func(c families.Case) bool {
			config, err := c.Config(nil)
			return err == nil && config.Family == f.Name
		})
		config, err := all[i].Config(nil)
		require.NoError(t, err)
		config.Hidden, config.Intermediate = 128, 256
		fmt.Fprintf(&b, "| %s |", f.Title)
		for _, o := range columns {
			fmt.Fprintf(&b, " %s |", rowsOf(config, o))
		}
		fmt.Fprintf(&b, " %s | %s |\n", rowsOf(config, drawing()...), prefillFormats(t, all, f.Name))
	}
	return b.String()
}

// drawing are kernels that draw tokens in every format of weights, or in the first ones.
func drawing() (all []megakernel.Options) {
	for _, f := range deep.Most(pipeline.Formats(), 2) {
		all = append(all, megakernel.Options{Weights: f, Draws: true})
	}
	return all
}

// rowsOf is the fewest and the most rows of a step of which kernels with each of the options are built.
func rowsOf(config models.Config, with ...megakernel.Options) string {
	var rows []string
	for _, n := range []int{1, 16} {
		if !slices.ContainsFunc(with, func(o megakernel.Options) bool {
			o.Tokens, o.SMs = n, 2
			_, err := megakernel.Build(config, o)
			return err != nil
		}) {
			rows = append(rows, fmt.Sprint(n))
		}
	}
	return strings.Join(rows, " to ")
}

// prefillFormats names the formats of weights that prefill kernels of a family have, of a model that asks for as little
// as one of its cases does: all of them, or the first ones.
func prefillFormats(t *testing.T, all []families.Case, family string) string {
	var most []string
	for _, c := range all {
		config, err := c.Config(nil)
		require.NoError(t, err)
		if config.Family != family {
			continue
		}
		config.Hidden, config.Intermediate = 128, 256
		var names []string
		formats := deep.Most(pipeline.Formats(), 2)
		for _, f := range formats {
			mk, err := megakernel.Build(config, megakernel.Options{SMs: 2, Weights: f})
			require.NoError(t, err)
			if _, err := megakernel.BuildPrefill(mk, megakernel.PrefillOptions{Tokens: 64}); err != nil {
				break
			}
			names = append(names, fmt.Sprintf("`%s`", f))
		}
		if len(names) == len(formats) {
			return "all formats"
		} else if len(names) > len(most) {
			most = names
		}
	}
	return strings.Join(most, ", ")
}

func TestFamiliesListsWhatTheTreeHas(t *testing.T) {
	tableIs(t, "<!-- families -->\n", "<!-- end of families -->\n", familyTable(t))
	tableIs(t, "<!-- formats -->\n", "<!-- end of formats -->\n", formatTable(t))
}

// tableIs compares what stands between two lines of families.md.
func tableIs(t *testing.T, begin, end, want string) {
	const page = "families.md"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	head, rest, ok := strings.Cut(string(text), begin)
	require.True(t, ok)
	table, tail, ok := strings.Cut(rest, end)
	require.True(t, ok)
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(head+begin+want+end+tail), 0o600))
		return
	}
	require.Equal(t, want, table, "go test ./docs -run Families -update rewrites it")
}
