package machine

// Format is the version of the files that this package writes and reads.
const Format = 1

// Machine is what was measured of one GPU.
type Machine struct {
	Format   int    `json:"format"`
	GPU      string `json:"gpu"`                // the product's name, "NVIDIA H200"
	Driver   string `json:"driver"`             // its release, "580.159.04"
	CUDA     string `json:"cuda"`               // what the driver supports, "13.0"
	Compiler string `json:"compiler"`           // of the kernels that measured, "nvcc 13.0.88"
	Commit   string `json:"commit"`             // of the program that measured
	Date     string `json:"date"`               // of the measurement, UTC: "2026-11-21"
	Note     string `json:"note,omitempty"`     // what else a reader must know
	Executor bool   `json:"executor,omitempty"` // no GPU: the figures mean nothing

	SMs        int `json:"sms"`         // all there are; one CTA on each
	Consumers  int `json:"consumers"`   // warps that drain, a CTA
	StageBytes int `json:"stage_bytes"` // of a stage and of a copy
	Stages     int `json:"stages"`      // of the ring

	Ceiling   Figure     `json:"ceiling_gb_s"`  // the best bulk-copy stream, no arithmetic
	Idle      Latency    `json:"idle"`          // of small requests while nothing streams
	Copies    []Copies   `json:"copies"`        // by copies in flight, ascending
	Exchanges []Exchange `json:"exchanges"`     // by copies in flight, then vector_bytes, ascending
	Between   int64      `json:"between_bytes"` // that an SM streams between two exchanges where copies are in flight
	Drain     Drain      `json:"drain"`

	bandwidth float64 // of At: times what was measured; 0: as measured
}

// Figure is a measured quantity: the median and its spread, over launches, SMs or both.
type Figure struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Latency is of one request that goes to the L2 cache, from its issue to its result.
type Latency struct {
	Load   Figure `json:"load_us"`
	Atomic Figure `json:"atomic_us"` // all SMs add to one word
}

// Copies is what all SMs stream with n copies of a stage in flight on each, and
// the latency of small requests meanwhile.
type Copies struct {
	InFlight int    `json:"in_flight"`
	GBps     Figure `json:"gb_s"`
	Latency
}

// Exchange is one exchange among all SMs: each writes its part of a vector, arrives at
// the grid barrier, and reads the whole vector.
type Exchange struct {
	InFlight    int `json:"in_flight"`    // copies in flight of the ring that fills meanwhile; 0: nothing streams
	VectorBytes int `json:"vector_bytes"` // 0: the barrier alone
	// from an SM's arrival to its release: mean over the SMs, so what they are apart is in it
	Wait Figure `json:"wait_us"`
	Read Figure `json:"read_us"` // from the release until the vector lies in shared memory; 0 of none

	// Count is Wait where a count of arrivals stands in the barrier's place, which orders no
	// memory. Only of no vector, and not in every file.
	Count *Figure `json:"count_us,omitempty"`

	// Counted and Words are the same exchange with the vector in words with tags, 8 bytes of it
	// in each: behind a count of arrivals, and behind nothing, where who reads waits for each
	// word. Only of a vector, and not in every file.
	Counted *Way `json:"counted,omitempty"`
	Words   *Way `json:"words,omitempty"`

	// Unhidden is what an exchange adds to the time of the stream around it; the rest of
	// Wait and Read the ring hides. It may be 0 or less where all is hidden. Only where
	// copies are in flight, and not in every file.
	Unhidden *Figure `json:"unhidden_us,omitempty"`
}

// Way is what another way than the barrier takes.
type Way struct {
	Took     Figure  `json:"took_us"`               // from a thread's last store until the vector lies in shared memory
	Unhidden *Figure `json:"unhidden_us,omitempty"` // as that of Exchange
}

// Drain is how fast an SM's consumers multiply what lies in the ring.
type Drain struct {
	Chunk  Figure `json:"chunk_us"`  // a full stage of a matrix-vector product
	Finish Figure `json:"finish_us"` // what ends a product: the warps' sums meet; 0: too little to tell
}
