package pipeline

// RingTime is what the times of one SM's ring follow from.
type RingTime struct {
	Stages, InFlight int
	BytesPerSecond   float64                 // that memory brings to the SM while copies are in flight
	CopySeconds      float64                 // from a copy's issue until it has landed, with none before it on its way
	DrainSeconds     func(bytes int) float64 // that consumers take for a chunk that lies in the ring
}

// RingClock tells when copies land and consumers drain in a ring, chunk by chunk:
//
//	issued(n) = max(freed(n − Stages), landed(n − InFlight))
//	landed(n) = max(landed(n − 1) + bytes(n)/BytesPerSecond, issued(n) + CopySeconds)
//	freed(n)  = max(landed(n), when consumers come to it) + times · DrainSeconds(bytes(n))
//
// So memory goes on while consumers do something else, until the ring is full; then it
// begins again with the first stage that they free, a copy's latency later. It is a model
// of one SM, whose share of the bandwidth is the same at all times. Times are seconds.
type RingClock struct {
	t      RingTime
	chunks []int     // bytes of those to come, from the first that was not freed
	ahead  int       // of them are issued
	landed []float64 // of the issued ones
	freed  []float64 // the last Stages, oldest first
	last   []float64 // when the last InFlight landed, oldest first
	before float64   // when the chunk before the first to be issued landed
	now    float64   // the consumers'
}

// NewRingClock starts at time 0 with an empty ring, for consumers that drain these chunks
// (bytes of each, positive, in order).
func NewRingClock(t RingTime, chunks []int) *RingClock {
	c := &RingClock{t: t, chunks: chunks, freed: make([]float64, t.Stages), last: make([]float64, t.InFlight)}
	c.issue()
	return c
}

// issue issues what there are free stages for.
func (c *RingClock) issue() {
	for ; c.ahead < min(c.t.Stages, len(c.chunks)); c.ahead++ {
		bytes := float64(c.chunks[c.ahead])
		issued := max(c.freed[c.ahead], c.last[0])
		at := max(c.before+bytes/c.t.BytesPerSecond, issued+c.t.CopySeconds)
		c.landed = append(c.landed, at)
		c.last, c.before = append(c.last[1:], at), at
	}
}

// Now is the consumers' time.
func (c *RingClock) Now() float64 { return c.now }

// Until makes the consumers do something else up to a time that is not past.
func (c *RingClock) Until(at float64) { c.now = max(c.now, at) }

// Drain makes them drain the next n chunks, each in some times DrainSeconds; waited is for how long they found none.
func (c *RingClock) Drain(n int, times float64) (waited float64) {
	for range n {
		if c.landed[0] > c.now {
			waited += c.landed[0] - c.now
			c.now = c.landed[0]
		}
		c.now += times * c.t.DrainSeconds(c.chunks[0])
		c.chunks, c.landed, c.ahead = c.chunks[1:], c.landed[1:], c.ahead-1
		c.freed = append(c.freed[1:], c.now)
		c.issue()
	}
	return waited
}

// Full is whether the ring is full now: all that there are stages for has landed, and
// memory is quiet as far as this SM is concerned.
func (c *RingClock) Full() bool {
	return c.ahead == 0 || c.landed[c.ahead-1] <= c.now
}
