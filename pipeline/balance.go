package pipeline

import (
	"cmp"
	"slices"
)

// balance sets First and Count of every matrix. Each SM gets floor or ceil of
// Tiles/SMs tiles of each; the extras of a matrix go to the least-loaded SMs, one
// each, the matrix with the largest tiles first (ties: execution order, then the
// lower SM), so that the bytes of the whole layer come out even. A matrix with From is dealt out with the one that it
// follows, as if the tiles of both were one.
func balance(ms []MatrixPlan, sms int) {
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

// deal gives every SM its even share of m, whose tiles are of n bytes, and the
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
