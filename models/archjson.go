package models

import (
	"encoding/json"
	"fmt"
)

// MarshalText returns the activation's name.
func (a Act) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// MarshalText returns "none" or "rms".
func (k NormKind) MarshalText() ([]byte, error) {
	switch k {
	case NoNorm:
		return []byte("none"), nil
	case RMSNorm:
		return []byte("rms"), nil
	}
	return nil, fmt.Errorf("models: norm kind %d", uint8(k))
}

// MarshalText returns the role's name.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// MarshalJSON adds the factor of sines and cosines.
func (r Rope) MarshalJSON() ([]byte, error) {
	type plain Rope
	return json.Marshal(struct {
		plain
		Factor float64
	}{plain(r), r.Factor()})
}
