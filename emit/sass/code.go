package sass

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// instruction is one machine instruction.
type instruction struct {
	address int    // bytes from the kernel's start; of PTX the line
	text    string // without guard
	op      []string
	args    []string
	guard   string // "P0", "UP1"; empty: always
	negated bool
	line    int // of the kernel's text, the outermost that it was inlined at; 0: not known
	kind    string
	plain   bool
	target  int // index that a branch leads to, or -1
}

// code is the machine code of a kernel, or its PTX as the machine code that it asks for.
type code struct {
	ins []instruction
	ptx bool
}

var (
	instructionLine = regexp.MustCompile(`^\s*/\*([0-9a-f]{4,})\*/\s+(?:@(!?)(U?P[0-6T])\s+)?([^;]*?)\s*;`)
	labelLine       = regexp.MustCompile(`^(\.L_x_\d+|\$?[\w$.]+):\s*$`)
	placeLine       = regexp.MustCompile(`//## File "([^"]*)", line (\d+)( inlined at .*)?$`)
	labelArg        = regexp.MustCompile("`\\(([^)]+)\\)")
)

// parse reads what `nvdisasm -c -gi` prints of a cubin with one kernel, compiled with -lineinfo.
func parse(text, kernel string) (*code, error) {
	c := &code{}
	labels := map[string]int{}
	var to []string
	line, inside := 0, false
	for s := range strings.Lines(text) {
		s = strings.TrimRight(s, "\n")
		if m := placeLine.FindStringSubmatch(s); m != nil {
			if m[3] == "" { // the outermost comes last
				line, _ = strconv.Atoi(m[2])
			}
			continue
		}
		if m := labelLine.FindStringSubmatch(s); m != nil {
			if strings.HasPrefix(m[1], ".text.") {
				inside = m[1] == ".text."+kernel
				continue
			}
			if inside {
				labels[m[1]] = len(c.ins)
			}
			continue
		}
		m := instructionLine.FindStringSubmatch(s)
		if m == nil || !inside {
			continue
		}
		in := instruction{text: m[4], guard: m[3], negated: m[2] == "!", line: line, target: -1}
		address, err := strconv.ParseInt(m[1], 16, 64)
		if err != nil {
			return nil, fmt.Errorf("sass: address %q: %w", m[1], err)
		}
		in.address = int(address)
		if in.guard == "PT" || in.guard == "UPT" {
			in.guard = ""
			if in.negated {
				continue // never
			}
		}
		name, rest, _ := strings.Cut(m[4], " ")
		in.op = strings.Split(name, ".")
		for a := range strings.SplitSeq(rest, ",") {
			if a = strings.TrimSpace(a); a != "" {
				in.args = append(in.args, a)
			}
		}
		label := ""
		if m := labelArg.FindStringSubmatch(rest); m != nil && branches(in.op) {
			label = m[1]
		}
		in.kind = machineKind(&in)
		in.plain = isPlain(in.kind)
		c.ins, to = append(c.ins, in), append(to, label)
	}
	if len(c.ins) == 0 {
		return nil, fmt.Errorf("sass: no machine code of kernel %s in %d bytes of disassembly", kernel, len(text))
	}
	for i, label := range to {
		if label == "" {
			if op := c.ins[i].op[0]; op == "BRX" || op == "CALL" || op == "JMP" || op == "BRXU" || op == "JMX" {
				return nil, fmt.Errorf("sass: %#x: %s: branches to a computed place and calls are not followed", c.ins[i].address,
					c.ins[i].text)
			}
			continue
		}
		at, ok := labels[label]
		if !ok {
			return nil, fmt.Errorf("sass: %#x: %s: no such label", c.ins[i].address, c.ins[i].text)
		}
		c.ins[i].target = at
	}
	return c, nil
}

// branches says whether an op goes to the label among its operands. BSSY and WARPSYNC.COLLECTIVE name where threads
// meet again, which they reach one after the other.
func branches(op []string) bool { return op[0] == "BRA" || op[0] == "CALL" || op[0] == "JMP" }

// machineKind is the kind of event or access that an instruction is, or "".
func machineKind(in *instruction) string {
	has := func(word string) bool {
		for _, w := range in.op[1:] {
			if w == word {
				return true
			}
		}
		return false
	}
	switch in.op[0] {
	case "EXIT":
		return kindExit
	case "MEMBAR":
		return "membar." + scopeOf(in.op)
	case "CCTL":
		if has("IVALL") {
			return kindInval
		}
	case "FENCE":
		switch {
		case has("S"):
			return "proxy fence of shared"
		case has("G"):
			return "proxy fence of global"
		}
		return "proxy fence of all"
	case "BAR":
		return barKind(in, has("ARV"))
	case "UCGABAR_ARV":
		return kindClusterIn
	case "UCGABAR_WAIT":
		return kindCluster
	case "SYNCS":
		switch {
		case has("EXCH"):
			return kindInit
		case has("PHASECHK") && has("TRYWAIT"):
			return kindTry
		case has("PHASECHK"):
			return kindTest
		case has("ARRIVE") && (has("A1T0") || has("ART0") || has("RED")):
			return kindArrive
		case has("ARRIVE"):
			return kindExpect
		}
	case "UBLKCP":
		return kindBulk
	case "UTMALDG":
		return kindTensor
	case "LDGSTS":
		return kindAsync
	case "LDGDEPBAR":
		return kindCommit
	case "DEPBAR":
		if len(in.args) == 2 && in.args[0] == "SB0" { // the one that LDGDEPBAR counts
			n, _ := strconv.ParseInt(strings.TrimPrefix(in.args[1], "0x"), 16, 32)
			return copyWait(int(n))
		}
	case "LDG", "LD":
		switch {
		case has("STRONG"):
			return "ld." + scopeOf(in.op) + "." + width(in.op)
		case has("CONSTANT"):
			return ""
		}
		return plainLoad
	case "STG", "ST":
		if has("STRONG") {
			return "st." + scopeOf(in.op) + "." + width(in.op)
		}
		return plainStore
	case "REDG", "RED", "ATOMG", "ATOM":
		return "rmw." + scopeOf(in.op) + "." + width(in.op)
	case "ATOMS", "REDS":
		return "rmw of shared.cta." + width(in.op)
	case "LDS", "LDSM":
		return plainSharedLoad
	case "STS", "STSM":
		return plainSharedStore
	case "WARPGROUP":
		if has("DEPBAR") {
			n, _ := strconv.ParseInt(strings.TrimPrefix(last(in.args), "0x"), 16, 32)
			return fmt.Sprintf("wgmma wait %d", n)
		}
		return kindGroup
	case "HGMMA", "QGMMA", "IGMMA":
		return kindWGMMA
	case "USETMAXREG":
		return kindRegisters
	case "ACQBULK":
		return kindGridWait
	case "PREEXIT":
		return kindGridGo
	}
	return ""
}

func last(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[len(args)-1]
}

func barKind(in *instruction, arrive bool) string {
	var n []string
	for _, a := range in.args {
		v, err := strconv.ParseInt(a, 0, 64)
		if err != nil {
			return "bar of " + a
		}
		n = append(n, strconv.FormatInt(v, 10))
	}
	what := "bar.sync "
	if arrive {
		what = "bar.arrive "
	}
	return what + strings.Join(n, " of ")
}

// scopeOf is the scope in an op's suffixes, by PTX's name.
func scopeOf(op []string) string {
	for _, w := range op[1:] {
		switch w {
		case "GPU":
			return "gpu"
		case "SYS":
			return "sys"
		case "CTA", "SM":
			return "cta"
		}
	}
	return "?"
}

// width is how many bits an access moves at once.
func width(op []string) string {
	for _, w := range op[1:] {
		switch w {
		case "U8", "S8":
			return "8"
		case "U16", "S16":
			return "16"
		case "64", "128":
			return w
		}
	}
	return "32"
}
