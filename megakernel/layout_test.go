package megakernel

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/models"
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

func (hashed) Row(tensor string, row int, dst []uint16) error {
	seed := uint32(row) * 2654435761
	for _, c := range tensor {
		seed = seed*31 + uint32(c)
	}
	for i := range dst {
		dst[i] = uint16((seed + uint32(i)*40503) >> 7)
	}
	return nil
}

// packByLayout packs one matrix of one layer with nothing but what layout.json
// says.
func packByLayout(t *testing.T, dst []byte, e emit.PackEntry, layer int, w Tensors) {
	t.Helper()
	require.True(t, strings.Contains(e.Order, "(k/32)*512 + r*64 + ((k%32/8) xor (r/2))*16 + (k%8)*2") || strings.Contains(e.Order, "columns of all rows") || strings.HasPrefix(e.Order, "e4m3, scaled by") || isInteger(e.Order))
	covered := 0
	row := make([]uint16, e.K)
	for _, run := range e.Sources {
		for i := range run.Count {
			r := run.Row + i*run.RowStep
			tensor := strings.ReplaceAll(run.Tensor, "%d", fmt.Sprint(layer))
			require.NoError(t, w.Row(tensor, run.Source+i*run.SourceStep, row))
			if strings.Contains(e.Order, "columns of all rows") {
				byColumns(dst, e, layer, r, row)
				covered++
				continue
			}
			if strings.Contains(e.Order, "scaled by blocks") {
				blocksByLayout(t, dst, e, layer, r, blockOf{w, tensor, run.Source + i*run.SourceStep}, row)
				covered++
				continue
			}
			if strings.HasPrefix(e.Order, "e4m3") {
				codesByLayout(dst, e, layer, r, row)
				covered++
				continue
			}
			if isInteger(e.Order) {
				integersByLayout(t, dst[e.Base+int64(layer)*e.LayerStride:], e, r, row)
				covered++
				continue
			}
			tile, in := r/e.TileRows, r%e.TileRows
			at := e.Base + int64(layer)*e.LayerStride + int64(tile*16*e.KPadded)
			for k, v := range row {
				binary.LittleEndian.PutUint16(dst[at+int64(k/32*512+in*64+(k%32/8^in/2)*16+k%8*2):], v)
			}
			covered++
		}
	}
	require.Equal(t, e.Rows, covered)
}

// isInteger is whether a matrix is multiplied in integers.
func isInteger(order string) bool {
	return strings.Contains(order, "bits, two's complement") || strings.Contains(order, "bits, e2m1")
}

// blockOf is the rows of a tensor beside one.
type blockOf struct {
	Tensors
	tensor string
	row    int
}

// rows is how many the tensors of the model of TestLayoutIsEnoughToPackTheWeights have.
func (b blockOf) rows() int {
	for _, s := range b.Tensors.(shaped).Stored() {
		if s.Name == b.tensor {
			return s.Shape[0]
		}
	}
	panic(b.tensor)
}

// shaped are hashed tensors of a model.
type shaped struct {
	hashed
	models.Config
}

// blocksByLayout writes a row of e4m3 with blocks.
func blocksByLayout(t *testing.T, dst []byte, e emit.PackEntry, layer, r int, of blockOf, row []uint16) {
	value := func(v uint16) float32 { return math.Float32frombits(uint32(v) << 16) }
	most := make([]float32, e.K/128+1)
	other := make([]uint16, len(row))
	for i := of.row / 128 * 128; i < min(of.row/128*128+128, of.rows()); i++ {
		require.NoError(t, of.Row(of.tensor, i, other))
		for k, v := range other {
			if x := value(v & 0x7fff); !math.IsInf(float64(x), 0) && x == x {
				most[k/128] = max(most[k/128], x)
			}
		}
	}
	in := r % e.TileRows
	to := dst[e.Base+int64(layer)*e.LayerStride+int64(r/e.TileRows*(e.KPadded/256*2064)):]
	for k, v := range row {
		scale, at := pipeline.E4M3Scale(most[k/128]), k/256*2064
		to[at+k%256/64*512+in*64+(k%32/8^in/2)*16+k%64/32*8+k%8] = pipeline.ToE4M3(value(v) / scale)
		binary.LittleEndian.PutUint32(to[at+2048+in%2*8+k%256/128*4:], math.Float32bits(scale))
	}
}

// codesByLayout writes a row of e4m3.
func codesByLayout(dst []byte, e emit.PackEntry, layer, r int, row []uint16) {
	tile, in, most := r/e.TileRows, r%e.TileRows, float32(0)
	value := func(v uint16) float32 { return math.Float32frombits(uint32(v) << 16) }
	for _, v := range row {
		if x := value(v & 0x7fff); !math.IsInf(float64(x), 0) && x == x {
			most = max(most, x)
		}
	}
	scale := pipeline.E4M3Scale(most)
	to := dst[e.Base+int64(layer)*e.LayerStride+int64(tile*(8*e.KPadded+512)):]
	for k, v := range row {
		to[k/64*512+in*64+(k%32/8^in/2)*16+k%64/32*8+k%8] = pipeline.ToE4M3(value(v) / scale)
	}
	binary.LittleEndian.PutUint32(to[8*e.KPadded+4*in:], math.Float32bits(scale))
}

// integersByLayout writes a row of 4 or 8 bits, to where the matrix begins, by the numbers in Order and the rule of docs/weight-formats.md.
func integersByLayout(t *testing.T, dst []byte, e emit.PackEntry, r int, row []uint16) {
	number := func(form string) (n int) {
		m := regexp.MustCompile(form).FindStringSubmatch(e.Order)
		require.NotNil(t, m, "%s in %s", form, e.Order)
		n, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		return n
	}
	columns, runBytes, bits, group := number(`runs of (\d+) columns`), number(`columns, of (\d+) bytes`), number(`^(\d) bits`), e.KPadded
	tile := e.KPadded / columns * runBytes
	whole := strings.Contains(e.Order, "the f32 scale")
	if whole {
		tile += number(`KPadded\*[48] \+ (\d+) bytes on`)
	} else {
		group = number(`group g, of (\d+) columns`)
	}
	at, in := dst[r/e.TileRows*tile:], r%e.TileRows
	for first := 0; first < len(row); first += group {
		most, value := 0.0, func(v uint16) float64 { return float64(math.Float32frombits(uint32(v) << 16)) }
		part := row[min(first, len(row)):min(first+group, len(row))]
		finite := true
		for _, v := range part {
			x := math.Abs(value(v))
			finite = finite && x <= math.MaxFloat32
			most = max(most, x)
		}
		scale := 0x1p-97 // the least of five digits
		for bits == 8 && most > 127*scale {
			scale *= 2
		}
		floats := strings.Contains(e.Order, "bits, e2m1")
		for floats && finite && most >= 7*scale {
			scale *= 2
		}
		for bits == 4 && !floats && most > 7*scale {
			frac, exp := math.Frexp(scale)
			scale = math.Ldexp(frac+1.0/32, exp)
		}
		if !finite {
			scale = math.NaN()
		}
		for i, v := range part {
			k, code := first+i, byte(0)
			if finite {
				code = byte(int(math.RoundToEven(value(v)/scale))) & (1<<bits - 1)
			}
			run, in128 := at[k/columns*runBytes:], k%columns
			if floats {
				if finite {
					code = nearestE2M1(value(v) / scale)
				}
				run[in128/128*512+in*64+in128%16/4*16+in128%64/16*4+in128%128/64*2+in128%4/2] |= code << (4 * (k % 2))
				continue
			}
			if bits == 8 {
				run[in128/128*1024+in128%128/64*512+in*64+in128%16/4*16+in128%64/16*4+in128%4] = code
				continue
			}
			to := &run[in128/128*512+in*64+in128%16/4*16+in128%64/16*4+in128%4]
			if in128%128 < 64 {
				*to |= code
			} else {
				*to |= code << 4
			}
		}
		word := math.Float32bits(float32(scale))
		if !finite {
			word = 0x7fc00000
		}
		if whole {
			binary.LittleEndian.PutUint32(at[e.KPadded*bits+4*in:], word)
			continue
		}
		g := first % columns / group
		place := map[int]int{128: g, 64: g%2*(columns/128) + g/2, 32: g%4/2*(columns/64) + g/4*2 + g%2}[group]
		binary.LittleEndian.PutUint16(at[first/columns*runBytes+columns/128*512+2*(in*(columns/group)+place):], uint16(word>>16))
	}
}

// nearestE2M1 is the code of the number of E2M1 nearest to x, the even one of two.
func nearestE2M1(x float64) (code byte) {
	numbers := []float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}
	for i, v := range numbers {
		a, b := math.Abs(v-math.Abs(x)), math.Abs(numbers[code]-math.Abs(x))
		if a < b || a == b && i%2 == 0 {
			code = byte(i)
		}
	}
	if x < 0 && code > 0 {
		code |= 8
	}
	return code
}

// byColumns writes a row of a matrix that is dealt out by columns.
func byColumns(dst []byte, e emit.PackEntry, layer, r int, row []uint16) {
	for k, v := range row {
		at := e.Base + int64(layer)*e.LayerStride + int64(k/4*16*e.KPadded)
		k %= 4
		binary.LittleEndian.PutUint16(dst[at+int64((r/64)*512+(r%8)*64+(r/8%2)*32+(k/2)*16+(r/16%4)*4+(k%2)*2):], v)
	}
}

func TestLayoutIsEnoughToPackTheWeights(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	odd := c
	odd.Hidden, odd.Intermediate, odd.Vocab, odd.TieEmbeddings = 104, 200, 77, false
	formats := pipeline.Formats()[2:]
	for i, c := range []models.Config{c, odd, c, odd, c, odd, c, odd, c, odd, odd, odd, odd} {
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
	require.Equal(t, emit.Table{Name: "ends", Type: "u32", Words: slices.Repeat(emit.Words{1<<32 - 1}, MaxEnds)}, l.Tables[2])
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

// Of words with tags the first ones that are polled must carry none of a launch: the
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
		{SyncWords, MergeWords, "counted", []string{BufferStates, BufferQueryWords, BufferKVWords, "attn_words", "o_words", "down_words"}},
		{SyncBarrier, MergeWords, "barrier", []string{BufferStates}},
		{SyncWords, MergePhase, "counted", []string{BufferQueryWords, BufferKVWords, "attn_words", "o_words", "down_words"}},
		{SyncBarrier, MergePhase, "barrier", nil},
	} {
		mk := build(t, "tiny", Options{SMs: 4, Queries: c.queries, Merge: c.merge, Vectors: c.vectors})
		require.Equal(t, c.zeroed, mk.Zeroed())
		left := unfilled(t, mk)
		for _, f := range readLayout(t, mk).Params {
			if slices.Contains(c.zeroed, f.Name) {
				require.True(t, strings.HasPrefix(f.Fill, "0, and again after a launch that was given up"), "%s: %s", f.Name, f.Fill)
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
	require.Equal(t, LayoutOptions{SMs: 114, Page: 64, Splits: 14, Stages: mk.Plan.Stages, StageBytes: mk.Plan.StageBytes, InFlight: mk.Plan.InFlight,
		Leads: pipeline.LeadsText(mk.Plan.Leads), Held: 5, Consumers: 8, Tokens: 1, KV: "bf16", Queries: SyncWords, Vectors: string(SyncCounted), Merge: MergeWords}, l.Options)
	require.NotEqual(t, "none", l.Options.Leads)
	other := readLayout(t, build(t, "tiny", Options{SMs: 4, Tokens: 2, Leads: "none"})).Options
	require.Equal(t, []any{"none", SyncBarrier, "barrier", MergePhase}, []any{other.Leads, other.Queries, other.Vectors, other.Merge})
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
