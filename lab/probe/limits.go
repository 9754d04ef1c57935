package probe

// limits are what a right kernel stays under: several times what roundings do to it, and several
// times below what a fault of 1 or 2 % in one head or one layer does.
//
// Both were measured. On the executor tiny (head dimension 32) has 0 for key_row and value_row,
// 2.8e-3 for attention, 0.015 for page, 9e-8 for attn_residual and 5e-7 for mlp_residual. Float32
// sums in place of float64 ones in a layer of llama3-8b give 2e-7, 6e-7 for attn_residual and
// 1e-5 for mlp_residual. One element that is rounded the other way, which happens where float32
// and float64 differ near a tie, moves a row of 32 elements by 2e-3 and one of 128 by 1e-3 at
// most. Rows of the whole cache also carry the roundings of the layers before: 0.024 and 1.6e-3
// in tiny, 0.015 and 7e-4 in the last of 32 layers of hidden size 512.
// attn_residual and mlp_residual leave out what packets round off a residual vector (Kernel.ResidualError).
//
// A factor of 1.02 is 0.02 for key_row, value_row and cache_row_size, a gain of 1.01 is 0.024 for
// mlp_residual, a row of another token is about 1.4 for cache_row, a page left out is 1 for page.
var limits = map[string]float64{
	KeyRow:        4e-3,
	ValueRow:      4e-3,
	Attention:     1e-2,
	Page:          0.5,
	AttnResidual:  1e-5,
	MLPResidual:   1e-3,
	CacheRow:      0.2,
	CacheRowScale: 5e-3,
}
