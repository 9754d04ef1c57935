package megakernel

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/internal/table"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/machine"
)

// Explain writes the plan in detail, after what Summary writes: matrices and
// who owns how many of their tiles, the phases' predicted times and what syncs cost on a
// machine that is not the executor, KV cache and splits, the params block, and what the program is made of. The same
// kernel and machine give the same text. The error is w's.
func (mk *Kernel) Explain(w io.Writer, m *machine.Machine) error {
	if err := mk.Summary(w, m); err != nil {
		return err
	}
	r := &report{w: w}
	mk.reportMatrices(r)
	mk.reportShares(r)
	if !m.Executor {
		mk.reportTimes(r, m)
		mk.reportEdges(r, m)
	}
	mk.reportKV(r)
	mk.reportParams(r)
	mk.reportProgram(r)
	return r.err
}

// planMatrix is a matrix of the plan with its place.
type planMatrix struct {
	*pipeline.MatrixPlan
	layer    int // 0, or pipeline.FinalLayer
	evenness float64
}

func (mk *Kernel) planMatrices() []planMatrix {
	e := mk.Plan.Efficiency()
	var ms []planMatrix
	for i := range mk.Plan.Layer {
		ms = append(ms, planMatrix{&mk.Plan.Layer[i], 0, e.LayerMatrix[i]})
	}
	for i := range mk.Plan.Final {
		ms = append(ms, planMatrix{&mk.Plan.Final[i], pipeline.FinalLayer, e.FinalMatrix[i]})
	}
	return ms
}

func (mk *Kernel) reportMatrices(r *report) {
	t := table.New("matrix", ">rows", ">columns", ">tiles", ">chunks", ">columns", ">last", ">bytes")
	for _, m := range mk.planMatrices() {
		t.Row(m.Name, m.Rows, m.K, m.Tiles, m.ChunksPerTile, m.ChunkK, m.TailK, FormatBytes(m.StreamedBytes()))
	}
	r.line("\nMatrices: tiles of %d rows, each cut into chunks of n columns", pipeline.TileRows)
	r.table(t)
	for _, m := range mk.planMatrices() {
		if m.Across() {
			r.text("Of %s a tile is %d columns of all rows, which the same tile of %s makes; its chunks are counted in 16 bytes.", m.Name, pipeline.AcrossColumns, m.From)
		}
	}
	if mk.Options.otherWeights() != "" {
		r.text("Prefill kernels make the matrices of a layer bf16 before they multiply: %s of device memory, for all of them together.", FormatBytes(mk.Plan.InBF16().LayerBytes))
	}
	if mk.KV.ScalesLen() > 0 {
		r.text("They read keys and values from a copy in bf16, of a layer at a time: %d bytes of device memory for each token of the cache.",
			2*mk.KV.PageBytes()/mk.KV.Page)
	}
}

func (mk *Kernel) reportShares(r *report) {
	p := mk.Plan
	t := table.New("matrix", ">fewest", ">most", ">even", "SMs that own the most")
	for _, m := range mk.planMatrices() {
		least, most := slices.Min(m.Count), m.MaxCount()
		who := "all"
		if least != most {
			who = ranges(m.Count, most)
		}
		for n, part := range table.Wrap(who, 38) {
			if n == 0 {
				t.Row(m.Name, least, most, percent(m.evenness), part)
			} else {
				t.Row("", "", "", "", part)
			}
		}
	}
	r.line("\nShares: tiles an SM owns")
	r.table(t)
	for _, l := range []struct {
		name     string
		layer    int
		evenness float64
	}{{"A layer", 0, p.Efficiency().Layer}, {"The final phase", pipeline.FinalLayer, p.Efficiency().Final}} {
		bytes, chunks := make([]int64, p.SMs), make([]int64, p.SMs)
		for s := range p.SMs {
			bytes[s], chunks[s] = p.SMBytes(s, l.layer), p.ChunkCount(s, l.layer)
		}
		r.text("%s: %d to %d bytes in %d to %d chunks an SM, %s even.", l.name,
			slices.Min(bytes), slices.Max(bytes), slices.Min(chunks), slices.Max(chunks), percent(l.evenness))
	}
}

// ranges lists the indices at which counts is n: "0-3 7".
func ranges(counts []int, n int) string {
	var parts []string
	for i := 0; i < len(counts); i++ {
		if counts[i] != n {
			continue
		}
		from := i
		for i+1 < len(counts) && counts[i+1] == n {
			i++
		}
		if from == i {
			parts = append(parts, fmt.Sprint(i))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", from, i))
		}
	}
	return strings.Join(parts, " ")
}

func (mk *Kernel) reportTimes(r *report, m *machine.Machine) {
	contexts := mk.contexts()
	last := contexts[len(contexts)-1]
	p := mk.Predict(m, last, 1)
	t := table.New("phase", ">runs", ">busiest SM", ">work", ">chunks", ">sync", ">a run", ">in a step")
	for _, f := range p.Phases {
		t.Row(f.Name, f.Runs, FormatBytes(f.Most), formatSeconds(f.Work), formatSeconds(f.Chunks), formatSeconds(f.Sync),
			formatSeconds(f.Time), formatSeconds(float64(f.Runs)*f.Time))
	}
	r.line("\nPhases with %d tokens in the cache, predicted at %s", last, formatGBps(m.Ceiling.Median))
	r.table(t)
	r.text("From the sync before to the end of its own, mean over the SMs. Work: what other SMs wrote is read, arithmetic. Chunks: waits for them, the ring is empty. The ring reads ahead while consumers are at a sync, so a phase may take less than its bytes do.")
	busy := mk.inFlight()
	r.text("A copy takes %.2f µs to land. With %s of %d bytes in flight on each SM a load from L2 takes %.2f µs and SMs wait %.1f at a grid barrier, when memory is quiet %.2f and %.1f. Consumers drain a full stage in %.2f µs.",
		m.CopySeconds()*1e6, copies(mk.Plan.InFlight), mk.Plan.StageBytes, m.LoadSeconds(busy)*1e6, m.WaitSeconds(busy)*1e6,
		m.LoadSeconds(0)*1e6, m.WaitSeconds(0)*1e6, m.DrainSeconds(mk.Plan.StageBytes)*1e6)
}

func (mk *Kernel) reportKV(r *report) {
	l, o := mk.KV, &mk.Options
	t := attentionOf(&mk.Config, o)
	items := t.Items() * o.Splits
	r.line("\nKV cache")
	r.text("[%s][pages][%s][%s][K, V][%d] %s: %s a position, %s a page of all layers.",
		plural.Of(l.Layers, "layer"), plural.Of(l.Heads, "KV head"), plural.Of(l.Page, "slot"), l.D, o.KV,
		FormatBytes(mk.KVTokenBytes()), FormatBytes(int64(l.Layers)*int64(l.PageBytes())))
	if l.ScalesLen() > 0 {
		r.text("A scale for the keys and one for the values of each layer and KV head: an element stands for itself times its scale, at most 448 times.")
	}
	if mk.Ragged() {
		mk.reportPlanned(r)
		return
	}
	r.text("Attention is %s, a KV head and one of %s each, dealt to %s in turn: at most %d an SM, %s without one. An item reads chunks of %d tokens.",
		plural.Of(items, "item"), plural.Of(o.Splits, "split"), plural.Of(o.SMs, "SM"), pipeline.CeilDiv(items, o.SMs),
		plural.Of(max(0, o.SMs-items), "SM"), kvTokensPerStage(mk.Plan))
	if t.Parts() > 1 {
		r.text("A KV head's %d query heads are %d items, each of which reads the KV for itself.", t.Group(), t.Parts())
	}
	mk.reportUnsplit(r)
}

// reportPlanned is what a plan may have.
func (mk *Kernel) reportPlanned(r *report) {
	limits := mk.Limits(0)
	classes := ""
	if n := len(mk.specs); n > 1 {
		classes = fmt.Sprintf(" for each of %d kinds of layers", n)
	}
	r.text("Attention is what a plan says: up to %s an SM and %s%s. An item reads chunks of %d tokens.",
		plural.Of(limits.ItemsPerCTA, "item"), plural.Of(limits.Partials, "partial state"), classes, mk.ChunkTokens())
}

func (mk *Kernel) reportParams(r *report) {
	fields, size := mk.IR.ParamsLayout()
	t := table.New(">offset", "type", "name", ">bytes", "what")
	for _, f := range fields {
		typ, bytes, doc := f.Type.String(), "", ""
		if f.Buf != nil {
			typ, doc = f.Buf.Elem.String()+" *", f.Buf.Doc
			if bytes = fmt.Sprint(f.Buf.Bytes()); f.Buf.Len == 0 {
				bytes = "host's"
			}
		} else {
			doc = f.Param.Doc
		}
		for n, part := range table.Wrap(doc, 32) {
			if n == 0 {
				t.Row(f.Offset, typ, f.Name, bytes, part)
			} else {
				t.Row("", "", "", "", part)
			}
		}
	}
	r.line("\nParams block: %d bytes; a pointer for each buffer, then the scalars", size)
	r.table(t)
}

func (mk *Kernel) reportProgram(r *report) {
	st := ir.Stats(mk.IR)
	r.line("\nProgram: %d instructions, %s, %s, %s, %s", st.Instrs, plural.Of(st.Loops, "loop"),
		plural.Of(st.Branches, "If"), plural.Of(st.Barriers, "CTA barrier"), plural.Of(st.Waits, "wait"))
	for _, a := range []struct {
		name   string
		counts []ir.AccessCount
	}{{"loads", st.Loads}, {"stores", st.Stores}} {
		var parts []string
		for _, c := range a.counts {
			parts = append(parts, fmt.Sprintf("%s %d B × %d", c.Space, c.Bytes, c.N))
		}
		r.text("%s: %s", a.name, strings.Join(parts, ", "))
	}
	var parts []string
	for _, c := range st.Ops {
		parts = append(parts, fmt.Sprintf("%s %d", c.Op, c.N))
	}
	r.text("ops: %s", strings.Join(parts, ", "))
}

// ExplainSM writes what SM sm (0 to SMs-1, else an error) reads of the weights
// in a layer and in the final phase, a line a chunk, in order.
func (mk *Kernel) ExplainSM(w io.Writer, sm int) error {
	p := mk.Plan
	if sm < 0 || sm >= p.SMs {
		return fmt.Errorf("SM %d, want 0 to %d", sm, p.SMs-1)
	}
	r := &report{w: w}
	for _, layer := range []int{0, pipeline.FinalLayer} {
		t := table.New(">chunk", "matrix", ">tile", ">rows", ">columns", ">bytes", ">at byte")
		n := 0
		for c := range p.LayerChunks(sm, layer) {
			m := &p.Matrices(layer)[c.Matrix]
			rows, columns := span(c.Tile*pipeline.TileRows, pipeline.TileRows), span(c.K, c.Columns)
			if m.Across() { // a group is as many bytes in either
				of := func(columns int) int { return columns / pipeline.GroupK * pipeline.AcrossRows }
				rows, columns = span(of(c.K), of(c.Columns)), span(c.Tile*pipeline.AcrossColumns, pipeline.AcrossColumns)
			}
			t.Row(n, m.Name, c.Tile, rows, columns, c.Bytes, c.Offset)
			n++
		}
		if layer == 0 {
			r.line("SM %d of %d, layer 0", sm, p.SMs)
			if p.Layers > 1 {
				r.text("Each later layer's chunks lie %d bytes further on.", p.LayerBytes)
			}
		} else {
			r.line("\nSM %d of %d, the final phase", sm, p.SMs)
		}
		if n == 0 {
			r.text("It owns no rows.")
			continue
		}
		r.table(t)
	}
	return r.err
}

func span(from, n int) string { return fmt.Sprintf("%d-%d", from, from+n-1) }
