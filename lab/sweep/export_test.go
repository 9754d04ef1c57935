package sweep

import "github.com/mkgen/mkgen/internal/jsonfile"

// Parse is ReadFile of a file with that text.
func Parse(data []byte) (*Record, error) { return jsonfile.ParseChecked[Record](data, kind) }
