package sweep

import (
	"fmt"
	"math"
	"slices"
	"strings"

	svg "github.com/ajstarks/svgo/float"
	"github.com/mkgen/mkgen/internal/atomicfile"
	"github.com/mkgen/mkgen/internal/picture"
	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/lab/bench"
)

// The picture's measures, in pixels.
const (
	margin     = 28
	rowLabel   = 84  // left of the cells
	cellWidth  = 150 // with the gap to the next
	cellHeight = 104
	gap        = 4
	gridTop    = 150
	barWidth   = 340 // of the legend's scale
	barHeight  = 14
	leastWidth = 860 // what head and legend take
)

var (
	ink   = picture.RGB{R: 0x0b, G: 0x0f, B: 0x14}
	paper = picture.White
	muted = picture.RGB{R: 0x57, G: 0x60, B: 0x6a}
	faint = picture.RGB{R: 0xc9, G: 0xd1, B: 0xd9}
)

// heat draws a record.
type heat struct {
	*picture.Picture
	r      *Record
	colour scale
	left   float64 // where the cells begin
	right  float64 // where the picture's content ends
}

// SVG draws a record: rows are batches, columns contexts, each cell coloured by its share
// of the ceiling, with the figures in it; what was not measured is hatched and says why.
// The same record gives the same bytes. The executor's has no picture: its times are none
// of a GPU.
func SVG(r *Record) ([]byte, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	if r.Executor() {
		return nil, fmt.Errorf("plot: the sweep is of the executor, whose times are none of a GPU")
	}
	h := &heat{Picture: picture.New(), r: r, colour: newScale(), left: margin + rowLabel}
	width := max(leastWidth, h.left+float64(len(r.Contexts))*cellWidth+margin)
	h.right = width - margin
	bottom := gridTop + float64(len(r.Batches))*cellHeight
	h.defs()
	h.head()
	h.grid()
	h.legend(bottom + 34)
	return h.Finish(bench.PlotGenerator, width, bottom+140, fmt.Sprintf(
		"%s on %s: share of the streaming ceiling over batch and context, %s", r.Model, r.GPU, r.mark())), nil
}

// WriteSVG draws into a file, written whole or not at all; its directory is made.
func WriteSVG(path string, r *Record) error {
	data, err := SVG(r)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, data)
}

// mark is what the picture says of the gate.
func (r *Record) mark() string {
	if r.Gate == Gated {
		return "gate passed"
	}
	return bench.Ungated
}

// defs are the hatching of cells without figures, and the legend's scale.
func (h *heat) defs() {
	h.Def()
	h.Pattern("none", 0, 0, 9, 9, "user", `patternTransform="rotate(45)"`)
	h.Rect(0, 0, 9, 9, `fill="#f6f8fa"`)
	h.Rect(0, 0, 2, 9, `fill="#e1e5ea"`)
	h.PatternEnd()
	var stops []svg.Offcolor
	for at := 0; at <= 100; at += 5 {
		c := h.colour.of(lowShare + (highShare-lowShare)*float64(at)/100)
		stops = append(stops, svg.Offcolor{Offset: uint8(at), Color: c.String(), Opacity: 1})
	}
	h.LinearGradient("scale", 0, 0, 100, 0, stops)
	h.DefEnd()
}

// write puts text with its baseline at y; style is attributes.
func (h *heat) write(x, y float64, size float64, style, text string) {
	h.Text(x, y, text, fmt.Sprintf(`font-size="%g" %s`, size, style))
}

// head says what was measured where, when, and of which commit, and whether a gate was
// passed.
func (h *heat) head() {
	r := h.r
	h.write(margin, 44, 22, `font-weight="600" `+picture.Fill(ink), r.Model+": share of the streaming ceiling")
	h.write(margin, 68, 13, picture.Fill(muted),
		join(r.GPU, r.Date, "commit "+short(r.Commit), r.Compiler, "driver "+r.Driver))
	h.write(margin, 87, 13, picture.Fill(muted),
		join(r.DType+" weights, "+shortHash(r.Weights), plural.Of(r.Rounds, "round")+" of "+plural.Of(r.Tokens, "token"),
			h.ceilings()))
	text, colour, background := r.mark(), ink, paper
	if r.Gate != Gated {
		colour, background = paper, ink
	}
	width := 9*float64(len(text)) + 22
	h.Roundrect(h.right-width, 24, width, 26, 4, 4, picture.Fill(background),
		` stroke="`+ink.String()+`" stroke-width="1.5"`)
	h.write(h.right-width/2, 42, 13, `font-weight="700" letter-spacing="0.6" text-anchor="middle" `+picture.Fill(colour), text)
	h.write(h.left, gridTop-34, 12, picture.Fill(muted), "tokens in the KV cache of each sequence")
	h.write(margin, gridTop-12, 12, picture.Fill(muted), "batch")
}

// join puts words that are not empty in a row.
func join(words ...string) string {
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" || w == "driver " }), "  ·  ")
}

// short is a hash's first characters, and of a commit whether it was changed.
func short(commit string) string {
	hash, modified, _ := strings.Cut(commit, "+")
	if len(hash) > 12 {
		hash = hash[:12]
	}
	if modified != "" {
		hash += "+" + modified
	}
	return hash
}

// shortHash is the name of weights with the first characters of their hash: the record
// has all of them, the picture no room.
func shortHash(weights string) string {
	before, hash, found := strings.Cut(weights, "hash ")
	if !found {
		return weights
	}
	return before + "hash " + short(hash)
}

// ceilings are the least and the greatest that were measured.
func (h *heat) ceilings() string {
	low, high := math.Inf(1), 0.0
	for i := range h.r.Cells {
		if c := h.r.Cells[i].Case; c != nil {
			low, high = min(low, c.CeilingGBps), max(high, c.CeilingGBps)
		}
	}
	switch {
	case high == 0:
		return ""
	case fmt.Sprintf("%.0f", low) == fmt.Sprintf("%.0f", high):
		return fmt.Sprintf("ceiling %.0f GB/s", high)
	}
	return fmt.Sprintf("ceiling %.0f to %.0f GB/s", low, high)
}

// grid draws the heads of columns and rows, and the cells.
func (h *heat) grid() {
	for i, n := range h.r.Contexts {
		h.write(h.left+(float64(i)+0.5)*cellWidth-gap/2, gridTop-12, 16,
			`font-weight="600" text-anchor="middle" `+picture.Fill(ink), fmt.Sprint(n))
	}
	for i := range h.r.Cells {
		c := &h.r.Cells[i]
		row, column := float64(i/len(h.r.Contexts)), float64(i%len(h.r.Contexts))
		y := gridTop + row*cellHeight
		if column == 0 {
			h.write(margin, y+50, 22, `font-weight="600" `+picture.Fill(ink), fmt.Sprint(c.Batch))
			h.write(margin, y+68, 11, picture.Fill(muted), "kernel of")
			h.write(margin, y+82, 11, picture.Fill(muted), plural.Of(c.Rows, "row"))
		}
		h.Tipped(h.tip(c))
		if x := h.left + column*cellWidth; c.Case == nil {
			h.none(x, y, c)
		} else {
			h.cell(x, y, c.Case)
		}
		h.Gend()
	}
}

// cell draws a cell with figures.
func (h *heat) cell(x, y float64, c *bench.Case) {
	background := h.colour.of(c.Share)
	text := on(background)
	step, _, _ := c.Step()
	const width, height = cellWidth - gap, cellHeight - gap
	h.Roundrect(x, y, width, height, 3, 3, picture.Fill(background), ` stroke="`+ink.String()+`" stroke-opacity="0.18"`)
	middle := ` text-anchor="middle" ` + picture.Fill(text)
	h.write(x+width/2, y+32, 23, `font-weight="600"`+middle, percent(c.Share))
	h.write(x+width/2, y+52, 13, middle, micros(step)+" µs a step")
	for i, v := range []struct {
		name string
		us   float64
	}{{"p50", c.P50}, {"p99", c.P99}, {"max", c.Max}} {
		at := x + width*(float64(i)+0.5)/3
		h.write(at, y+74, 10.5, middle, v.name)
		h.write(at, y+90, 12.5, middle, micros(v.us))
	}
}

// none draws a cell without figures.
func (h *heat) none(x, y float64, c *Cell) {
	const width, height = cellWidth - gap, cellHeight - gap
	h.Roundrect(x+0.5, y+0.5, width-1, height-1, 3, 3, `fill="url(#none)"`,
		` stroke="`+faint.String()+`" stroke-dasharray="4 3"`)
	lines := wrap(c.Why, 22, 3)
	top := y + height/2 + 4 - 7.5*float64(len(lines))
	h.write(x+width/2, top, 13, `font-weight="600" text-anchor="middle" `+picture.Fill(ink), string(c.Status))
	for i, line := range lines {
		h.write(x+width/2, top+17+15*float64(i), 11.5, `text-anchor="middle" `+picture.Fill(ink), line)
	}
}

// tip is what a cell says when it is pointed at.
func (h *heat) tip(c *Cell) string {
	where := fmt.Sprintf("batch %d, %d tokens in the cache of each: ", c.Batch, c.Context)
	if c.Case == nil {
		return where + string(c.Status) + ". " + c.Why
	}
	step, low, high := c.Case.Step()
	return where + fmt.Sprintf("%s of %.0f GB/s. A step takes %s µs, median of %s from %s to %s; %.1f tokens a second.",
		percent(c.Case.Share), c.Case.CeilingGBps, micros(step), plural.Of(len(c.Case.Rounds), "round"), micros(low),
		micros(high), c.Case.TokensPerSecond)
}

// legend is the scale, and what the figures are.
func (h *heat) legend(y float64) {
	h.Rect(h.left, y, barWidth, barHeight, `fill="url(#scale)" stroke="`+ink.String()+`" stroke-opacity="0.25"`)
	for share := 50; share <= 100; share += 10 {
		x := h.left + barWidth*float64(share-50)/50
		h.Line(x, y+barHeight, x, y+barHeight+5, `stroke="`+muted.String()+`"`)
		label := fmt.Sprintf("%d %%", share)
		if share == 50 {
			label = "≤ 50 %"
		}
		h.write(x, y+barHeight+19, 11.5, `text-anchor="middle" `+picture.Fill(ink), label)
	}
	h.Rect(h.left+barWidth+44, y-1, 24, 16, `fill="url(#none)" stroke="`+faint.String()+`" stroke-dasharray="4 3"`)
	h.write(h.left+barWidth+76, y+12, 12, picture.Fill(ink), "not measured, and why")
	for i, line := range []string{
		"Share: the bytes that a step must read (weights once, KV of each sequence once) over its time, over what bulk copies alone stream.",
		"µs a step: all sequences together, by the GPU's clock, launches included; the median of the rounds.",
		"p50, p99, max: of single steps of all rounds, what each sequence waits for a token, in µs.",
	} {
		h.write(margin, y+58+16*float64(i), 11, picture.Fill(muted), line)
	}
}
