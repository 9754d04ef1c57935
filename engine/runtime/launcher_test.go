package runtime_test

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// launcher makes a module of the kernel's generated files and of
// testdata/launcher, which imports nothing else; it returns the layout too.
func launcher(t *testing.T, mk *megakernel.Kernel) (dir string, l emit.Layout) {
	t.Helper()
	dir = t.TempDir()
	write := func(name string, data []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o666))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "tiny"), 0o777))
	files, err := mk.Files("sm_90a")
	require.NoError(t, err)
	for _, f := range files {
		write("tiny/"+f.Name, f.Data)
		if f.Name == megakernel.LayoutFile {
			require.NoError(t, json.Unmarshal(f.Data, &l))
		}
	}
	main, err := os.ReadFile("testdata/launcher/main.go")
	require.NoError(t, err)
	write("main.go", main)
	write("go.mod", []byte("module example.com/fresh\n\ngo 1.24\n"))
	return dir, l
}

// tensorFiles writes every tensor of a model into a directory.
func tensorFiles(t *testing.T, w *synth.Weights, c models.Config) string {
	t.Helper()
	dir := t.TempDir()
	for _, tensor := range synth.Tensors(c) {
		columns := tensor.Shape[len(tensor.Shape)-1]
		row := make([]half.BF16, columns)
		var data []byte
		for r := range int(tensor.Elems()) / columns {
			require.NoError(t, w.Row(tensor.Name, r, row))
			for _, v := range row {
				data = v.Append(data)
			}
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, tensor.Name), data, 0o666))
	}
	return dir
}

// bindDevice gives the executor what the launcher left in a directory, found
// with nothing but the layout: a buffer's address in the params block names its
// file. What the layout does not tell to fill counts as uninitialised.
func bindDevice(t *testing.T, dir string, l *emit.Layout, block []byte) (*interp.Memory, map[string]uint64) {
	t.Helper()
	mem, scalars := interp.NewMemory(), map[string]uint64{}
	require.Len(t, block, l.ParamsBytes)
	for _, f := range l.Params {
		if !f.Pointer {
			require.Equal(t, "u32", f.Type)
			scalars[f.Name] = uint64(binary.LittleEndian.Uint32(block[f.Offset:]))
			continue
		}
		at := binary.LittleEndian.Uint64(block[f.Offset:])
		require.Zero(t, at%uint64(f.Align), "buffer %s at %#x", f.Name, at)
		data, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("%x", at)))
		require.NoError(t, err, "buffer %s", f.Name)
		mem.Bind(f.Name, data)
		if f.Fill == "" {
			mem.MarkUninit(f.Name)
		}
	}
	return mem, scalars
}

// The generated package alone is enough to launch the kernel: a program that
// imports nothing else prepares all memory, and the executor, given that memory,
// computes what a session does.
func TestAGeneratedPackageIsEnoughToLaunch(t *testing.T) {
	const pages, epoch = 2, 1<<32 - 5
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 4})
	require.NoError(t, err)
	dims := c
	weights, prompt := synth.NewWeights(1, dims), synth.Tokens(1, 0, mk.Options.Page, c.Vocab)

	dir, l := launcher(t, mk)
	device := t.TempDir()
	args := []string{"run", "-tags", "cuda", ".", tensorFiles(t, weights, dims), device, fmt.Sprint(pages),
		fmt.Sprint(uint32(epoch))}
	for _, token := range prompt {
		args = append(args, fmt.Sprint(token))
	}
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))

	launch, err := os.ReadFile(filepath.Join(device, "launch"))
	require.NoError(t, err)
	arguments := strings.Fields(string(launch))
	require.Equal(t, []string{mk.IR.Name, fmt.Sprint(mk.IR.Grid), fmt.Sprint(32 * mk.IR.Warps),
		fmt.Sprint(mk.IR.SharedBytes)}, arguments[:4])
	block, err := hex.DecodeString(arguments[4])
	require.NoError(t, err)
	mem, scalars := bindDevice(t, device, &l, block)
	program, err := interp.Load(mk.IR)
	require.NoError(t, err)
	_, err = program.Run(mem, interp.Options{Seed: 7, Params: scalars})
	require.NoError(t, err)

	sim, err := runtime.NewSim(mk.IR, 1)
	require.NoError(t, err)
	s, err := runtime.NewSequence(mk, sim, weights, pages, nil, 0)
	require.NoError(t, err)
	want, err := s.Generate(prompt, 2)
	require.NoError(t, err)
	word := func(buffer string, i int) int { return int(binary.LittleEndian.Uint32(mem.Bytes(buffer)[4*i:])) }
	require.Equal(t, want, []int{word("tokens", len(prompt)), word("tokens", len(prompt)+1)})
	require.Equal(t, s.Pos(), word("progress", 0))
	logits := make([]byte, 4*c.Vocab)
	require.NoError(t, sim.Read("logits", 0, logits))
	for i := range c.Vocab {
		require.Equal(t, binary.LittleEndian.Uint32(logits[4*i:]), uint32(word("logits", i)), "bits of logit %d", i)
	}
}
