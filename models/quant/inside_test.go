package quant

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

func TestRoundingToBF16(t *testing.T) {
	for _, c := range [][2]uint32{{0x3f808000, 0x3f800000}, {0x3f818000, 0x3f820000}, {0x3f808001, 0x3f810000},
		{0xbf818000, 0xbf820000}, {0x7f7fffff, 0x7f800000}, {0x00008000, 0}, {0x80000000, 0x80000000},
		{0x7f800000, 0x7f800000}} {
		require.Equal(t, c[1], math.Float32bits(Round(math.Float32frombits(c[0]), models.BF16)))
	}
	require.True(t, math.IsNaN(float64(Round(float32(math.NaN()), models.BF16))))
	require.Equal(t, float32(1+0x1p-9), Round(1+0x1.8p-10, models.F16), "a tie")
	require.Equal(t, float32(math.Pi), Round(math.Pi, models.F32))
}

// TestFloatsOfEightBits knows landmarks of the two formats, from the OCP's specifications.
func TestFloatsOfEightBits(t *testing.T) {
	for bits, want := range map[byte]float32{0x7e: 448, 0xfe: -448, 0x38: 1, 0x01: 0x1p-9, 0x07: 7 * 0x1p-9, 0x08: 0x1p-6,
		0x39: 1.125} {
		require.Equal(t, want, e4m3[bits], "%#x", bits)
	}
	require.True(t, math.IsNaN(float64(e4m3[0x7f])) && math.IsNaN(float64(e4m3[0xff])))
	require.True(t, math.Signbit(float64(e4m3[0x80])) && e4m3[0x80] == 0)
	require.Equal(t, []float32{0x1p-127, 1, 0x1p127}, []float32{fromE8M0(0), fromE8M0(127), fromE8M0(254)})
	require.True(t, math.IsNaN(float64(fromE8M0(255))))
}

// TestWordsOfTheFormats reads the word that each format has for eight elements 0 to 7, derived by hand from its
// layout.
func TestWordsOfTheFormats(t *testing.T) {
	word := func(w uint32) []byte { return binary.LittleEndian.AppendUint32(nil, w) }
	for name, c := range map[string]struct {
		word uint32
		ints
		down bool // elements are rows
	}{
		"gptq qweight": {0x76543210, ints{bits: 4, perWord: 8, width: 1, down: true, transposed: true}, false},
		"gptq qzeros":  {0x76543210, ints{bits: 4, perWord: 8, width: 1, transposed: true}, true},
		"awq qweight":  {0x75316420, ints{bits: 4, perWord: 8, width: 1, transposed: true, order: &awqOrder}, true},
		"ct packed":    {0x76543210, ints{bits: 4, perWord: 8, width: 1}, false},
		"ct zeros":     {0x76543210, ints{bits: 4, perWord: 8, width: 1, down: true}, true},
		"fp4 bytes":    {0x76543210, ints{bits: 4, perWord: 2, width: 4}, false},
	} {
		for i := range 8 {
			row, col := 0, i
			if c.down {
				row, col = i, 0
			}
			require.Equal(t, i, c.at(word(c.word), row, col), name)
		}
	}
}

// TestRowsOfIntegersAreTheirElements compares the two ways to read, for all layouts, on random words.
func TestRowsOfIntegersAreTheirElements(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for mask := range 16 {
		p := ints{bits: 4 + 4*(mask&1), down: mask&2 != 0, transposed: mask&4 != 0, perWord: 1}
		if mask&8 != 0 || p.bits == 4 {
			p.perWord = 32 / p.bits
		}
		if p.perWord == 8 && !p.down && p.transposed {
			p.order = &awqOrder
		}
		p.offset = -1 << (p.bits - 1)
		const rows, cols = 24, 40
		tall, wide := rows, cols
		if p.transposed {
			tall, wide = cols, rows
		}
		p.width = wide
		if !p.down {
			p.width = wide / p.perWord
		}
		data := make([]byte, tall*wide*p.bits/8)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		for row := range rows {
			got := make([]int8, cols)
			p.row(data, row, got)
			for c := range got {
				require.Equal(t, p.at(data, row, c), int(got[c]), "%+v", p)
			}
		}
	}
}

// TestNamesOfModulesMatchAsInPython has what the packages' own code answers: re.match, transformers'
// should_convert_module and fnmatch.
func TestNamesOfModulesMatchAsInPython(t *testing.T) {
	for _, c := range []struct {
		exception, module string
		skipped           bool
	}{
		{"layers.1", "layers.1.attn", true}, {"layers.1", "layers.11.attn", false}, {"layers.*", "layers.11.attn", true},
		{"mlp.gate", "mlp.gate_proj", false}, {"mlp.gate", "mlp.gate", true}, {"fc1", "model.decoder.layers.23.fc1", true},
		{"model.layers.0.", "model.layers.0.mlp", true}, {"model", "models.x", false}, {"a|b", "b.c", true},
		{"lm_head", "lm_head", true},
	} {
		p, no := matchWhole(c.exception)
		require.Nil(t, no)
		yes, _ := (&fp8{skipped: []exception{{c.exception, p}}}).quantised(c.module)
		require.Equal(t, c.skipped, !yes, "%+v", c)
	}
	p, no := matchStart(`.*\.(gate|up)_proj`)
	require.Nil(t, no)
	require.True(t, p.MatchString("model.layers.0.mlp.up_proj") && p.MatchString("x.up_proj.more") &&
		!p.MatchString("up_proj"))
	for bad, want := range map[string]string{`(?!x)`: "look-ahead", `(?<=x)y`: "look-behind", `(x)\1`: "back references",
		`x{2}`: "counted", `a++`: "they are not supported", `(`: "missing closing )", `[`: "missing closing ]",
		`*proj`: "missing argument to repetition operator", `a)(b`: "unexpected )", `[[:alpha:]]`: "something else in Python",
		`a\pL`: "something else in Python", `\\\Qa`: "something else in Python", `a\z`: "something else in Python"} {
		_, no := matchStart(bad)
		require.NotNil(t, no, bad)
		require.Contains(t, no.want+"; "+no.why, want, bad)
	}
	for depth := 990; depth < 1010; depth++ {
		_, _ = matchStart(strings.Repeat("(", depth) + strings.Repeat(")", depth))
	}
	p, no = matchStart(`a\\pL`)
	require.Nil(t, no)
	require.True(t, p.MatchString(`a\pL`))
	require.True(t, matchGlob("model.layers.?.mlp*").MatchString("model.layers.3.mlp.up_proj"))
	require.False(t, matchGlob("model.layers.0").MatchString("model.layers.0.mlp"))
	require.False(t, matchGlob("a.b").MatchString("axb"))
}

func TestATextPartSaysItself(t *testing.T) {
	const own = `"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": true, "desc_act": false}`
	for _, config := range []string{`{` + own + `}`, `{"text_config": {"dtype": "float16", ` + own + `}}`,
		`{"dtype": "bfloat16", "llm_config": {` + own + `}}`} {
		method, imp, err := readConfig(func(string) ([]byte, error) { return []byte(config), nil })
		require.NoError(t, err, config)
		require.Equal(t, "gptq", method, config)
		require.NotNil(t, imp, config)
	}
}
