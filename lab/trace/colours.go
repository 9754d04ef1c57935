package trace

import "fmt"

// rgb is a colour as SVG writes it.
type rgb struct{ r, g, b uint8 }

func (c rgb) String() string { return fmt.Sprintf("#%02x%02x%02x", c.r, c.g, c.b) }

// light is the colour mixed with three parts of white.
func (c rgb) light() rgb {
	mix := func(x uint8) uint8 { return uint8((int(x) + 3*255) / 4) }
	return rgb{mix(c.r), mix(c.g), mix(c.b)}
}

// hues are colours that people with any kind of sight tell apart (Okabe and Ito, then
// some of Tol's); neighbours differ in lightness, too.
var hues = []rgb{{0, 114, 178}, {230, 159, 0}, {0, 158, 115}, {204, 121, 167}, {86, 180, 233}, {213, 94, 0},
	{136, 34, 85}, {153, 153, 51}, {51, 34, 136}, {68, 170, 153}}

// What is no phase.
var (
	ink      = rgb{34, 34, 34}
	faint    = rgb{110, 110, 110}
	gridline = rgb{222, 222, 222}

	syncColour   = rgb{150, 150, 150}
	othersColour = rgb{60, 60, 60}

	copyingColour  = rgb{0, 90, 110}
	inFlightColour = rgb{120, 190, 205}
	ringFullColour = rgb{250, 222, 150}
	elseColour     = rgb{190, 190, 190}
)

// hue is the colour of the i-th phase in order of execution.
func hue(i int) rgb { return hues[i%len(hues)] }
