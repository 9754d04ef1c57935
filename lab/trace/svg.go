package trace

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strconv"
)

// canvas collects an SVG. Coordinates are pixels, written to a tenth.
type canvas struct{ b bytes.Buffer }

const fontFamily = `font-family="system-ui, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"`

func (c *canvas) printf(format string, args ...any) { fmt.Fprintf(&c.b, format, args...) }

// finish is the whole picture.
func (c *canvas) finish(width, height float64, label string) []byte {
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" data-generator="%[5]s" width="%[1]s" height="%[2]s" viewBox="0 0 %[1]s %[2]s" role="img" aria-label="%[3]s" %[4]s>`,
		px(width), px(height), escape(label), fontFamily, generator)
	fmt.Fprintf(&out, "\n<rect width=\"%s\" height=\"%s\" fill=\"#ffffff\"/>\n", px(width), px(height))
	out.Write(c.b.Bytes())
	out.WriteString("</svg>\n")
	return out.Bytes()
}

// px is a coordinate.
func px(x float64) string {
	s := strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64)
	if s == "-0" {
		return "0"
	}
	return s
}

// escape makes text safe within elements and attributes.
func escape(s string) string {
	var b bytes.Buffer
	if err := xml.EscapeText(&b, []byte(s)); err != nil {
		panic("BUG: " + err.Error())
	}
	return b.String()
}

// box draws a filled rectangle with a tooltip, "" for none.
func (c *canvas) box(x, y, w, h float64, fill rgb, tip string) {
	c.printf(`<rect x="%s" y="%s" width="%s" height="%s" fill="%s"`, px(x), px(y), px(w), px(h), fill)
	if tip == "" {
		c.printf("/>\n")
		return
	}
	c.printf("><title>%s</title></rect>\n", escape(tip))
}

func (c *canvas) line(x1, y1, x2, y2 float64, stroke rgb, width float64) {
	c.printf("<path d=\"M%s %sL%s %s\" stroke=\"%s\" stroke-width=\"%s\" fill=\"none\"/>\n", px(x1), px(y1), px(x2),
		px(y2), stroke, px(width))
}

// dashed is a line of dashes.
func (c *canvas) dashed(x1, y1, x2, y2 float64, stroke rgb, width float64) {
	c.printf("<path d=\"M%s %sL%s %s\" stroke=\"%s\" stroke-width=\"%s\" stroke-dasharray=\"5 3\" fill=\"none\"/>\n",
		px(x1), px(y1), px(x2), px(y2), stroke, px(width))
}

// The anchors of text.
const (
	left   = "start"
	middle = "middle"
	end    = "end"
)

// text writes s with its baseline at y.
func (c *canvas) text(x, y, size float64, anchor string, fill rgb, s string) {
	c.printf("<text x=\"%s\" y=\"%s\" font-size=\"%s\" text-anchor=\"%s\" fill=\"%s\">%s</text>\n", px(x), px(y), px(size),
		anchor, fill, escape(s))
}

// heading is text in bold.
func (c *canvas) heading(x, y float64, s string) {
	c.printf("<text x=\"%s\" y=\"%s\" font-size=\"13\" font-weight=\"600\" fill=\"%s\">%s</text>\n", px(x), px(y), ink,
		escape(s))
}

// textWidth is about how wide text of a size is.
func textWidth(s string, size float64) float64 { return 0.56 * size * float64(len([]rune(s))) }

// ticks are 0, step, 2·step … up to top (positive), step being 1, 2 or 5 times a
// power of ten so that there are at most most of them; and step's decimals.
func ticks(top float64, most int) (at []float64, decimals int) {
	step := math.Pow(10, math.Floor(math.Log10(top/float64(most))))
	for _, by := range []float64{2, 2.5, 2} { // 2, 5, 10
		if top/step > float64(most) {
			step *= by
		}
	}
	for i := 0; float64(i)*step <= top*(1+1e-9); i++ {
		at = append(at, float64(i)*step)
	}
	return at, max(0, int(-math.Floor(math.Log10(step)+1e-9)))
}

// entry is one of a legend.
type entry struct {
	colours []rgb // side by side in its swatch
	label   string
}

// legend draws entries from left to right in lines of a width and returns the
// baseline of the last line.
func (c *canvas) legend(x, y, width float64, entries []entry) float64 {
	at := x
	for _, e := range entries {
		swatch := 12 * float64(len(e.colours))
		w := swatch + 5 + textWidth(e.label, 11) + 16
		if at > x && at+w > x+width {
			at, y = x, y+18
		}
		for i, colour := range e.colours {
			c.box(at+12*float64(i), y-10, 12, 12, colour, "")
		}
		c.text(at+swatch+5, y, 11, left, ink, e.label)
		at += w
	}
	return y
}
