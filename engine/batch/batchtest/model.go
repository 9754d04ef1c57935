package batchtest

// Vocab is the fake's vocabulary.
const Vocab = 50

// cell is what a slot of a page holds: a hash of a token and all before it, as
// keys and values depend on them.
type cell uint64

// start is the hash of no token.
const start cell = 14695981039346656037

// opening is the hash of no token of a sequence that is short, or not: all that follow are others.
func opening(short bool) cell {
	if short {
		return start.then(Vocab)
	}
	return start
}

func (h cell) then(token int) cell { return (h ^ cell(token+1)) * 1099511628211 }

// choose is what follows tokens of which the cache holds cells.
func choose(cells []cell) int {
	h := start
	for _, c := range cells {
		h = (h.then(int(c&0xffff)) ^ c>>17).then(7)
	}
	return int(h >> 20 % Vocab)
}

// Follows is what the model says follows tokens.
func Follows(tokens []int) int {
	h := start
	var all []cell
	for _, t := range tokens {
		h = h.then(t)
		all = append(all, h)
	}
	return choose(all)
}

// Pick draws from a row of the fake's logits: the token above the one that argmax
// would choose, so that a test tells them apart. -1 when they are not the fake's.
func Pick(logits []float32) int {
	for i, x := range logits {
		if x == 1 {
			return (i + 1) % Vocab
		}
	}
	return -1
}

// Alone is what n tokens after a prompt are, chosen by argmax or by Pick.
func Alone(prompt []int, n int, picked bool) []int {
	all := append([]int(nil), prompt...)
	for range n {
		all = append(all, next(Follows(all), picked))
	}
	return all[len(prompt):]
}

// AloneShort is Alone, and of a model that says few tokens, where that is not 0, AloneOfFew, where sequences of up to
// most tokens are short: what a longer one's cache holds is as if it had been long from its beginning.
func AloneShort(prompt []int, n int, picked bool, few, most int) []int {
	all := append([]int(nil), prompt...)
	for range n {
		h, cells := opening(len(all) <= most), []cell(nil)
		for _, t := range all {
			h = h.then(t)
			cells = append(cells, h)
		}
		token := choose(cells)
		if few > 0 {
			token %= few
		}
		all = append(all, next(token, picked))
	}
	return all[len(prompt):]
}

// AloneOfFew is Alone of a Stepper that says Few tokens.
func AloneOfFew(prompt []int, n, few int) []int {
	all := append([]int(nil), prompt...)
	for range n {
		all = append(all, Follows(all)%few)
	}
	return all[len(prompt):]
}

func next(follows int, picked bool) int {
	if picked {
		return (follows + 1) % Vocab
	}
	return follows
}

// rounded is a token's cell where a piece of n tokens from position begin on brought it:
// sums that are cut otherwise are rounded otherwise.
func (h cell) rounded(begin, n int) cell { return h.then(begin).then(n) }

// pieceEnd is where the piece of a prompt of n tokens ends that begins at token begin: at a multiple of piece or at the
// prompt's end, and halved while that is behind most tokens (0 for any number), which a Stepper does not do alone.
func pieceEnd(begin, n, piece, most int) int {
	end := min((begin/piece+1)*piece, n)
	for most > 0 && end > most && end > begin+1 {
		end = begin + (end-begin)/2
	}
	return end
}

// Within returns what follows each token of a prompt but the last, by the model, for a prompt that comes in pieces of
// piece tokens to a Stepper of Most; 0 for a Stepper whose results do not depend on Pieces.
func Within(prompt []int, piece, most int, short bool) []int {
	h := opening(short)
	var cells []cell
	var all []int
	begin, end := 0, 0
	for i, t := range prompt[:len(prompt)-1] {
		if h = h.then(t); piece > 0 {
			if i == end {
				begin, end = i, pieceEnd(i, len(prompt), piece, most)
			}
			h = h.rounded(begin, end-begin)
		}
		cells = append(cells, h)
		all = append(all, choose(cells))
	}
	return all
}

// AloneInPieces is Alone of a Stepper whose results depend on Pieces, when the prompt
// comes in pieces of piece tokens and what remains to a Stepper of Most, and what was chosen one by one.
func AloneInPieces(prompt []int, n int, picked bool, piece, most int) []int {
	h, all := start, append([]int(nil), prompt...)
	var cells []cell
	for range n {
		for begin := len(cells); begin < len(all); begin = len(cells) {
			end := begin + 1
			if begin < len(prompt) {
				end = pieceEnd(begin, len(prompt), piece, most)
			}
			for _, t := range all[begin:end] {
				h = h.then(t).rounded(begin, end-begin)
				cells = append(cells, h)
			}
		}
		all = append(all, next(choose(cells), picked))
	}
	return all[len(prompt):]
}
