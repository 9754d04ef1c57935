package probe

// limits are what a right kernel stays under.
var limits = map[string]float64{
	KeyRow:        6e-3,
	ValueRow:      6e-3,
	Attention:     1.2e-2,
	Page:          0.5,
	AttnResidual:  1e-4,
	MLPResidual:   3e-3,
	CacheRow:      0.3,
	CacheRowScale: 6e-3,
}
