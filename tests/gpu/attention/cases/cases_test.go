package cases

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLengthsHaveTheirDistributions(t *testing.T) {
	sum := func(v []int) (n int) {
		for _, x := range v {
			n += x
		}
		return n
	}
	require.Equal(t, []int{7, 7, 7}, Constant(7, 3))
	z := Zipf(1024, 16)
	require.Equal(t, 16*1024, sum(z))
	require.Equal(t, []int{4846, 2423, 1615, 1212}, z[:4])
	u := Uniform(512, 1024, 1000, 1)
	require.GreaterOrEqual(t, slices.Min(u), 512)
	require.LessOrEqual(t, slices.Max(u), 1024)
	require.InDelta(t, 768, sum(u)/1000, 15)
	require.Equal(t, u[:16], Uniform(512, 1024, 16, 1))
}

func TestEverySequenceHasPagesOfItsOwn(t *testing.T) {
	for _, c := range append(Speed(), Variants(Shape{Heads: 4, KVHeads: 2, HeadDim: 32, Page: 4})...) {
		t.Run(c.Name, func(t *testing.T) {
			seen, shared := map[uint32]bool{}, 0
			for r := range c.LastPageLen {
				for _, p := range c.PagesOf(r) {
					require.Less(t, int(p), c.Pages)
					if seen[p] {
						shared++
					}
					seen[p] = true
				}
				require.Positive(t, c.LastPageLen[r])
				require.LessOrEqual(t, c.LastPageLen[r], c.Page)
			}
			require.LessOrEqual(t, len(seen), c.Pages-spare)
			switch {
			case c.Name == "prefix-8192":
				require.Equal(t, 15*8192/16, shared)
			case c.Name == "prefix-4096-4096":
				require.Equal(t, (15+4*3)*4096/16, shared)
			case !c.PerHead:
				require.Zero(t, shared)
				require.Equal(t, c.KVBytes(), c.UniqueBytes())
			}
		})
	}
}

func TestTimedCasesExceedTheCache(t *testing.T) {
	for _, c := range Speed() {
		require.GreaterOrEqual(t, int64(c.Layers)*c.UniqueBytes(), int64(120<<20), c.Name)
		require.LessOrEqual(t, int64(c.Layers)*c.LayerBytes(), int64(5<<30), c.Name)
		require.Less(t, c.LayerBytes()/c.ElementBytes(), int64(1<<31), c.Name)
		require.LessOrEqual(t, c.T(), Batch, c.Name)
	}
}

func TestSharedPagesAreCountedOnce(t *testing.T) {
	s := Shape{Heads: 2, KVHeads: 1, HeadDim: 16, Page: 4} // 64 bytes a token
	c := Shared("x", s, 8, 6, 3)
	require.Equal(t, int64(3*14*64), c.KVBytes())
	require.Equal(t, int64((8+3*6)*64), c.UniqueBytes())
	s.Heads, s.KVHeads = 2, 2
	require.Equal(t, int64((3*4+2)*128), Selected("y", s, 50, 4).UniqueBytes(),
		"4 pages of each head, the last with 2 tokens")
}

// What differs between contiguous and shuffled pages is their order alone.
func TestContiguousPagesAscend(t *testing.T) {
	all := map[string]*Case{}
	for _, c := range Speed() {
		all[c.Name] = c
	}
	a, b := all["contiguous-1024"], all["constant-1024"]
	require.True(t, slices.IsSorted(a.Indices))
	require.False(t, slices.IsSorted(b.Indices))
	for i := range a.Indices {
		require.Equal(t, uint32(i), a.Indices[i])
	}
	require.Equal(t, []any{b.Sequences, b.Pages, b.Layers, b.Indptr, b.LastPageLen, b.UniqueBytes()},
		[]any{a.Sequences, a.Pages, a.Layers, a.Indptr, a.LastPageLen, a.UniqueBytes()})
}

// A budget of pages reads the same bytes whatever the length of the sequence.
func TestBudgetsReadTheSameOfBothLengths(t *testing.T) {
	bytes, lengths := map[int][]int64{}, map[int][]int{}
	for _, c := range Speed() {
		if c.PerHead {
			n := c.Indptr[1]
			bytes[n], lengths[n] = append(bytes[n], c.UniqueBytes()), append(lengths[n], c.selected.Cached+1)
		}
	}
	for _, n := range []int{64, 128, 256, 512} {
		require.Equal(t, []int{32768, 8192}, lengths[n])
		require.Equal(t, bytes[n][0], bytes[n][1])
	}
}

// judged is attention.py's verdict on cases in dir; none without torch.
func judged(t *testing.T, dir string) map[string]bool {
	t.Helper()
	python := cmp.Or(os.Getenv("MKGEN_PYTHON"), "python3")
	if out, err := exec.Command(python, "-c", "import torch").CombinedOutput(); err != nil {
		t.Skipf("%s has no torch (set MKGEN_PYTHON to one that has): %.200s", python, out)
	}
	// exit code 1: a case failed
	text, _ := exec.Command(python, "../../attention.py", dir, "--device", "cpu").CombinedOutput()
	data, err := os.ReadFile(filepath.Join(dir, "torch.json"))
	require.NoError(t, err, string(text))
	var report struct {
		Cases []struct {
			Name    string
			Check   struct{ Passed bool }
			PyTorch struct {
				SDPA, Flex struct {
					US    float64
					Error string
				}
			}
		}
	}
	require.NoError(t, json.Unmarshal(data, &report), string(text))
	passed := map[string]bool{}
	for _, c := range report.Cases {
		passed[c.Name] = c.Check.Passed
		if strings.HasPrefix(c.Name, "timed") {
			require.Positive(t, c.PyTorch.SDPA.US, c.PyTorch.SDPA.Error)
			require.Positive(t, c.PyTorch.Flex.US, c.PyTorch.Flex.Error)
		}
	}
	t.Logf("%s", text)
	return passed
}

// What the definition gives, rounded as a kernel rounds, passes attention.py in
// every variant; with a token lost or a permutation forgotten it does not.
func TestTheTorchReferenceAgreesWithTheDefinition(t *testing.T) {
	dir, shape := t.TempDir(), Shape{Heads: 4, KVHeads: 2, HeadDim: 32, Page: 4}
	want := map[string]bool{}
	write := func(c *Case, suffix string, w wrong) {
		c.Name += suffix
		want[c.Name] = suffix == ""
		for layer := range c.Layers {
			require.NoError(t, c.WriteOut(dir, layer, outputs(t, c, layer, w)))
		}
		require.NoError(t, c.Write(dir))
	}
	short := []Sequence{{0, 1}, {3, 1}, {4, 4}, {130, 2}}
	for i, suffix := range []string{"", "-lost", "-swapped"} {
		w := []wrong{{rounding: true}, {lost: true, rounding: true}, {swapped: true}}[i]
		for _, c := range Variants(shape) {
			c.Sequences, c.Indptr, c.Indices, c.LastPageLen, c.Pages = short, []int{0}, nil, nil, 0
			c.place()
			if c.Rows != nil {
				c.Rows = c.nextTokens()
			}
			switch c.Variants[0].Name {
			case "tree":
				c.branch()
			case "mask":
				c.maskRows()
			}
			write(c, suffix, w)
		}
		write(Shared("shared", shape, 16, 7, 3), suffix, w)
		write(Selected("selected", shape, 99, 5), suffix, w)
		write(Decode("e4m3-wide", Shape{Heads: 2, KVHeads: 2, HeadDim: 64, Page: 8}, []int{9, 33}).E4M3(), suffix, w)
		if suffix == "-swapped" {
			continue // one token a page: nothing is permuted
		}
		write(Decode("page-1", Shape{Heads: 3, KVHeads: 1, HeadDim: 48, Page: 1}, []int{1, 30, 77}), suffix, w)
	}
	c := Decode("timed", shape, []int{4, 9, 5})
	c.Time = true
	write(c, "", wrong{})
	require.Equal(t, want, judged(t, dir))
}
