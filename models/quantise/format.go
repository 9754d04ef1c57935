package quantise

import (
	"fmt"
	"strings"
)

// Format is how weights are stored.
type Format struct {
	Name     string // as on the command line
	layout   string // what compressed-tensors calls it
	strategy string // likewise, of weights that share a scale
	bits     int
	group    int // columns that share a scale, 0 for a row
	float    bool
}

// Formats lists them.
func Formats() []Format {
	const pack = "pack-quantized"
	return []Format{
		{"i4g128", pack, "group", 4, 128, false},
		{"i4g64", pack, "group", 4, 64, false},
		{"i4g32", pack, "group", 4, 32, false},
		{"i8", "int-quantized", "channel", 8, 0, false},
		{"e4m3", "float-quantized", "channel", 8, 0, true},
	}
}

// Parse finds a format by its name.
func Parse(name string) (Format, error) {
	var names []string
	for _, f := range Formats() {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
	}
	return Format{}, fmt.Errorf("found %q, want one of %s", name, strings.Join(names, ", "))
}

// String is the name, for messages.
func (f Format) String() string { return f.Name }

// columns returns how many columns of a matrix share a scale.
func (f Format) columns(cols int) int {
	if f.group == 0 {
		return cols
	}
	return f.group
}
