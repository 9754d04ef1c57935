package emit

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
)

// declarations prints what the body uses of: the index registers, the scalars,
// the pointers to global memory, the arrays in shared memory, cache policies.
func (p *printer) declarations(body string) {
	p.registers(body)
	for _, x := range p.k.Params {
		if name, ok := p.params[x]; ok {
			p.line(ir.Pos{}, "const %s %s = %s;", ctype(x.Type), name, p.argument(x))
		}
	}
	shared := false
	for _, b := range p.declare {
		if b.Space == ir.Global {
			p.global(b, p.bufs[b])
			continue
		}
		if !shared {
			p.line(ir.Pos{}, "extern __shared__ __align__(%d) unsigned char smem[];", sharedAlign)
			shared = true
		}
		p.shared(b, p.bufs[b])
	}
	for _, h := range []ir.Hint{ir.EvictFirst, ir.EvictLast} {
		if p.policy[h] {
			p.line(ir.Pos{}, "const u64 %s = ptx::policy_%s();", h, h)
		}
	}
	p.text("")
}

var registerWord = regexp.MustCompile(`\b(lane|warp|tid|cta|grid)\b`)

// registers declares the index registers that occur in the body. No variable
// has these names, and comments that mention them cost an unused constant at
// most, so comments are cut off first.
func (p *printer) registers(body string) {
	used := map[string]bool{}
	for line := range strings.Lines(body) {
		code, _, _ := strings.Cut(line, "//")
		for _, w := range registerWord.FindAllString(code, -1) {
			used[w] = true
		}
	}
	for _, r := range [...]struct{ name, text string }{
		{"tid", "threadIdx.x"},
		{"lane", "threadIdx.x % 32"},
		{"warp", "__shfl_sync(0xffffffffu, threadIdx.x / 32, 0)"},
		{"cta", "blockIdx.x"},
		{"grid", "gridDim.x"},
	} {
		if !used[r.name] {
			continue
		}
		note := ""
		if r.name == "warp" {
			note = "  // as a broadcast, so that the compiler knows it is uniform"
		}
		p.line(ir.Pos{}, "const u32 %s = %s;%s", r.name, r.text, note)
	}
}

// global declares a pointer into global memory.
func (p *printer) global(b *ir.Buf, name string) {
	from := p.argument(b.Base())
	if b.Root != nil {
		if b.Offset != 0 {
			from = fmt.Sprintf("((const char*)%s + %d)", from, b.Offset)
		}
		from = "(" + pointee(b) + "*)" + from
	}
	p.line(ir.Pos{}, "%s* const %s = %s(%s);", pointee(b), name, p.fixed("global"), from)
}

func (p *printer) shared(b *ir.Buf, name string) {
	offset := b.Base().Offset
	if b.Root != nil {
		offset += b.Offset
	}
	from := "smem"
	if offset != 0 {
		from = fmt.Sprintf("(smem + %d)", offset)
	}
	p.line(ir.Pos{}, "%s* const %s = (%s*)%s;", ctype(b.Elem), name, ctype(b.Elem), from)
}
