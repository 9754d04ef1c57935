package pipeline

import (
	"cmp"
	"slices"
)

// balance sets First and Count of every matrix. Each SM gets floor or ceil of
// Tiles/SMs tiles of each; the extras of a matrix go to the least-loaded SMs, one
// each, the matrix with the largest tiles first (ties: execution order, then the
// lower SM), so that the bytes of the whole layer come out even. Then up to slack
// tiles per SM and matrix are moved if that lowers the layer's largest load. A matrix with
// From is dealt out with the one that it follows, as if the tiles of both were one.
func balance(ms []MatrixPlan, sms, slack int) {
	var order []int
	for i := range ms {
		if ms[i].leader < 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(together(ms, b), together(ms, a)) })
	load := make([]int64, sms)
	for _, i := range order {
		deal(&ms[i], together(ms, i), load)
	}
	if slack > 0 {
		slices.Reverse(order)
		shift(ms, order, load, slack)
	}
	for i := range ms {
		m := &ms[i]
		if m.leader >= 0 {
			m.Count = slices.Clone(ms[m.leader].Count)
		}
		m.First = make([]int, sms)
		for s := 1; s < sms; s++ {
			m.First[s] = m.First[s-1] + m.Count[s-1]
		}
	}
}

// together is the size of a tile of matrix i and of the tiles that follow it.
func together(ms []MatrixPlan, i int) int64 {
	bytes := ms[i].TileBytes()
	for j := range ms {
		if ms[j].leader == i {
			bytes += ms[j].TileBytes()
		}
	}
	return bytes
}

// deal gives every SM its even share of m, whose tiles are of so many bytes, and the
// extras to the least loaded.
func deal(m *MatrixPlan, bytes int64, load []int64) {
	sms := len(load)
	m.Count = make([]int, sms)
	bySize := make([]int, sms)
	for s := range bySize {
		bySize[s] = s
		m.Count[s] = m.Tiles / sms
	}
	slices.SortStableFunc(bySize, func(a, b int) int {
		switch {
		case load[a] < load[b]:
			return -1
		case load[a] > load[b]:
			return 1
		}
		return 0
	})
	for _, s := range bySize[:m.Tiles%sms] {
		m.Count[s]++
	}
	for s := range load {
		load[s] += int64(m.Count[s]) * bytes
	}
}

// shift moves tiles from the most to the least loaded SM, the smallest tiles first,
// and keeps the result only if the largest load went down.
func shift(ms []MatrixPlan, order []int, load []int64, slack int) {
	before := slices.Max(load)
	undo := make([][]int, len(ms))
	for _, i := range order {
		undo[i] = slices.Clone(ms[i].Count)
	}
	for _, i := range order {
		m := &ms[i]
		for moveOne(m, together(ms, i), undo[i], load, slack) {
		}
	}
	if slices.Max(load) < before {
		return
	}
	for _, i := range order {
		m := &ms[i]
		for s := range load {
			load[s] += int64(undo[i][s]-m.Count[s]) * together(ms, i)
		}
		m.Count = undo[i]
	}
}

// moveOne moves one tile of m, of so many bytes, from the most loaded SM that may give one to the least
// loaded that may take one, if the receiver stays below the giver's load.
func moveOne(m *MatrixPlan, bytes int64, even []int, load []int64, slack int) bool {
	from, to := -1, -1
	for s := range load {
		if m.Count[s] > 0 && even[s]-m.Count[s] < slack && (from < 0 || load[s] > load[from]) {
			from = s
		}
		if m.Count[s]-even[s] < slack && (to < 0 || load[s] < load[to]) {
			to = s
		}
	}
	if from < 0 || to < 0 || load[to]+bytes >= load[from] {
		return false
	}
	m.Count[from]--
	m.Count[to]++
	load[from] -= bytes
	load[to] += bytes
	return true
}
