package sweep

import (
	"image/color"
	"math"
	"slices"

	"github.com/mkgen/mkgen/internal/picture"
	"gonum.org/v1/plot/palette"
	"gonum.org/v1/plot/palette/brewer"
	"gonum.org/v1/plot/palette/moreland"
)

// The shares between which the colours run; one below has the colour of the lowest. They
// are the same in every picture, so that pictures can be compared.
const (
	lowShare  = 0.5
	highShare = 1.0
)

const lightColours = 7

// scale is the colours of shares. They are ColorBrewer's YlGnBu, interpolated in CIELAB:
// the luminance falls from the lowest share to the highest, so people with any kind of
// sight, and prints in grey, have the same order. The darkest of the nine are left out:
// dark text can then be read on all but the highest shares.
type scale struct{ palette.ColorMap }

func newScale() scale {
	p, err := brewer.GetPalette(brewer.TypeSequential, "YlGnBu", 9)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	rising := slices.Clone(p.Colors()[:lightColours]) // the palette's own
	slices.Reverse(rising)
	m, err := moreland.NewLuminance(rising)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	m.SetMin(0)
	m.SetMax(1)
	return scale{m}
}

// of is the colour of a share.
func (s scale) of(share float64) picture.RGB {
	at := min(1, max(0, (share-lowShare)/(highShare-lowShare)))
	c, err := s.At(1 - at)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	n := color.NRGBAModel.Convert(c).(color.NRGBA)
	return picture.RGB{R: n.R, G: n.G, B: n.B}
}

// luminance is the relative luminance of WCAG 2: 0 is black, 1 white.
func luminance(c picture.RGB) float64 {
	linear := func(v uint8) float64 {
		x := float64(v) / 255
		if x <= 0.04045 {
			return x / 12.92
		}
		return math.Pow((x+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(c.R) + 0.7152*linear(c.G) + 0.0722*linear(c.B)
}

// contrast is WCAG's ratio of two colours, 1 to 21.
func contrast(a, b picture.RGB) float64 {
	la, lb := luminance(a), luminance(b)
	return (max(la, lb) + 0.05) / (min(la, lb) + 0.05)
}

// on is what text on a colour is read best in.
func on(background picture.RGB) picture.RGB {
	if contrast(picture.White, background) > contrast(picture.Black, background) {
		return picture.White
	}
	return picture.Black
}
