package sass

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var (
	ptxLabel = regexp.MustCompile(`^([$\w]+):(?:[^:]|$)`)
	ptxGuard = regexp.MustCompile(`^@(!?)([%\w]+)\s+`)
	ptxType  = regexp.MustCompile(`^[bus](8|16|32|64|128)$|^f(16|32|64)$|^bf(16)$`)
)

// parsePTX reads the body of a kernel in PTX, compiled with -lineinfo. Each instruction becomes the machine
// instructions that ptxas makes of it, as far as they synchronise: a release is a fence and a store. So both levels are
// held against the same graph.
func parsePTX(text, kernel string) (*code, error) {
	r := ptxReader{c: &code{ptx: true}, labels: map[string]int{}, origins: OriginsOf(text),
		entry: regexp.MustCompile(`\.entry\s+` + regexp.QuoteMeta(kernel) + `\s*\(`)}
	line := 0
	for s := range strings.Lines(text) {
		line++
		s, _, _ = strings.Cut(s, "//")
		if err := r.line(strings.TrimSpace(s), line); err != nil {
			return nil, fmt.Errorf("ptx: line %d: %w", line, err)
		}
	}
	if len(r.c.ins) == 0 {
		return nil, fmt.Errorf("ptx: no kernel %s in %d bytes", kernel, len(text))
	}
	for i, label := range r.to {
		if label == "" {
			continue
		}
		at, ok := r.labels[label]
		if !ok {
			return nil, fmt.Errorf("ptx: line %d: %s: no such label", r.c.ins[i].address, r.c.ins[i].text)
		}
		r.c.ins[i].target = at
	}
	return r.c, nil
}

// ptxReader is the state of parsePTX between lines.
type ptxReader struct {
	c       *code
	entry   *regexp.Regexp
	labels  map[string]int
	to      []string // by instruction: the label that it leads to
	origins Origins
	header  bool   // behind the kernel's name, before its body
	depth   int    // of braces, 0: outside the kernel
	part    string // of a statement that goes on in the next line
}

// line reads one line without comment and blanks around it.
func (r *ptxReader) line(s string, n int) error {
	if r.depth == 0 {
		r.header = r.header || r.entry.MatchString(s)
		if r.header && strings.HasPrefix(s, "{") {
			r.header, r.depth = false, 1
		}
		return nil
	}
	for s = strings.TrimSpace(r.part + " " + s); s != "" && r.depth > 0; s = strings.TrimSpace(s) {
		r.part = ""
		switch m := ptxLabel.FindStringSubmatch(s); {
		case s[0] == '{':
			r.depth++
			s = s[1:]
			continue
		case s[0] == '}':
			r.depth--
			s = s[1:]
			continue
		case strings.HasPrefix(s, ".loc"):
			return nil
		case m != nil:
			if _, twice := r.labels[m[1]]; twice {
				return fmt.Errorf("label %s stands in two places", m[1])
			}
			r.labels[m[1]] = len(r.c.ins)
			s = s[len(m[1])+1:]
			continue
		}
		statement, rest, ends := strings.Cut(s, ";")
		if !ends {
			r.part = s
			return nil
		}
		s = rest
		if err := r.statement(strings.TrimSpace(statement), n); err != nil {
			return err
		}
	}
	return nil
}

// statement appends the machine instructions that a statement stands for, one without kind where it is a branch, and
// nothing for all others.
func (r *ptxReader) statement(s string, n int) error {
	if s == "" || s[0] == '.' {
		return nil // a directive
	}
	base := instruction{address: n, target: -1}
	if m := ptxGuard.FindStringSubmatch(s); m != nil {
		base.guard, base.negated = m[2], m[1] == "!"
		s = s[len(m[0]):]
	}
	name, rest, _ := strings.Cut(strings.ReplaceAll(s, "\t", " "), " ")
	base.text, base.op = strings.Join(strings.Fields(s), " "), strings.Split(name, ".")
	for a := range strings.SplitSeq(rest, ",") {
		if a = strings.TrimSpace(a); a != "" {
			base.args = append(base.args, a)
		}
	}
	switch base.op[0] {
	case "bra":
		r.add(base, base.args[0])
		return nil
	case "brx", "call":
		return fmt.Errorf("%s: branches to a computed place and calls are not followed", base.text)
	}
	kinds := ptxKinds(&base)
	if len(kinds) == 0 {
		return nil
	}
	base.line, _ = r.origins.At(n)
	if base.guard != "" && len(kinds) > 1 { // all of them or none
		skip := base
		skip.text, skip.op, skip.negated, skip.args = "bra", []string{"bra"}, !base.negated, nil
		r.labels[fmt.Sprint("past ", len(r.c.ins))] = len(r.c.ins) + 1 + len(kinds)
		r.add(skip, fmt.Sprint("past ", len(r.c.ins)))
		base.guard, base.negated = "", false
	}
	for _, kind := range kinds {
		in := base
		in.kind, in.plain = kind, isPlain(kind)
		r.add(in, "")
	}
	return nil
}

func (r *ptxReader) add(in instruction, to string) {
	r.c.ins, r.to = append(r.c.ins, in), append(r.to, to)
}

// has says whether a word is among an op's suffixes.
func (in *instruction) has(words ...string) bool {
	for _, w := range in.op[1:] {
		for _, x := range words {
			if w == x {
				return true
			}
		}
	}
	return false
}

// ptxKinds are the kinds of the machine instructions that an instruction of PTX stands for. What may synchronise and is
// not known here has a kind of its own, which no program has.
func ptxKinds(in *instruction) []string {
	unknown := []string{strings.Join(in.op, ".")}
	switch in.op[0] {
	case "ret", "exit":
		return []string{kindExit}
	case "ld", "st", "atom", "red":
		return ptxAccess(in)
	case "ldmatrix":
		return []string{plainSharedLoad}
	case "stmatrix":
		return []string{plainSharedStore}
	case "fence":
		return ptxFence(in)
	case "membar":
		scope := map[bool]string{true: "gpu", false: ptxScope(in)}[in.has("gl")]
		return fences("fence.sc."+scope, scope)
	case "bar", "barrier":
		switch {
		case in.has("warp"):
			return nil
		case in.has("cluster") && in.has("arrive"):
			return []string{"membar.gpu", kindClusterIn}
		case in.has("cluster") && in.has("wait"):
			return []string{kindCluster, kindInval}
		case in.has("sync", "arrive"):
			return []string{barKind(in, in.has("arrive"))}
		}
	case "mbarrier":
		for _, m := range []struct{ word, kind string }{{"init", kindInit}, {"expect_tx", kindExpect}, {"arrive", kindArrive},
			{"try_wait", kindTry}, {"test_wait", kindTest}} {
			if in.has(m.word) {
				return []string{m.kind}
			}
		}
	case "cp":
		switch {
		case in.has("prefetch"):
			return nil
		case in.has("tensor") && in.has("global"):
			return []string{kindTensor}
		case in.has("cg", "ca") && in.has("global"):
			return []string{kindAsync}
		case in.has("commit_group") && !in.has("bulk"):
			return []string{kindCommit}
		case in.has("wait_group") && !in.has("bulk"):
			return []string{"cp.async wait " + last(in.args)}
		case len(in.op) > 4 && in.op[2] == "bulk" && strings.HasPrefix(in.op[3], "shared::") && in.op[4] == "global":
			return []string{kindBulk}
		}
	case "wgmma":
		switch {
		case in.has("fence"):
			return []string{kindGroup}
		case in.has("mma_async"):
			return []string{kindWGMMA}
		case in.has("commit_group"):
			return nil
		case in.has("wait_group"):
			return []string{"wgmma wait " + last(in.args)}
		}
	case "setmaxnreg":
		return []string{kindRegisters}
	case "griddepcontrol":
		if in.has("wait") {
			return []string{kindGridWait}
		}
		return []string{kindGridGo}
	case "multimem", "clusterlaunchcontrol", "tcgen05", "tensormap":
	default:
		return nil
	}
	return unknown
}

// ptxScope is the scope that an instruction names; accesses without one have the GPU's.
func ptxScope(in *instruction) string {
	for _, w := range in.op[1:] {
		switch w {
		case "cta", "cluster", "gpu", "sys":
			return w
		}
	}
	return "gpu"
}

// fences is a fence with the lines of L1 that one of more than the CTA drops.
func fences(kind, scope string) []string {
	if scope == "cta" {
		return []string{kind}
	}
	return []string{kind, kindInval}
}

func ptxFence(in *instruction) []string {
	scope := ptxScope(in)
	switch {
	case in.has("mbarrier_init"):
		return nil
	case in.has("proxy") && in.has("async") && in.has("shared::cta"):
		return []string{"proxy fence of shared"}
	case in.has("proxy") && in.has("async") && in.has("global"):
		return []string{"proxy fence of global"}
	case in.has("proxy") && len(in.op) == 3 && in.has("async"):
		return []string{"membar.gpu", "proxy fence of shared"}
	case len(in.op) == 3 && in.has("sc"):
		return fences("fence.sc."+scope, scope)
	case len(in.op) == 3 && in.has("acq_rel"):
		return fences("membar."+scope, scope)
	}
	return []string{strings.Join(in.op, ".")}
}

// ptxAccess is a load, store or atomic with what its order adds, as ordered has it of the program.
func ptxAccess(in *instruction) []string {
	shared := in.has("shared", "shared::cta", "shared::cluster")
	strong := in.has("relaxed", "acquire", "release", "acq_rel", "volatile") || in.op[0] == "atom" || in.op[0] == "red"
	if in.has("param", "const", "local") || in.has("nc") {
		return nil
	}
	what := map[string]string{"ld": "ld", "st": "st"}[in.op[0]]
	switch {
	case shared && what == "ld":
		return []string{plainSharedLoad}
	case shared && what == "st":
		return []string{plainSharedStore}
	case !strong && what == "ld":
		return []string{plainLoad}
	case !strong && what == "st":
		return []string{plainStore}
	case what == "":
		what = "rmw"
	}
	scope, bits := ptxScope(in), 0
	if in.has("volatile") {
		scope = "sys"
	}
	lanes := 1
	for _, w := range in.op[1:] {
		if m := ptxType.FindStringSubmatch(w); m != nil {
			bits, _ = strconv.Atoi(m[1] + m[2] + m[3])
		} else if len(w) == 2 && w[0] == 'v' {
			lanes = int(w[1] - '0')
		}
	}
	if shared {
		what += " of shared"
	}
	kinds := []string{fmt.Sprintf("%s.%s.%d", what, scope, lanes*bits)}
	if in.has("release", "acq_rel") {
		kinds = append([]string{"membar." + scope}, kinds...)
	}
	if in.has("acquire", "acq_rel") && scope != "cta" {
		kinds = append(kinds, kindInval)
	}
	return kinds
}
