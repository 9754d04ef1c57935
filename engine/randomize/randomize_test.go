package randomize

import (
	"testing"

	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// That the values are right shows in package runtime, on the executor.

func TestEveryModelHasAKernelAndSmallTables(t *testing.T) {
	target, err := emit.TargetFor("sm_90a")
	require.NoError(t, err)
	for _, c := range models.Checked() {
		mk, err := megakernel.Build(c, megakernel.Options{SMs: 132})
		require.NoError(t, err, c.Name)
		r, err := New(mk)
		require.NoError(t, err, c.Name)
		one, err := emit.Print(r.IR, target, megakernel.EmitOptions())
		require.NoError(t, err, c.Name)
		again, err := New(mk)
		require.NoError(t, err, c.Name)
		two, err := emit.Print(again.IR, target, megakernel.EmitOptions())
		require.NoError(t, err, c.Name)
		require.Equal(t, one.Text, two.Text, "the same model gives the same kernel")

		tables, err := r.Tables(1)
		require.NoError(t, err)
		bytes := 0
		for _, table := range tables {
			bytes += 4 * len(table.Words)
		}
		require.Less(t, bytes, 4<<20, c.Name)
		weights := mk.Plan.PackedBytes
		for _, b := range mk.IR.Globals() {
			if b.Name == "gains" || b.Name == megakernel.BufferEmbed {
				weights += b.Bytes()
			}
		}
		require.Equal(t, weights, r.Bytes(), c.Name)
	}
}

// Every tensor of the generator is made, none twice.
func TestTensorsAreThoseOfTheGenerator(t *testing.T) {
	for _, c := range models.Checked() {
		mk, err := megakernel.Build(c, megakernel.Options{SMs: 132})
		require.NoError(t, err)
		var want []string
		for _, tensor := range synth.Tensors(c) {
			want = append(want, tensor.Name)
		}
		shape := newShape(mk)
		got := shape.names()
		if c.TieEmbeddings { // the LM head's tensor is the embedding
			require.Equal(t, got[len(got)-1], shape.head)
			got = got[:len(got)-1]
		}
		for _, v := range shape.vectors {
			got = append(got, v.Tensors...)
		}
		require.ElementsMatch(t, want, got, c.Name)
	}
}

func TestTheSeedChangesTheTensorsOnly(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 4})
	require.NoError(t, err)
	r, err := New(mk)
	require.NoError(t, err)
	a, err := r.Tables(1)
	require.NoError(t, err)
	b, err := r.Tables(2)
	require.NoError(t, err)
	require.Equal(t, a[:1], b[:1])
	require.NotEqual(t, a[1], b[1])
}
