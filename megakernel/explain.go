package megakernel

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/internal/table"
	"github.com/mkgen/mkgen/pipeline"
)

// Explain writes the plan in detail, after what Summary writes: matrices and
// who owns how many of their tiles, the phases' predicted times, KV cache and
// splits, the params block, and what the program is made of. The same kernel
// gives the same text. The error is w's.
func (mk *Kernel) Explain(w io.Writer, bytesPerSecond float64) error {
	if err := mk.Summary(w, bytesPerSecond); err != nil {
		return err
	}
	r := &report{w: w}
	mk.reportMatrices(r)
	mk.reportShares(r)
	mk.reportTimes(r, bytesPerSecond)
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
		t.Row(m.Name, m.Rows, m.K, m.Tiles, m.ChunksPerTile, m.ChunkK, m.TailK, FormatBytes(m.Bytes()))
	}
	r.line("\nMatrices: tiles of %d rows, each cut into chunks of so many columns", pipeline.TileRows)
	r.table(t)
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
		for n, part := range wrap(who, 38) {
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

func (mk *Kernel) reportTimes(r *report, bytesPerSecond float64) {
	p := mk.Plan
	contexts := mk.contexts()
	last := contexts[len(contexts)-1]
	t := table.New("phase", ">runs", ">busiest SM", ">reading", ">hand-off", ">in a step")
	for i := range mk.Phases {
		f := &mk.Phases[i]
		bytes, handoff := int64(0), 0.0
		if m, _ := mk.phaseMatrix(f); m != nil {
			bytes = int64(m.MaxCount()) * m.TileBytes()
		} else if f.Name == phaseAttention {
			bytes = mk.kvBusiest(last) / int64(mk.Config.Layers)
		}
		if f.Handoff != "" {
			handoff = ExchangeSeconds
		}
		reading := float64(bytes) / p.SMBytesPerSecond(machine(bytesPerSecond))
		t.Row(f.Name, mk.runs(f), FormatBytes(bytes), formatSeconds(reading), formatSeconds(handoff), formatSeconds(float64(mk.runs(f))*(reading+handoff)))
	}
	r.line("\nPhases with %d tokens in the cache, predicted at %.0f GB/s", last, bytesPerSecond/1e9)
	r.table(t)
	r.text("Each for itself: the ring reads ahead over the ends of phases, so a step takes what the prediction above says, not the sum.")
}

func (mk *Kernel) reportKV(r *report) {
	l, o := mk.KV, &mk.Options
	t := attention(&mk.Config, o)
	items := t.Items() * o.Splits
	r.line("\nKV cache")
	r.text("[%d layers][pages][%d KV heads][%d slots][K, V][%d] %s: %s a position, %s a page of all layers.",
		l.Layers, l.Heads, l.Page, l.D, o.KV, FormatBytes(mk.KVBytes(1)), FormatBytes(int64(l.Layers)*int64(l.PageBytes())))
	if l.ScalesLen() > 0 {
		r.text("A scale for the keys and one for the values of each layer and KV head: an element stands for itself times its scale, at most 448 times.")
	}
	if mk.Ragged() {
		mk.reportPlanned(r)
		return
	}
	r.text("Attention is %s, a KV head and one of %s each, dealt to %s in turn: at most %d an SM, %s without one. An item reads chunks of %d tokens.",
		plural(items, "item"), plural(o.Splits, "split"), plural(o.SMs, "SM"), ceilDiv(items, o.SMs), plural(max(0, o.SMs-items), "SM"), kvTokensPerStage(mk.Plan))
	if t.Parts() > 1 {
		r.text("A KV head's %d query heads are %d items, each of which reads the KV for itself.", t.Group(), t.Parts())
	}
}

// reportPlanned is what a plan may have.
func (mk *Kernel) reportPlanned(r *report) {
	limits := mk.Limits(0)
	classes := ""
	if n := len(mk.specs); n > 1 {
		classes = fmt.Sprintf(" for each of %d kinds of layers", n)
	}
	r.text("Attention is what a plan says: up to %s an SM and %s%s. An item reads chunks of %d tokens.",
		plural(limits.ItemsPerCTA, "item"), plural(limits.Partials, "partial state"), classes, mk.ChunkTokens())
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
		for n, part := range wrap(doc, 34) {
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
	r.line("\nProgram: %d instructions, %s, %s, %s, %s", st.Instrs, plural(st.Loops, "loop"),
		plural(st.Branches, "If"), plural(st.Barriers, "CTA barrier"), plural(st.Waits, "wait"))
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
			t.Row(n, m.Name, c.Tile, span(c.Tile*pipeline.TileRows, pipeline.TileRows), span(c.K, c.Columns), c.Bytes, c.Offset)
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
