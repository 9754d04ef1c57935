package product

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
)

// ColumnRows is what is known of the tokens of a step: which they are, where they
// stand and where their keys and values go.
type ColumnRows struct {
	T     int              // most tokens of a step
	Words dsl.Buf[dsl.U32] // shared memory, [T][kv.RowWords]
	Count u32              // tokens of this step, 1 to T
	Grown u32              // steps of this launch before this one: positions and indices have grown by as much
}

// rowPage is the word of a row in shared memory that holds the page its key and
// value go to in this step; the host's word of that index is unused.
const rowPage = 7

// Load reads the rows (global memory, [T][kv.RowWords]) and looks up their pages,
// of n tokens each, in the page table. It ends in a barrier of the consumer
// warps, and wants one before it if Words was in use. Rows from Count on are left as
// they are.
func (r *ColumnRows) Load(e *grid.Env, rows, table dsl.Buf[dsl.U32], page int) {
	k := e.K
	if p := r.problem(); p != "" {
		k.Require(false, "%s", p)
		return
	}
	k.If(e.Tid.Lt(r.Count), func() {
		at := e.Tid.MulC(kv.RowWords)
		lo, hi := rows.LoadN(at, 4), rows.LoadN(at.AddC(4), 4)
		hi[rowPage-4] = table.Load(lo[kv.RowEntries].Add(lo[kv.RowIndex].Add(r.Grown).DivC(page)))
		r.Words.StoreN(at, lo)
		r.Words.StoreN(at.AddC(4), hi)
	})
	e.Sync()
}

func (r *ColumnRows) problem() string {
	return rule.First(
		rule.Need(r.T >= 2 && r.T <= MaxColumns, "rows: %d tokens, want 2 to %d", r.T, MaxColumns),
		rule.Need(int(r.Words.Len()) >= r.T*kv.RowWords, "rows: Words has %d elements, want %d", r.Words.Len(),
			r.T*kv.RowWords))
}

// Word is a word of a row, such as kv.RowToken, as the host wrote it.
func (r *ColumnRows) Word(token u32, word int) u32 {
	return r.Words.Load(token.MulC(kv.RowWords).AddC(word))
}

// Position is the token's position in this step.
func (r *ColumnRows) Position(token u32) u32 { return r.Word(token, kv.RowPosition).Add(r.Grown) }

// Page is where the token's key and value go.
func (r *ColumnRows) Page(token u32) u32 { return r.Word(token, rowPage) }

// Slot is where in the page, of n tokens.
func (r *ColumnRows) Slot(token u32, page int) u32 {
	return r.Word(token, kv.RowIndex).Add(r.Grown).RemC(page)
}
