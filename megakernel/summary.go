package megakernel

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/internal/table"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/machine"
	"github.com/mkgen/mkgen/tasks/attention"
)

// contexts are the lengths of the KV cache for which times are predicted, as
// far as the model has positions.
func (mk *Kernel) contexts() []int {
	var some []int
	for _, n := range []int{128, 1024, 6144} {
		if n < mk.Config.MaxPositions {
			some = append(some, n)
		}
	}
	if some == nil {
		some = []int{mk.Config.MaxPositions - 1}
	}
	return some
}

// Summary writes what a person wants to know of the kernel, in lines of at most
// 80 characters: the model, the phases, what is read for a token, shared
// memory, syncs and the times predicted on a machine, unless its figures are the
// executor's. The same kernel and machine give the same text. The error is w's.
func (mk *Kernel) Summary(w io.Writer, m *machine.Machine) error {
	r := &report{w: w}
	mk.reportModel(r)
	r.line("")
	mk.reportPhases(r)
	r.line("")
	mk.reportReads(r)
	r.line("")
	mk.reportShared(r)
	r.line("")
	mk.reportPrediction(r, m)
	return r.err
}

func (mk *Kernel) reportModel(r *report) {
	c, o := &mk.Config, &mk.Options
	coded := o.otherWeights()+o.otherHead() != ""
	tied := ""
	switch {
	case mk.OwnHead():
		tied = " (LM head and embedding are one matrix, packed twice: the embedding stays bf16)"
	case c.TieEmbeddings:
		tied = " (LM head and embedding are one matrix)"
	}
	r.line("%s: one decode step as one CUDA kernel", c.Name)
	of := ""
	if !coded {
		of = " of " + c.DType.String()
	}
	r.text("%s parameters%s%s, %s, hidden %d, intermediate %d, %d query and %s of %d, vocabulary %d, %s.",
		FormatCount(c.ParamCount()), of, tied,
		plural.Of(c.Layers, "layer"), c.Hidden, c.Intermediate, c.Heads, plural.Of(c.KVHeads, "KV head"), c.HeadDim, c.Vocab,
		plural.Of(c.MaxPositions, "position"))
	kv, split := "", " and "+plural.Of(o.Splits, "split")
	if mk.Ragged() {
		split = ""
	}
	if o.KV != attention.KVBF16 {
		kv = " of " + string(o.KV)
	}
	producer := "a producer warp"
	if o.movesRegisters() {
		producer += " with three idle ones"
	}
	r.text("%s of %d threads (%s and %s), KV cache%s in pages of %s%s.",
		plural.Of(o.SMs, "CTA"), dsl.WarpSize*o.warps(), plural.Of(o.Consumers, "consumer warp"), producer, kv,
		plural.Of(o.Page, "token"), split)
	if mk.Ragged() {
		r.text("A step has up to %d query rows, each a token of any sequence.", o.Tokens)
	}
	if coded {
		r.text("The layers' matrices are %s, the LM head is %s, embedding and norms are bf16.", o.Weights, o.Head)
	}
	mk.reportAttention(r)
	if left := threadRegisters(o.Consumers); left < ampleRegisters {
		r.text("%d consumer warps leave a thread %d registers: nvcc may spill some, the more the wider the heads. Compile with -Xptxas -v and look for spill stores.",
			o.Consumers, left)
	}
}

// reportAttention says what is not plain about attention.
func (mk *Kernel) reportAttention(r *report) {
	o := &mk.Options
	switch {
	case o.Attention != "" && len(mk.pattern) > 1:
		r.text("Attention, the layers in turn: %s.", strings.ReplaceAll(o.Attention, "/", " / "))
	case o.Attention != "":
		r.text("Attention: %s.", o.Attention)
	}
	if o.Selection {
		r.text("Sequences may select, for each KV head, the pages that they attend to.")
	}
}

// ampleRegisters is what a thread has beside DefaultConsumers: enough for heads of
// up to widestHeadOf8Warps.
const ampleRegisters = 168

// threadRegisters is how many registers nvcc may give a thread beside n
// consumer warps and a producer warp on sm_90: each of an SM's four parts has
// 16384 for its warps, a thread at most 255, in multiples of 8 below.
func threadRegisters(consumers int) int {
	warps := pipeline.CeilDiv(consumers+1, 4) // of a part
	return min(255, 16384/(32*warps)/8*8)
}

// reportPhases is the table of phases with what each run of one reads.
func (mk *Kernel) reportPhases(r *report) {
	t := table.New("phase", ">runs", ">reads a run", ">even", "computes")
	for i := range mk.Phases {
		p := &mk.Phases[i]
		reads, even := "", ""
		if m, e := mk.phaseMatrix(p); m != nil {
			reads, even = FormatBytes(m.StreamedBytes()), percent(e)
		} else if p.Name == phaseAttention {
			reads = "KV cache"
		}
		for n, ops := range table.Wrap(strings.Join(p.Ops, ", "), 36) {
			if n == 0 {
				t.Row(p.Name, mk.runs(p), reads, even, ops)
			} else {
				t.Row("", "", "", "", ops)
			}
		}
	}
	r.line("Phases")
	r.table(t)
	r.text("%s Over the SMs a layer's bytes are %s even (mean ÷ most), a step's %s.",
		mk.syncs(), percent(mk.Plan.Efficiency().Layer), percent(mk.Plan.Efficiency().Step))
	if !mk.Options.Repeatable() {
		r.text("NOT REPEATABLE: the SMs' parts of the down projection are added in the order in which they come, so the last bits of results differ from run to run. For comparison only.")
	}
}

// planned is how many of a step's barriers stand behind phases that a plan can leave out.
func (mk *Kernel) planned() (n int) {
	for i := range mk.Phases {
		if p := &mk.Phases[i]; p.Planned {
			n += mk.runs(p)
		}
	}
	return n
}

// syncs says what stands behind the phases, and how often in a step all SMs meet.
func (mk *Kernel) syncs() string {
	behind := func(way string) string {
		var names []string
		for i := range mk.Phases {
			if p := &mk.Phases[i]; p.Sync == way {
				names = append(names, p.Name)
			}
		}
		return strings.Join(names, ", ")
	}
	words, counted, none := behind(string(SyncWords)), behind(string(SyncCounted)), behind(syncNone)
	if words == "" && counted == "" && none == "" {
		times := fmt.Sprintf("%d a step", mk.Barriers())
		if planned := mk.planned(); planned > 0 {
			times = fmt.Sprintf("%d to %d a step, as the plan of a launch has merges or not", mk.Barriers()-planned,
				mk.Barriers())
		}
		return fmt.Sprintf("Every phase ends in a grid barrier: %s.", times)
	}
	text := "Behind " + behind(gridBarrier) + " stands a grid barrier"
	if counted != "" {
		text += ", behind " + counted + " a count of arrivals, as their output is in LL packets"
		if mk.Options.handsOn(phaseGateUp) {
			text += " (behind the last layer's " + phaseGateUp + " a grid barrier)"
		}
	}
	text += fmt.Sprintf(": %d a step.", mk.Barriers())
	if words != "" {
		verb := "writes"
		if strings.Contains(words, ",") {
			verb = "write"
		}
		text += " What " + words + " " + verb + " is waited for packet by packet."
	}
	if none != "" {
		text += " Behind " + none + " every SM goes on with what it has made itself."
	}
	return text
}

// The phases whose output is a vector that all SMs read; attention's is the one that
// reads the KV cache.
const (
	phaseAttention = "attention"
	phaseO         = "o"
	phaseDown      = "down"
)

func (mk *Kernel) reportReads(r *report) {
	t := table.New("what", ">bytes", "")
	weights := mk.Plan.WeightBytes()
	t.Row("weights", FormatBytes(weights), "every matrix once")
	if padding := mk.Plan.PackedBytes - weights; padding > 0 {
		t.Row("padding", FormatBytes(padding), "of rows, columns and scales of the packed matrices")
	}
	for _, n := range mk.contexts() {
		t.Row(fmt.Sprintf("KV of %d tokens", n), FormatBytes(mk.KVBytes(n)),
			percent(float64(mk.KVBytes(n))/float64(weights))+" of the weights")
	}
	r.line("Read from memory for a token")
	r.table(t)
}

func (mk *Kernel) reportShared(r *report) {
	p := mk.Plan
	t := table.New(">offset", ">bytes", "region", "what")
	for _, g := range p.Shared {
		for n, doc := range append(table.Wrap(mk.sharedDoc(g.Name), 44), "") {
			switch {
			case n == 0:
				t.Row(g.Offset, g.Bytes, g.Name, doc)
			case doc != "":
				t.Row("", "", "", doc)
			}
		}
	}
	r.line("Shared memory of a CTA: %d of %d bytes", p.SharedBytes, p.SharedLimit)
	r.table(t)
	r.text("Ring: %s of %d bytes, %s; a stage holds %s or %d tokens of a KV head.",
		plural.Of(p.Stages, "stage"), p.StageBytes, p.Copies(), stageHolds(p), kvTokensPerStage(p))
	mk.reportHeld(r)
}

// stageHolds says how many weights, rows × columns, the plan puts into a stage at most, of each format of its matrices:
// a chunk, or the chunks of several tiles.
func stageHolds(p *pipeline.Plan) string {
	var formats []pipeline.Format
	most := map[pipeline.Format]*pipeline.MatrixPlan{}
	for _, ms := range [][]pipeline.MatrixPlan{p.Layer, p.Final} {
		for i := range ms {
			m := &ms[i]
			if m.Across() {
				continue
			}
			if most[m.Format] == nil {
				formats = append(formats, m.Format)
			}
			if is := most[m.Format]; is == nil || m.Together*m.ChunkK > is.Together*is.ChunkK {
				most[m.Format] = m
			}
		}
	}
	var parts []string
	for i, f := range formats {
		part := fmt.Sprintf("%d × %d", pipeline.TileRows*most[f].Together, most[f].ChunkK)
		if i == 0 {
			part += " weights"
		}
		if len(formats) > 1 {
			part += " of " + string(cmp.Or(f, pipeline.FormatBF16))
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

// sharedDoc is the note of the kernel's shared buffer of that name.
func (mk *Kernel) sharedDoc(name string) string {
	for _, b := range mk.IR.Shareds() {
		if b.Name == name {
			return b.Doc
		}
	}
	return ""
}

// reportPrediction is the table of times predicted on a machine; on the executor there are
// none.
func (mk *Kernel) reportPrediction(r *report, m *machine.Machine) {
	if m.Executor {
		r.line("Nothing is predicted")
		r.text("The machine's file is of the executor, whose figures mean nothing: no time follows from them, and no choice of syncs. mkgen calibrate on a GPU measures that one.")
		return
	}
	t := table.New(">context", ">reading", ">unhidden", ">a token", ">tokens/s", ">of the ceiling")
	for _, n := range mk.contexts() {
		p := mk.Predict(m, n, 1)
		t.Row(n, formatSeconds(p.Stream), formatSeconds(p.Unhidden()), formatSeconds(p.Total), formatRate(1/p.Total),
			percent(p.Floor/p.Total))
	}
	what := ""
	if mk.Ragged() {
		what = ", a step of one token of one sequence"
	}
	r.line("Predicted, not measured, at %s%s", formatGBps(m.Ceiling.Median), what)
	r.table(t)
	p := mk.Plan
	r.text("For %s. Reading: the most weights and the most KV of an SM, which may be two SMs, at what one streams with "+
		"%s of %d bytes in flight (%s). Unhidden: what the ring does not hide of %d syncs of all SMs, of what is read behind "+
		"them, and of arithmetic. Ceiling: weights and KV once at the full bandwidth. Left out: launch, the choice of a "+
		"token.%s",
		m.About(), copies(p.InFlight), p.StageBytes, formatGBps(m.BytesPerSecond(p.SMs, mk.inFlight())/float64(p.SMs)/1e9),
		mk.Barriers()-mk.planned(), mk.drainAssumed())
}
