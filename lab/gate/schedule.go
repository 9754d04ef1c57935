package gate

import "slices"

// Part is a sequence's part of a step: its tokens From to To−1.
type Part struct {
	Sequence, From, To int
}

// rowsOf is how many tokens a step has.
func rowsOf(step []Part) (rows int) {
	for _, p := range step {
		rows += p.To - p.From
	}
	return rows
}

// MostAtOnce is how many sequences are under way at a time at most.
const MostAtOnce = 16

// stepsOf cuts sequences of these lengths into steps of up to rows tokens (at least 1), each sequence's tokens in
// order: steps in which all sequences decode one token, steps in which one is fed as many as there is room for beside
// the others, or some, and steps of chunks of any sizes. At most 16 sequences are under way at a time; when one ends
// the next begins. No part passes the end of a page; 0 is no page. A sequence with a number in chunks, which may be
// nil, has that many tokens in a step or none, what remains of them first. The same arguments give the same steps.
func stepsOf(lengths []int, rows, page int, chunks map[int]int) (steps [][]Part) {
	fed := make([]int, len(lengths))
	for n := uint32(0); ; n++ {
		var active []int
		for q, length := range lengths {
			if fed[q] < length && len(active) < MostAtOnce {
				active = append(active, q)
			}
		}
		if len(active) == 0 {
			return steps
		}
		step := cut(active, fed, lengths, rows, page, chunks, n)
		for _, p := range step {
			fed[p.Sequence] = p.To
		}
		steps = append(steps, step)
	}
}

// prefillChunks are the sequences that prefill kernels get in chunks of one size: the longest one, and the first two
// others, where they are as long, and have two of the smallest. Long prompts come in chunks of a kernel's most tokens;
// 17 is one more than the decode kernels have rows.
func prefillChunks(lengths []int) map[int]int {
	longest := slices.Index(lengths, slices.Max(lengths))
	sizes, chunks := []int{17, 256}, map[int]int{}
	for q, length := range lengths {
		switch {
		case q == longest && length >= 512:
			chunks[q] = 512
		case q != longest && len(sizes) > 0 && length >= max(sizes[0], 2*17):
			chunks[q], sizes = sizes[0], sizes[1:]
		}
	}
	return chunks
}

// cut is step n of the active sequences; the first of them is another one in every
// step, and has tokens in it.
func cut(active, fed, lengths []int, rows, page int, chunks map[int]int, n uint32) (step []Part) {
	random := scramble(n + 1)
	kind, all := random%4, rows
	for i := range active {
		q := active[(int(n)+i)%len(active)]
		want := 1
		switch {
		case kind == 1 && i == 0: // what the others leave, a row each
			want = max(1, rows-(len(active)-1))
		case kind == 3 && i == 0:
			want = 1 + int(random>>8)%rows
		case kind == 2:
			random = scramble(random)
			want = 1 + int(random>>8)%rows
		}
		if chunk := min(chunks[q], all); chunk > 0 && page == 0 {
			if fed[q] == 0 && lengths[q]%chunk > 0 {
				chunk = lengths[q] % chunk
			}
			if chunk > rows || i > 0 && scramble(random+uint32(i))%2 == 0 {
				continue
			}
			want = chunk
		}
		if page > 0 {
			want = min(want, page-fed[q]%page)
		}
		if want = min(want, rows, lengths[q]-fed[q]); want > 0 {
			step = append(step, Part{q, fed[q], fed[q] + want})
			rows -= want
		}
		if rows == 0 {
			break
		}
	}
	return step
}

// scramble is a bijection of words without a visible pattern.
func scramble(x uint32) uint32 {
	x = (x ^ x>>16) * 0x85ebca6b
	x = (x ^ x>>13) * 0xc2b2ae35
	return x ^ x>>16
}

// lengths are those of the sequences.
func lengths(ref *Reference) (all []int) {
	for _, q := range ref.Sequences {
		all = append(all, q.Length)
	}
	return all
}

// dealt are the pages of each sequence, of a cache of n, in an order in which no page
// follows its neighbour.
func dealt(ref *Reference, page, pages int) (all [][]uint32) {
	free := ShuffledTable(pages)
	for _, q := range ref.Sequences {
		n := (q.Length + page - 1) / page
		all, free = append(all, free[:n]), free[n:]
	}
	return all
}
