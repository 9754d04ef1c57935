package picture

import "fmt"

// RGB is a colour.
type RGB struct{ R, G, B uint8 }

// String is the colour as SVG writes it.
func (c RGB) String() string { return fmt.Sprintf("#%02x%02x%02x", c.R, c.G, c.B) }

// Light is the colour mixed with three parts of white.
func (c RGB) Light() RGB {
	mix := func(x uint8) uint8 { return uint8((int(x) + 3*255) / 4) }
	return RGB{mix(c.R), mix(c.G), mix(c.B)}
}

// Colours that mean nothing.
var (
	White = RGB{255, 255, 255}
	Black = RGB{0, 0, 0}
	Ink   = RGB{34, 34, 34}
	Faint = RGB{110, 110, 110}
	Grid  = RGB{222, 222, 222}
)

// hues are colours that people with any kind of sight tell apart (Okabe and Ito, then some of Tol's); neighbours differ
// in lightness, too.
var hues = []RGB{{0, 114, 178}, {230, 159, 0}, {0, 158, 115}, {204, 121, 167}, {86, 180, 233}, {213, 94, 0},
	{136, 34, 85}, {153, 153, 51}, {51, 34, 136}, {68, 170, 153}}

// Hue is the i-th colour for areas; they repeat after the tenth.
func Hue(i int) RGB { return hues[i%len(hues)] }

// curveHues are the places in hues of colours for lines and small text on white, the darkest first.
var curveHues = []int{0, 5, 2, 3, 4, 1}

// CurveHue is the i-th colour for a line and text on white; they repeat after the sixth.
func CurveHue(i int) RGB { return hues[curveHues[i%len(curveHues)]] }
