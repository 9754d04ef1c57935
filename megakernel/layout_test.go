package megakernel

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

func readLayout(t *testing.T, mk *Kernel) Layout {
	t.Helper()
	files, err := mk.Files("sm_90a")
	require.NoError(t, err)
	l := Layout{Layout: &emit.Layout{}}
	for _, f := range files {
		if f.Name == LayoutFile {
			require.NoError(t, json.Unmarshal(f.Data, &l))
		}
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name)
	}
	require.ElementsMatch(t, names, l.Files)
	return l
}

// hashed delivers weights that depend on tensor, row and column.
type hashed struct{}

func (hashed) Row(tensor string, row int, dst []half.BF16) error {
	seed := uint32(row) * 2654435761
	for _, c := range tensor {
		seed = seed*31 + uint32(c)
	}
	for i := range dst {
		dst[i] = half.BF16((seed + uint32(i)*40503) >> 7)
	}
	return nil
}

// shaped are hashed tensors of a model.
type shaped struct {
	hashed
	models.Config
}

func TestLayoutIsEnoughToPackTheWeights(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	odd := c
	odd.Hidden, odd.Intermediate, odd.Vocab, odd.TieEmbeddings = 104, 200, 77, false
	formats := append(pipeline.Formats()[2:], "i4g32,qkv=i8,gate_up=nvfp4")
	for i, c := range []models.Config{c, odd, c, odd, c, odd, c, odd, c, odd, odd, odd, odd, odd, odd} {
		for _, sms := range deep.Most([]int{4, 1, 7}, 1) {
			o := Options{SMs: sms, StageBytes: 2048}
			if i > 5 {
				if sms == 1 {
					continue
				}
				o.Weights, o.StageBytes = formats[i-6], 4096
			} else if i > 3 {
				o.Weights = pipeline.FormatE4M3
			} else if i > 1 {
				o.MLP = MLPFused
			}
			mk, err := Build(c, o)
			require.NoError(t, err)
			if i <= 1 {
				interleave(t, mk, sms-1)
			}
			want := make([]byte, mk.Plan.PackedBytes)
			for l := range c.Layers {
				require.NoError(t, mk.PackLayer(want[int64(l)*mk.Plan.LayerBytes:][:mk.Plan.LayerBytes], l, shaped{Config: c}))
			}
			require.NoError(t, mk.PackLayer(want[int64(c.Layers)*mk.Plan.LayerBytes:], pipeline.FinalLayer, hashed{}))
			got := make([]byte, mk.Plan.PackedBytes)
			for _, e := range readLayout(t, mk).Packing {
				for l := range e.Layers {
					packByLayout(t, got, e, l, shaped{Config: c})
				}
			}
			require.Equal(t, want, got)
		}
	}
}

// A Go host reads the same words through the generated package, see package runtime's launcher test.
func TestLayoutHoldsTheTablesAndSaysWhatToFill(t *testing.T) {
	mk := build(t, "llama3-70b", Options{SMs: 132})
	l := readLayout(t, mk)
	require.Len(t, l.Tables, 3)
	require.Equal(t, emit.Table{Name: "ends", Type: "u32", Words: slices.Repeat(emit.Words{1<<32 - 1}, MaxEnds)},
		l.Tables[2])
	require.Equal(t, "plan", l.Tables[1].Name)
	require.Equal(t, mk.PlanTable(), []uint32(l.Tables[1].Words))
	for i, f := range mk.InvFreq() {
		require.Equal(t, f, math.Float32frombits(l.Tables[0].Words[i]))
	}
	require.Equal(t, []string{"kv", "act", "logits", "best", "best_index", "stop_requested", "progress"}, unfilled(t, mk))
	for _, f := range l.Params {
		if f.Pointer {
			require.Equal(t, f.Bytes == 0, f.Size != "" && f.PageBytes > 0, "how big is %s?", f.Name)
			if f.Name == "gains" {
				require.Len(t, f.Tensors, 2*mk.Config.Layers+1)
				require.Equal(t, "model.layers.79.post_attention_layernorm.weight", f.Tensors[159])
			}
		}
	}
}

// unfilled are the buffers that the layout does not tell to fill.
func unfilled(t *testing.T, mk *Kernel) (names []string) {
	for _, f := range readLayout(t, mk).Params {
		if f.Pointer && f.Fill == "" {
			names = append(names, f.Name)
		}
	}
	return names
}

// Of LL packets the first ones that are polled must carry none of a launch: the
// layout says of each such buffer that it is to be zeroed, and of what stands behind a
// barrier nothing.
func TestLayoutSaysWhichWordsToZero(t *testing.T) {
	for _, c := range []struct {
		queries Sync
		merge   Merging
		vectors string
		zeroed  []string
	}{
		{SyncWords, MergeWords, "barrier", []string{BufferStates, BufferQueryWords, BufferKVWords}},
		{SyncWords, MergeWords, "counted", []string{BufferStates, BufferQueryWords, BufferKVWords, "attn_words",
			"o_words", "down_words"}},
		{SyncWords, MergeWords, "all", []string{BufferStates, BufferQueryWords, BufferKVWords, "attn_words",
			"o_words", "act_words", "down_words"}},
		{SyncBarrier, MergeWords, "barrier", []string{BufferStates}},
		{SyncWords, MergePhase, "counted", []string{BufferQueryWords, BufferKVWords, "attn_words", "o_words", "down_words"}},
		{SyncBarrier, MergePhase, "barrier", nil},
	} {
		mk := build(t, "tiny", Options{SMs: 4, Queries: c.queries, Merge: c.merge, Vectors: c.vectors})
		require.Equal(t, c.zeroed, mk.Zeroed())
		left := unfilled(t, mk)
		for _, f := range readLayout(t, mk).Params {
			if slices.Contains(c.zeroed, f.Name) {
				require.True(t, strings.HasPrefix(f.Fill, "0, and again after a launch that was given up"), "%s: %s", f.Name,
					f.Fill)
			}
		}
		require.Equal(t, !slices.Contains(c.zeroed, BufferStates), slices.Contains(left, BufferStates))
		require.Equal(t, c.queries == SyncBarrier, slices.Contains(left, "q"))
	}
}

func TestLayoutNamesModelOptionsAndPhases(t *testing.T) {
	mk := build(t, "llama3-8b", Options{SMs: 114, Page: 64})
	l := readLayout(t, mk)
	require.Equal(t, layoutModel(&mk.Config), l.Model)
	require.Equal(t, Options{SMs: 114, Page: 64, Splits: 14, Stages: mk.Plan.Stages, StageBytes: mk.Plan.StageBytes,
		InFlight: mk.Plan.InFlight, Leads: pipeline.ThrottlesText(mk.Plan.Throttles), Held: 5,
		Unsplit: 256, Consumers: 8, Tokens: 1, KV: "bf16", Watchdog: WatchGrid,
		Queries: SyncWords, Vectors: string(SyncCounted), Merge: MergeWords}, l.Options)
	require.NotEqual(t, "none", l.Options.Leads)
	other := readLayout(t, build(t, "tiny", Options{SMs: 4, Tokens: 2, Leads: "none"})).Options
	require.Equal(t, []any{"none", SyncBarrier, "barrier", MergePhase},
		[]any{other.Leads, other.Queries, other.Vectors, other.Merge})
	drawn := readLayout(t, build(t, "tiny", Options{SMs: 4, Draws: true, Watchdog: WatchAll, Head: "i8"})).Options
	require.Equal(t, []any{true, WatchAll, pipeline.Format("i8")}, []any{drawn.Draws, drawn.Watchdog, drawn.Head})
	require.Equal(t, mk.Barriers(), l.Barriers)
	require.Len(t, l.Phases, len(mk.Phases))
	require.Equal(t, []string{"llama3_8b", "mkgen_step", "sm_90a"}, []string{l.Package, l.Kernel, l.Arch})
}

// The model in layout.json is itself a configuration file.
func TestLayoutsModelParsesBack(t *testing.T) {
	for _, c := range models.Checked() {
		m, err := json.Marshal(layoutModel(&c))
		require.NoError(t, err)
		var fields map[string]any
		require.NoError(t, json.Unmarshal(m, &fields))
		delete(fields, "name")
		fields["model_type"], fields["bos_token_id"], fields["eos_token_id"] = "llama", c.BOS, c.EOS
		text, err := json.Marshal(fields)
		require.NoError(t, err)
		back, err := models.Parse(strings.NewReader(string(text)))
		require.NoError(t, err)
		back.Name = c.Name
		require.Equal(t, c, back)
	}
}

func TestPackageNames(t *testing.T) {
	for model, want := range map[string]string{"llama3-8b": "llama3_8b", "llama3.2-1b": "llama3_2_1b", "tiny": "tiny",
		"7b": "model_7b", "main": "model_main", "init": "model_init", "func": "model_func", "_": "model__"} {
		require.Equal(t, want, packageName(model))
	}
}

func TestFilesOfAnUnknownArchitecture(t *testing.T) {
	_, err := build(t, "tiny", Options{}).Files("sm_80")
	require.ErrorContains(t, err, "sm_90a")
}
