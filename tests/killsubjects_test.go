package tests

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/stretchr/testify/require"
)

// family is a set of kernels whose mutants are tried on the same subjects and have the same excuses.
type family string

// The families: kernels of one row a step, of several, of a prompt, and of several sequences beside prompts.
const (
	oneRow      family = "one row"
	manyRows    family = "several rows"
	prompts     family = "prefill"
	manyPrompts family = "prefill of several sequences"
)

// killFamilies lists them.
var killFamilies = []family{oneRow, manyRows, prompts, manyPrompts}

// killSubject is a small kernel whose mutants stand for those of kernels that ship.
type killSubject struct {
	name   string
	family family
	kernel func(t *testing.T) *ir.Kernel // nil where it has no kind that others lack
	open   func(t *testing.T) *subject
}

// ofOneRow is a subject of one row that runs a number of steps.
func ofOneRow(name string, c models.Config, o megakernel.Options, steps int) killSubject {
	return killSubject{name, oneRow, func(t *testing.T) *ir.Kernel { return buildOf(t, c, o).IR },
		func(t *testing.T) *subject { return subjectOf(t, c, o, steps) }}
}

// ofRows is a subject that a mixed play is played on.
func ofRows(name string, c models.Config, pin int, o megakernel.Options) killSubject {
	return killSubject{name, manyRows, func(t *testing.T) *ir.Kernel { return buildOf(t, c, o).IR },
		func(t *testing.T) *subject {
			p := mixedPlay(t, buildOf(t, c, o))
			p.pin = pin
			return p.subject(t)
		}}
}

// ofPrompts is a subject of prefill.
func ofPrompts(name string, weights pipeline.Format, x promptSubject) killSubject {
	of, open := prompts, func(t *testing.T) *subject { return x.open(t, weights) }
	if x.several {
		of, name = manyPrompts, name+", several sequences"
	}
	return killSubject{name, of, func(t *testing.T) *ir.Kernel { return x.build(t, weights).IR }, open}
}

// ofHanging is a subject whose launches are given up.
func ofHanging(name string, f family, open func(t *testing.T) *subject) killSubject {
	return killSubject{name, f, nil, open}
}

func buildOf(t *testing.T, c models.Config, o megakernel.Options) *megakernel.Kernel {
	t.Helper()
	mk, err := megakernel.Build(c, o)
	require.NoError(t, err)
	return mk
}

// smallConfig is tiny with these sizes and a token for no end.
func smallConfig(t *testing.T, change func(c *models.Config)) models.Config {
	t.Helper()
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.Intermediate, c.BOS, c.EOS = 160, models.NoToken, nil
	change(&c)
	return c
}

// killSubjects are the small kernels. A mutant of one row's is tried on all that have its kind until one reports it.
func killSubjects(t *testing.T) []killSubject {
	t.Helper()
	ships := megakernel.Options{SMs: 3, Splits: 2, Consumers: 3, Stages: 8, InFlight: 4, Leads: "5:2", Held: 3,
		Queries: megakernel.SyncWords, Merge: megakernel.MergeWords}
	with := func(o megakernel.Options, change func(o *megakernel.Options)) megakernel.Options {
		change(&o)
		return o
	}
	vocab := func(n int) func(*models.Config) {
		return func(c *models.Config) { c.Vocab, c.TieEmbeddings = n, false }
	}
	wide := smallConfig(t, func(c *models.Config) {
		c.Hidden, c.Intermediate, c.Heads, c.KVHeads, c.HeadDim, c.Vocab, c.TieEmbeddings = 768, 256, 6, 2, 128, 48, false
	})
	short := smallConfig(t, func(c *models.Config) { c.Layers, c.Vocab, c.TieEmbeddings = 1, 16, false })
	all := []killSubject{ // the cheapest first
		ofOneRow("one layer in the ring", short, with(ships, func(o *megakernel.Options) { o.Stages = 32 }), 3),
		ofOneRow("one layer in the ring, draws, all waits watched", short, with(ships,
			func(o *megakernel.Options) { o.Stages, o.Draws, o.Watchdog = 32, true, megakernel.WatchAll }), 3),
		ofOneRow("one layer in the ring, draws, one SM", short, with(ships, // a warp merges two steps' lists of a launch
			func(o *megakernel.Options) { o.SMs, o.Splits, o.Stages, o.Draws = 1, 1, 32, true }), 3),
		ofOneRow("bf16", smallConfig(t, vocab(320)), ships, 2),
		ofOneRow("wide i8", wide,
			with(ships, func(o *megakernel.Options) { o.Weights, o.Consumers, o.Held = pipeline.FormatI8, 1, 1 }), 2),
	}
	for _, f := range []pipeline.Format{pipeline.FormatE4M3, pipeline.FormatE4M3B128, pipeline.FormatI4G128,
		pipeline.FormatMXFP4, pipeline.FormatNVFP4, pipeline.FormatI8, formatZeros} {
		c := smallConfig(t, func(c *models.Config) {
			c.Hidden, c.Intermediate, c.Vocab, c.TieEmbeddings = 256, 384, 320, false
		})
		all = append(all, ofOneRow(string(f), c, with(ships, func(o *megakernel.Options) { o.Weights = f }), 2))
	}
	for _, x := range []struct{ hidden, warps int }{{320, 12}, {640, 4}} { // 8B has 12 in formats of floats of 4 bits
		c := smallConfig(t, func(c *models.Config) {
			c.Hidden, c.Intermediate, c.Vocab, c.TieEmbeddings = x.hidden, 384, 320, false
		})
		all = append(all, ofOneRow(fmt.Sprintf("mxfp4, %d wide, %d warps", x.hidden, x.warps), c,
			with(ships, func(o *megakernel.Options) { o.Weights, o.Consumers, o.Held = pipeline.FormatMXFP4, x.warps, 0 }), 2))
	}
	all = append(all,
		ofOneRow("i4g128, chunks of two sizes", smallConfig(t, func(c *models.Config) {
			c.Hidden, c.Intermediate, c.Vocab, c.TieEmbeddings = 256, 640, 320, false
		}), with(ships, func(o *megakernel.Options) { o.Weights, o.StageBytes, o.Consumers = "i4g128", 2048, 2 }), 2),
		ofOneRow("i8, tiles of two chunks", smallConfig(t, func(c *models.Config) {
			c.Layers, c.Hidden, c.Intermediate, c.Heads, c.KVHeads, c.HeadDim = 1, 1024, 128, 16, 2, 64
			c.Vocab, c.TieEmbeddings = 48, false
		}), with(ships, func(o *megakernel.Options) {
			o.Weights, o.Head, o.StageBytes, o.Consumers, o.Held = pipeline.FormatI8, pipeline.FormatI8, 4096, 2, 3
		}), 2),
		// each warp stages what it multiplies, but for down's three groups
		ofOneRow("i4g128-zeros, two warps", smallConfig(t, func(c *models.Config) {
			c.Layers, c.Hidden, c.Intermediate, c.Heads, c.KVHeads, c.HeadDim = 1, 256, 384, 4, 2, 64
			c.Vocab, c.TieEmbeddings = 48, false
		}), with(ships, func(o *megakernel.Options) { o.Weights, o.Consumers = formatZeros, 2 }), 2),
		ofOneRow("wide bf16", wide,
			with(ships, func(o *megakernel.Options) { o.Consumers, o.Held = 1, megakernel.HeldNone }), 2),
		ofOneRow("KV e4m3", smallConfig(t, vocab(320)),
			with(ships, func(o *megakernel.Options) { o.KV = attention.KVE4M3 }), 2),
		ofOneRow("KV e4m3, all waits watched", smallConfig(t, vocab(320)),
			with(ships, func(o *megakernel.Options) { o.KV, o.Watchdog = attention.KVE4M3, megakernel.WatchAll }), 2),
		ofOneRow("few tiles", smallConfig(t, vocab(16)), with(ships, func(o *megakernel.Options) { o.SMs = 4 }), 3),
		ofOneRow("more SMs than tiles", smallConfig(t, vocab(16)),
			with(ships, func(o *megakernel.Options) { o.SMs, o.Consumers = 110, 1 }), 3),
		ofOneRow("draws", smallConfig(t, vocab(320)), with(ships, func(o *megakernel.Options) { o.Draws = true }), 2),
		ofOneRow("draws, one warp, four loads of masks a thread", smallConfig(t, vocab(640)),
			with(ships, func(o *megakernel.Options) { o.Draws, o.Consumers, o.Held = true, 1, 1 }), 2),
		ofOneRow("draws, all waits watched", smallConfig(t, vocab(320)),
			with(ships, func(o *megakernel.Options) { o.Draws, o.Watchdog = true, megakernel.WatchAll }), 2),
		ofHanging("given up", oneRow, func(t *testing.T) *subject { return newHanging(t, megakernel.WatchGrid, 3, 3, 160) }))
	for _, f := range []pipeline.Format{pipeline.FormatI4G128, formatZeros} { // ten packets of act a thread: two batches
		c := smallConfig(t, func(c *models.Config) {
			c.Layers, c.Hidden, c.Intermediate, c.Heads, c.KVHeads, c.HeadDim = 1, 256, 1280, 4, 2, 64
			c.Vocab, c.TieEmbeddings = 48, false
		})
		all = append(all, ofOneRow(string(f)+", one warp", c,
			with(ships, func(o *megakernel.Options) { o.Weights, o.Consumers = f, 1 }), 2))
	}
	all = append(all,
		ofOneRow("wide, LM head i8", wide,
			with(ships, func(o *megakernel.Options) { o.Head, o.Consumers, o.Held = pipeline.FormatI8, 1, 1 }), 2))
	for _, f := range []pipeline.Format{pipeline.FormatI4G128, pipeline.FormatI4} {
		c := smallConfig(t, func(c *models.Config) {
			c.Hidden, c.Intermediate, c.Vocab, c.TieEmbeddings = 256, 384, 320, false
		})
		all = append(all, ofOneRow("LM head "+string(f), c,
			with(ships, func(o *megakernel.Options) { o.Head, o.Consumers = f, 1 }), 2))
	}
	rows := megakernel.Options{SMs: 2, Tokens: 8, Consumers: 4, StageBytes: 2048, Stages: 3, InFlight: 2, Page: 4,
		Draws: true}
	heads := func(hidden, intermediate, n int) models.Config {
		return smallConfig(t, func(c *models.Config) {
			c.Hidden, c.Intermediate, c.Vocab, c.TieEmbeddings = hidden, intermediate, 96, false
			c.Heads, c.KVHeads, c.HeadDim = 4, 1, n
		})
	}
	all = append(all,
		ofRows("bf16, 8 rows", heads(96, 120, 16), 0, with(rows, func(o *megakernel.Options) { o.Leads = "none" })),
		ofRows("bf16, 8 rows with leads", heads(96, 120, 16), 0,
			with(rows, func(o *megakernel.Options) { o.Stages, o.InFlight, o.Leads = 6, 3, "4:2" })),
		ofRows("bf16, 8 rows, greedy", heads(96, 120, 16), 0, with(rows, func(o *megakernel.Options) { o.Draws = false })),
		ofRows("bf16, 8 rows, four loads of masks a thread", smallConfig(t, func(c *models.Config) {
			c.Vocab, c.TieEmbeddings, c.Heads, c.KVHeads, c.HeadDim = 832, false, 4, 1, 16
		}), 0, with(rows, func(o *megakernel.Options) { o.Consumers = 3 })),
		ofRows("bf16, 5 rows of 2 warps", heads(96, 120, 16), 32,
			with(rows, func(o *megakernel.Options) { o.Tokens, o.Consumers = 5, 2 })),
		ofRows("bf16, 4 rows of 128 dimensions", heads(96, 120, 128), 0,
			with(rows, func(o *megakernel.Options) { o.Tokens, o.Consumers, o.StageBytes = 4, 8, 0 })),
		ofRows("bf16, 16 rows", heads(96, 120, 16), 32, with(rows, func(o *megakernel.Options) { o.Tokens = 16 })),
		ofRows("KV e4m3, 8 rows", heads(96, 120, 16), 0, with(rows, func(o *megakernel.Options) { o.KV = attention.KVE4M3 })),
		ofRows("more SMs than tiles, 5 rows", heads(96, 16, 16), 0,
			with(rows, func(o *megakernel.Options) { o.SMs, o.Tokens, o.Consumers = 50, 5, 1 })),
		ofRows("more SMs than tiles, 5 rows, all waits watched", heads(96, 16, 16), 0, with(rows,
			func(o *megakernel.Options) { o.SMs, o.Tokens, o.Consumers, o.Watchdog = 50, 5, 1, megakernel.WatchAll })))
	for _, f := range []pipeline.Format{pipeline.FormatE4M3, pipeline.FormatI8, pipeline.FormatI4G128, formatZeros} {
		for _, n := range []int{8, 16} {
			o := with(rows, func(o *megakernel.Options) { o.Tokens, o.Weights = n, f })
			if f == pipeline.FormatI4G128 && n == 16 {
				o.InFlight = o.Stages // no wait for the copies in flight
			}
			all = append(all, ofRows(string(f)+map[int]string{8: ", 8 rows", 16: ", 16 rows"}[n], heads(256, 256, 16), 0, o))
		}
	}
	for _, x := range []struct {
		rows  int
		draws bool
		name  string
	}{{8, true, "8 rows"}, {8, false, "8 rows, greedy"}, {16, false, "16 rows"}} {
		c := heads(384, 384, 32) // all products with chunks of columns, stages of several tiles and several batches
		c.Vocab, c.Heads = 480, 12
		all = append(all, ofRows("i4g128, LM head i4g128, "+x.name, c, 0, with(rows, func(o *megakernel.Options) {
			o.Tokens, o.Weights, o.Head, o.Draws = x.rows, "i4g128", "i4g128", x.draws
		})))
	}
	// three idle warps make the producer's a warpgroup, and leave their registers to two of consumers
	for _, x := range []struct {
		name  string
		watch megakernel.Watchdog
	}{{"registers, 8 rows", megakernel.WatchGrid}, {"registers, 8 rows, all waits watched", megakernel.WatchAll}} {
		all = append(all, ofRows(x.name, heads(256, 256, 16), 0, with(rows, func(o *megakernel.Options) {
			o.Consumers, o.Weights, o.Watchdog = megakernel.DefaultConsumers, pipeline.FormatI4G128, x.watch
		})))
	}
	for _, n := range []int{8, 16} { // whose LM head's tiles are no whole chunks
		o := with(rows, func(o *megakernel.Options) { o.Tokens, o.Weights, o.StageBytes = n, "i4g32-zeros", 2560 })
		c := heads(512, 256, 16)
		if n == 16 {
			o.InFlight, c.Vocab = o.Stages, 224 // more than a batch of tiles
		}
		all = append(all, ofRows(fmt.Sprintf("i4g32-zeros, %d rows", n), c, 0, o))
	}
	all = append(all, ofHanging("given up, rows", manyRows, func(t *testing.T) *subject {
		return newRaggedHanging(t, megakernel.Options{SMs: 2, Tokens: 8, Consumers: 3, StageBytes: 1024, Stages: 3,
			InFlight: 2, Page: 4})
	}))
	for _, several := range []bool{false, true} {
		for i, x := range promptSubjects {
			x.several = several
			name := [...]string{"bf16, prompt", "bf16, cached tokens", "bf16, two tiles", "bf16, two clusters", "bf16, wide",
				"bf16, parts"}[i]
			all = append(all, ofPrompts(name, pipeline.FormatBF16, x))
		}
		x := promptSubjects[3]
		x.several = several
		all = append(all, ofPrompts("e4m3, two clusters", pipeline.FormatE4M3, x))
		down := promptSubject{sms: 4, room: 64, down: 2, several: several}
		all = append(all, ofPrompts("bf16, parts of down", pipeline.FormatBF16, down),
			ofPrompts("e4m3, parts of down", pipeline.FormatE4M3, down))
		// a block of keys comes by two copies
		wide := promptSubject{sms: 2, room: 64, cached: 56, heads: 3, dim: 128, several: several}
		all = append(all, ofPrompts("bf16, heads of 128", pipeline.FormatBF16, wide))
		cache := promptSubject{sms: 2, room: 64, cached: 56, kv: attention.KVE4M3, several: several}
		all = append(all, ofPrompts("KV e4m3, cached tokens", pipeline.FormatBF16, cache))
		for i, x := range append(slices.Clone(promptSubjects), cache) {
			if x.several, x.coded = several, true; x.hidden > 0 {
				x.heads = 12 // two tiles of qkv
			}
			name := [...]string{"prompt", "cached tokens", "two tiles", "two clusters", "wide", "parts",
				"KV e4m3, cached tokens"}[i]
			all = append(all, ofPrompts("activations e4m3, "+name, pipeline.FormatE4M3, x))
		}
	}
	coded := promptSubjects[3]
	coded.head = pipeline.FormatI8
	return append(all, ofPrompts("LM head i8, two clusters", pipeline.FormatBF16, coded))
}
