package ir

import "testing"

func TestEveryOpHasARow(t *testing.T) {
	seen := map[string]Op{}
	for _, o := range AllOps() {
		if o.Info().Sig == nil || o.Info().Name == "" {
			t.Errorf("op %d has no row", o)
		}
		if prev, ok := seen[o.String()]; ok {
			t.Errorf("ops %d and %d are both called %s", prev, o, o)
		}
		seen[o.String()] = o
	}
}
