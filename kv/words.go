// Package kv describes which keys and values the query tokens of a step attend
// to, as block-sparse rows over the pages of a KV cache, and plans that work
// over the CTAs of a kernel. It is plain Go on ints; the kernel reads what it
// encodes, in the words named here.
//
// Planning 16 sequences in pages of 16 takes 6 to 20 µs on one core of a server
// (BenchmarkPlan), and grows with the page table: 22 µs for one sequence of 32768 tokens in
// pages of one, 34 µs where each of 8 heads selects 512 of 2048 pages, 170 µs where 16
// sequences do. A plan is made once a launch and serves all its layers and steps.
package kv

// A work item is ItemWords words: some chunks of one unit's KV of one KV head,
// attended to by some of the step's query rows. A unit is a run of page table
// entries: one sequence's, or a prefix's that several share. A chunk is as many
// tokens as a stage of the ring holds.
const (
	ItemWords = 32

	ItemHead     = 0 // KV head
	ItemEntries  = 1 // the unit's first entry of the page table
	ItemCached   = 2 // tokens of the unit in the cache before the launch's first step
	ItemGrow     = 3 // tokens it grows by with every step, 0 or 1
	ItemFirst    = 4 // a, and
	ItemEnd      = 5 // b, of
	ItemOf       = 6 // N: the item is chunks ⌊a·C/N⌋ … ⌊b·C/N⌋−1 of the C there are; N = 0: min(a, C) … min(b, C)−1
	ItemPosition = 7 // position in the sequence of the unit's first token
	ItemRows     = 8 // query rows, 1 to MaxRows
	ItemRowList  = 9 // two words: their indices, 4 bits each, the first lowest; none has a lesser position than the first
	// new tokens of the step that it attends to behind its chunks, or 0; of a unit's parts the last has them, of pinned
	// ones the first
	ItemTail    = 11
	ItemTailRow = 12 // row of the first of them; the others follow
	ItemFlags   = 13 // ItemDirect, or 0
	// two words: of rows 0 and 1 the first partial state of all items' and, times 2¹⁸, how many there are
	ItemStates   = 14
	ItemPartials = 16 // MaxRows words: the partial state that each row's result becomes
)

// A CTA's record of work begins with a header of ItemWords words.
const (
	HeaderItems = 0 // items that follow
	HeaderPhase = 1 // 1: partial states are merged in a phase of their own; 0: in shares, by the CTAs that have them
)

// SettleRows is the most rows of an item whose partial states are merged within the
// phase, one row after another, in shares.
const SettleRows = 2

// StateBits is how many bits of a word of ItemStates say where the states begin.
const StateBits = 18

// ItemDirect is the flag of an item that is all of its rows' work: its result is
// the output and no partial state.
const ItemDirect = 1

// MaxRows is the most query rows of a step.
const MaxRows = 16

// A query row, one new token of a sequence, is RowWords words.
const (
	RowWords = 8

	RowToken    = 0 // the token
	RowPosition = 1 // its position for the rotary embedding, at the launch's first step
	RowEntries  = 2 // its unit's first entry of the page table
	RowIndex    = 3 // its index in the unit, at the first step: where its key and value go
	RowTail     = 4 // bit i: it attends to the i-th new token of its sequence, of this step; 0: the row has no sequence
	RowMask     = 5 // first word of its bits in the custom mask
	RowFirst    = 6 // row of its sequence's first new token
)
