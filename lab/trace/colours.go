package trace

import "github.com/mkgen/mkgen/internal/picture"

// What is no phase.
var (
	syncColour   = picture.RGB{R: 150, G: 150, B: 150}
	othersColour = picture.RGB{R: 60, G: 60, B: 60}

	copyingColour  = picture.RGB{R: 0, G: 90, B: 110}
	inFlightColour = picture.RGB{R: 120, G: 190, B: 205}
	ringFullColour = picture.RGB{R: 250, G: 222, B: 150}
	elseColour     = picture.RGB{R: 190, G: 190, B: 190}
)
