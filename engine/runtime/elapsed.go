//go:build cuda

package runtime

import "time"

// Elapsed is the device time of the last launch, between two events.
func (g *GPU) Elapsed() time.Duration { return g.Last }
