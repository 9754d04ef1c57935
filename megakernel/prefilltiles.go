package megakernel

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/prefill"
)

// How the planner chooses the tiles of a prefill kernel's products from shapes.

// choose plans the tiles; as many stages as fit, 6 at most; and two times the columns in a stage where there is room
// for them: small tiles have more under way then.
func (p *Prefill) choose() {
	together := p.Room() / p.Options.Padded()
	if p.queryBytes() > 0 { // blocks of 64 tokens
		p.stageBytes = 64 * 128 * pipeline.CeilDiv(p.Of.Config.HeadDim, 64)
	}
	for i := range p.tiled() {
		if i == prefillHead {
			together = 1 // of the last token alone
		}
		p.chooseTile(i, together)
		p.stageBytes = max(p.stageBytes, p.gemm(i).StageBytes())
	}
	p.Stages = min(6, (p.Of.Options.SharedLimit-prefillReserve-p.queryBytes())/p.stageBytes)
	for i := range p.tiled() {
		m := p.matrix(i)
		p.Depth[i] = 2 * p.depth(i)
		if p.gemm(i).StageBytes() > p.stageBytes || p.coded(i) && m.KPadded%p.Depth[i] != 0 {
			p.Depth[i] = p.depth(i)
		}
	}
}

// tilesText says how many rows a tile of each matrix has, and in how many parts of its columns it is multiplied.
func (p *Prefill) tilesText() string {
	var all []string
	for i := range p.tiled() {
		text := fmt.Sprintf("%d (%s", p.Columns[i], p.gemm(i).Name)
		if n := p.KParts[i]; n > 1 {
			text += fmt.Sprintf(", its columns in %d parts", n)
		}
		all = append(all, text+")")
	}
	return strings.Join(all, ", ")
}

// chooseTile plans matrix i, which the grid multiplies with that many pieces of tokens: the parts of its columns and
// the rows of a tile with which the grid is done first, as few parts and as many rows as can be. It counts arithmetic
// alone: where reading takes longer, as of 70B in 4 bits on an H100, parts are chosen that gain nothing.
func (p *Prefill) chooseTile(i, pieces int) {
	m, by := p.matrix(i), 16
	if i == MatrixQKV && p.byHead() {
		by = p.Of.Config.HeadDim // whole heads, see attention.PrefillQKV
	}
	p.Depth[i] = p.depth(i)
	var best, rows, split int
	for _, parts := range p.partsOf(i) {
		for n := by; n <= p.most(); n += by {
			if n > by && n-by >= m.Rows || i == prefillHead && n > slices.Max(p.Columns[:prefillHead]) {
				break
			}
			p.Columns[i] = n
			cost := p.productCost(i, pieces, parts)
			if parts > 1 {
				cost += int(math.Round(prefillPhase / prefillUnit))
			}
			if best == 0 || cost < best || cost == best && parts == split { // larger tiles read less
				best, rows, split = cost, n, parts
			}
		}
	}
	p.Columns[i], p.KParts[i] = rows, split
}

// partsOf is what parts of its columns matrix i can be multiplied in.
func (p *Prefill) partsOf(i int) []int {
	if i != MatrixDown {
		return []int{1}
	}
	if p.Options.DownParts > 0 {
		return []int{p.Options.DownParts}
	}
	return slices.DeleteFunc([]int{1, 2, 4}, func(n int) bool { return !p.splits(n) })
}

// splits is whether the down projection has columns for that many parts.
func (p *Prefill) splits(parts int) bool {
	return parts == 1 || p.matrix(MatrixDown).KPadded%(p.DownColumns()*parts) == 0
}

// DownColumns is what a part of the down projection's columns is a multiple of, where there are several.
func (p *Prefill) DownColumns() int { return 2 * p.depth(MatrixDown) }

// productCost is what multiplying matrix i with that many pieces of tokens costs in parts of its columns, each
// prefillUnit, without the sync before the parts are added.
func (p *Prefill) productCost(i, pieces, parts int) int {
	n, columns := p.Columns[i], p.matrix(i).KPadded
	if p.coded(i) { // twice as many at once
		columns /= 2
	}
	cost := p.waves(i, pieces, parts) * p.tileCost(n) * pipeline.CeilDiv(columns, prefillDepth*parts)
	if parts > 1 {
		cost += p.waves(i, pieces, 1) * splitSums * n * parts
	}
	return cost
}

// splitSums is what adding parts of sums costs for a row of a tile and a part, each prefillUnit, beside a phase with
// its sync. It is fitted to 8B's down projection of 128 tokens in 1, 2 and 4 parts on an H200.
const splitSums = 50

// waves is how often the grid takes tiles of matrix i, of that many pieces of tokens and parts of the columns.
func (p *Prefill) waves(i, pieces, parts int) int {
	units := p.gemm(i).Tiles() * pieces * parts
	if p.Options.apart() {
		units /= p.Options.Cluster
	}
	return pipeline.CeilDiv(units, p.Of.Options.SMs/p.Options.Cluster)
}

// tileCost is what a wave of tiles of n rows costs: a tile's products, at least what reading their operands costs, and
// its rest.
func (p *Prefill) tileCost(n int) int {
	// what a stage's tokens and rows are fetched by, each
	tokens, shared := prefill.Tokens(p.Options.Groups), p.Options.Cluster
	if p.Options.apart() {
		tokens, shared = tokens/p.Options.Cluster, 1
	}
	return max(5*n, 3*(n/shared+tokens)) + 80
}

// queryBytes is the shared memory beside the ring for queries of attention.
func (p *Prefill) queryBytes() int {
	return attention.PrefillQueryBytes(p.Of.Config.HeadDim, p.Options.Groups)
}

// most is the largest number of rows of a tile: those with which there is room for four stages, but whole heads.
func (p *Prefill) most() int {
	if p.queryBytes() > 0 && !p.byHead() {
		return 192
	}
	return 256
}

// tiled is the number of matrices that are multiplied in tiles: an LM head with codes is not, see prefill.Head.
func (p *Prefill) tiled() int {
	if p.Of.Options.otherHead() != "" {
		return layerMatrices
	}
	return prefillMatrices
}

// prefillDepth is the number of columns in a stage of the largest tiles, of bf16.
const prefillDepth = 64

// depth is the number of columns in a stage of the largest tiles of matrix i: of e4m3 as many bytes, where whole stages
// make a row.
func (p *Prefill) depth(i int) int {
	if p.coded(i) && p.matrix(i).KPadded%(2*prefillDepth) == 0 {
		return 2 * prefillDepth
	}
	return prefillDepth
}

// coded is whether matrix i is multiplied in e4m3.
func (p *Prefill) coded(i int) bool { return p.Options.coded() && i != prefillHead }
