package batch

import "slices"

// A row's bits depend on the tokens before it that its step brings too: their scores
// are summed apart from those of the cached ones, and the warps share work by the
// number of rows. So with Options.Piece the tokens of a sequence come in the same
// pieces whatever else runs: those of the prompt in pieces of Piece tokens and what
// remains, those that were chosen one by one, also when they are fed again.

// pieceAt is how many tokens the piece has that token i belongs to.
func (j *job) pieceAt(i int) int {
	switch whole := j.prompt / j.piece * j.piece; {
	case i < whole:
		return j.piece
	case i < j.prompt:
		return j.prompt - whole
	}
	return 1
}

// rest is how many tokens are left, from token i on, of the piece that token i belongs to: fewer than pieceAt where a
// piece that is too much for the kernel even alone comes in halves, whatever else runs.
func (j *job) rest(i int) int {
	if n := j.pieceAt(i); n == j.piece && i < j.prompt {
		return n - i%n
	} else if i < j.prompt {
		return j.prompt - i
	}
	return 1
}

// begins reports whether a piece begins at token i.
func (j *job) begins(i int) bool { return i >= j.prompt || i%j.piece == 0 }

// key is what the tree knows token i by: a page is another one when its tokens came in
// other pieces, or of a short sequence. Where pieces begin follows from the keys before.
func (j *job) key(i int) int {
	key := j.tokens[i]
	if j.piece > 0 {
		key = key*j.longest + j.pieceAt(i)%j.longest
	}
	if j.short {
		key = -1 - key
	}
	return key
}

// keyed are the keys of all tokens.
func (j *job) keyed() []int {
	if j.plain {
		return j.tokens
	}
	keys := make([]int, len(j.tokens))
	for i := range keys {
		keys[i] = j.key(i)
	}
	return keys
}

// whole is how many tokens of n pages behind the cached ones a job can have from
// the tree: up to where a piece begins.
func (j *job) whole(pages, page int) int {
	for pages > 0 && !j.begins(j.cached+pages*page) {
		pages--
	}
	return pages * page
}

// sharePieces gives running jobs their next pieces, whole or not at all: first who has
// waited longest, who always gets it, then who still fits. So nobody waits for more
// launches than others run.
func (s *Scheduler) sharePieces() []part {
	order := slices.Clone(s.running)
	slices.SortStableFunc(order, func(a, b *job) int { return a.served - b.served })
	left, given, short := s.o.Stepper.Rows(), map[*job]bool{}, s.turnOfShort()
	for _, j := range order {
		n := j.rest(j.cached)
		if n > s.o.Stepper.Rows() && len(given) == 0 && j.short == short && !s.waitsForPieces(j) {
			return []part{{j: j, rows: n}} // of a Prefiller, alone
		}
		if n <= left && j.short == short && !s.waitsForPieces(j) {
			given[j] = true
			left -= n
		}
	}
	var parts []part
	for _, j := range s.running {
		if given[j] {
			parts = append(parts, part{j: j, rows: j.rest(j.cached)})
		}
	}
	return parts
}

// waitsForPieces reports whether an older job has to compute what a job would have to
// compute next. The oldest waits for nobody, so somebody always goes on.
func (s *Scheduler) waitsForPieces(j *job) bool {
	end := j.cached + max(s.o.Page, j.piece)
	if j.cached != len(j.pages)*s.o.Page || end >= len(j.keys) || end > j.toScore() {
		return false
	}
	return slices.ContainsFunc(s.running, func(o *job) bool {
		return o.id < j.id && o.cursor.Same(&j.cursor) && len(o.keys) >= end &&
			slices.Equal(o.keys[j.cached:end], j.keys[j.cached:end])
	})
}
