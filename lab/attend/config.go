package attend

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
)

// Config is what a kernel is built for. Zero fields from SMs on choose: the
// megakernel's defaults.
type Config struct {
	Heads, KVHeads int // query heads, a multiple of KVHeads
	HeadDim        int // a multiple of 16
	Layers         int
	Page           int // tokens a page, a power of two
	Rows           int // query rows at most, 1 to kv.MaxRows
	KV             attention.KVType
	Selection      bool // sequences may select pages

	// Variants makes the variants that the layers take in turn, with the buffers
	// they read; the same pointer twice is one class of layers. nil: plain attention.
	Variants func(k *dsl.Kernel) []*attention.Variant

	SMs, Consumers                int
	Stages, StageBytes, InFlight  int
	Leads                         []pipeline.Throttle
	ItemsPerCTA, Partials, Shared int

	Trace int // spans that a role of a CTA can note; 0: a kernel that notes nothing
}

// The defaults.
const (
	defaultSMs        = 132
	defaultConsumers  = 8
	defaultStageBytes = pipeline.DefaultStageBytes
	defaultShared     = 232448
)

func (c Config) complete() (Config, error) {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	if c.KV == "" {
		c.KV = attention.KVBF16
	}
	for _, f := range []struct {
		name string
		v    int
	}{{"Heads", c.Heads}, {"KVHeads", c.KVHeads}, {"HeadDim", c.HeadDim}, {"Layers", c.Layers}, {"Page", c.Page},
		{"Rows", c.Rows}} {
		if f.v < 1 {
			return c, fmt.Errorf("attend: %s is %d, want at least 1", f.name, f.v)
		}
	}
	if c.Heads%c.KVHeads != 0 || c.Rows > kv.MaxRows {
		return c, fmt.Errorf("attend: %d query heads of %d KV heads and %d rows, want whole groups and at most %d rows",
			c.Heads, c.KVHeads, c.Rows, kv.MaxRows)
	}
	def(&c.SMs, defaultSMs)
	def(&c.Consumers, defaultConsumers)
	def(&c.StageBytes, max(defaultStageBytes, pipeline.KVTokenMultiple*c.layout().TokenBytes()))
	def(&c.Shared, defaultShared)
	tile := min(c.Rows, kv.TileRows(c.Heads/c.KVHeads))
	items := (2*c.Rows-1)*c.KVHeads*((c.Rows+tile-1)/tile) + c.SMs
	def(&c.ItemsPerCTA, max(8, 2*((items+c.SMs-1)/c.SMs)))
	def(&c.Partials, 2*max(c.SMs, (2*c.Rows-1)*c.KVHeads)*tile)
	return c, nil
}

func (c *Config) layout() attention.KVLayout {
	return attention.KVLayout{Layers: c.Layers, Heads: c.KVHeads, D: c.HeadDim, Page: c.Page, Type: c.KV}
}

// The ring of attention alone has more copies in flight than a model's, which has matrix
// products between layers: chosen by trials that left no record.
const (
	defaultInFlight = 4
	defaultLead     = 6
	leadInFlight    = 2
)

// plan lays shared memory out: as many stages as fit beside the regions.
func (c *Config) plan(fixed []pipeline.Region) (*pipeline.Plan, error) {
	p, err := c.planWith(fixed, c.InFlight, c.Leads)
	if err != nil || c.InFlight != 0 || c.Leads != nil || p.Stages <= defaultLead {
		return p, err
	}
	return c.planWith(fixed, defaultInFlight, []pipeline.Throttle{{Chunks: defaultLead, InFlight: leadInFlight}})
}

func (c *Config) planWith(fixed []pipeline.Region, inFlight int, leads []pipeline.Throttle) (*pipeline.Plan, error) {
	request := pipeline.Request{SMs: c.SMs, Layers: 1,
		Layer: []pipeline.Matrix{{Name: "none", Rows: pipeline.TileRows, K: pipeline.GroupK}}, StageBytes: c.StageBytes,
		Stages: c.Stages, InFlight: inFlight, Throttles: leads, SharedLimit: pipeline.TracedLimit(c.Shared, c.Trace),
		Fixed: fixed, KVTokenBytes: c.layout().TokenBytes()}
	if c.Stages > 0 {
		return pipeline.New(request)
	}
	for request.Stages = pipeline.MaxStages; ; request.Stages-- {
		if p, err := pipeline.New(request); err == nil || request.Stages == 1 {
			return p, err
		}
	}
}
