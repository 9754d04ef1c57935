// Package pipeline plans how weights and KV flow through shared memory, and (in
// ring.go, on top of package dsl) holds the device code of the ring. Planning is
// plain Go on ints: New takes a Request and returns a Plan, or an error that says
// in numbers what was asked, what there is and what would fit.
//
// # Words
//
//   - row tile: TileRows = 8 rows of a matrix W[Rows][K], all columns.
//   - k group: GroupK = 32 columns.
//   - tile group: 8 rows × 32 columns = GroupBytes = 512 bytes, 64 bytes a row.
//   - chunk: 8 rows × up to ChunkK columns, contiguous, what one bulk copy moves; its
//     tile groups lie in order of k.
//   - stage: one slot of the shared-memory ring; holds one chunk, or KV of a
//     multiple of KVTokenMultiple tokens.
//
// # The packed weight buffer
//
// Layer 0, layer 1, …, then the final phase (the LM head). In each of them the matrices
// in execution order; a matrix is its tiles, and a tile its tile groups in order of k (cut
// into chunks, which does not move a byte). Rows are padded with zero rows to a multiple of
// 8 and columns with zero columns to a multiple of 32, so every size is a multiple of 512
// bytes and every start is 512-byte aligned relative to the buffer:
//
//	layer L, tile t of matrix m:  L*LayerBytes + m.Start + t*m.TileBytes()
//
// So the buffer is the model's alone: kernels of other options, of several tokens a step,
// or for another number of SMs read the same bytes. Which tiles an SM streams, and in
// which order, is the plan's.
//
// Element (r, k) of a tile lies, from the tile's start, at
//
//	(k/32)*512 + r*64 + ((k%32/8) xor (r/2))*16 + (k%8)*2
//
// The xor makes a tile group the atom of wgmma's 64-byte swizzle (PTX, "Shared Memory
// Matrix Layout"), and costs mma's lanes nothing: a warp still reads 512 bytes in a row,
// and each quarter of it, of two rows, all 32 banks.
//
// # Batches
//
// A kernel for several tokens a step keeps its input in registers, a chunk of columns
// at a time, and so wants that chunk of several tiles before the next. Then
// (Request.BatchTiles) an SM's share of a matrix is cut into batches of
// MatrixPlan.Batch tiles, the last of which may be shorter, and is streamed batch by
// batch; in a batch chunk by chunk of columns; and of a chunk tile by tile.
//
// # Columns instead of rows
//
// A matrix that multiplies what an SM itself has computed (Matrix.From) is dealt out by
// columns: the SM's tiles of the matrix before, of 8 rows each, make 4 columns a tile, as
// two rows make one, and its share of this one are these columns of all rows. So no SM
// needs another one's input, and each has a part of every sum. A tile of it is 4 columns,
// all rows, padded with zero rows to a multiple of 64, in groups of 64 rows, which are
// 512 bytes, too. Element (r, k) of a tile of rows r and columns k = 0..3 lies at
//
//	(r/64)*512 + (r%8)*64 + (r/8%2)*32 + (k/2)*16 + (r/16%4)*4 + (k%2)*2
//
// from the tile's start. In mma.m16n8k16 the 16 k are four blocks of 4, and each is
// another 8 rows by the same 4 columns: A has the 4 inputs in its rows 4b to 4b+3 and
// columns 4b to 4b+3, b = 0..3, and zeros elsewhere, so that rows 4b of D are the sums of
// the b-th block. A lane's 16 bytes are the operand B of two mma, of 32 rows each. Thus
// shares come in 4 columns, no finer than the rows that make them, and nothing is padded
// but rows, once for all.
//
// # Why 8 × 32: the B fragment of mma.m16n8k16
//
// In PTX's m16n8k16, lane l with g = l/4 and t = l%4 holds of B (16 × 8, bf16) the
// four elements b_i, i = 0..3, at n = g and k = 2t + i%2 + 8*(i/2). A lane that loads
// 16 bytes at 16*(l xor l/8) from a tile group gets row g, columns 8t..8t+7: eight
// elements, enough for two mmas. Mma j (0 or 1) of the group takes elements 4j..4j+3 as
// b_0..b_3. So logical k of mma j is column
//
//	FragmentColumn(j, k) = 8*((k%8)/2) + 4*j + 2*(k/8) + k%2
//
// of the group: a permutation of the 32 columns over the two mmas. A dot product does
// not care about the order of its terms so long as both operands use the same one: A
// (16 × 16, activations, row g) is loaded alike, 16 bytes of row g from column 8t,
// elements 4j, 4j+1 as (a_0, a_1) and 4j+2, 4j+3 as (a_4, a_5); (a_2, a_3) and
// (a_6, a_7) likewise from row g+8. Both loads are 16 bytes a lane and free of shared
// memory bank conflicts for B (512 consecutive bytes a warp).
//
// # Files
//
//	request.go plan.go shared.go describe.go      the plan, and what a CTA's shared memory holds
//	balance.go chunks.go blocks.go across.go      who owns which tiles, and in which pieces they lie
//	cost.go ringtime.go throttle.go               how fast a ring is; how far the producer may lead
//	format.go pack.go int4.go e4m3blocks.go       the packed image and its formats
//	finite.go                                     codes whose weights are not finite
//	ring.go take.go tilering.go turns.go          device code: acquire and commit, wait and release
//	ringonly.go landing.go                        device code: rings without weights, copies beside the ring
//	watch.go                                      device code: waits at which a launch can be given up
//	trace*.go spans.go                            device code: what a warp does, and when
package pipeline
