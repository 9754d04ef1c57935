package emit

import (
	"fmt"
	"go/token"
	"strings"
)

// HeaderFile is the name of the C header among generated files.
const HeaderFile = "kernel.h"

// header collects the lines of a C header.
type header struct {
	l      *Layout
	name   string // prefix of types
	prefix string // prefix of macros
	taken  map[string]bool
	b      strings.Builder
}

// Header is kernel.h, a header for host programs in C11 or C++17 that needs
// nothing but <stddef.h> and <stdint.h>: the params block as struct NAME_params
// with its byte layout asserted, and as macros NAME_… the launch, the layout's
// constants, and size and alignment of every buffer. Like Host it refuses a name
// that is no Go package name. A kernel without parameters has no struct.
func Header(l *Layout, name string) ([]byte, error) {
	if !token.IsIdentifier(name) || name == "_" || name == "main" {
		return nil, fmt.Errorf("header prefix %q is not an importable Go package name", name)
	}
	h := &header{l: l, name: name, prefix: strings.ToUpper(name) + "_", taken: map[string]bool{}}
	guard := h.macro("kernel h")
	h.head()
	h.printf("#ifndef %s", guard)
	h.printf("#define %s", guard)
	h.lines("", "#include <stddef.h>", "#include <stdint.h>", "")
	h.launch()
	h.constants()
	h.buffers()
	h.block()
	h.printf("#endif  // %s", guard)
	return []byte(h.b.String()), nil
}

func (h *header) lines(ls ...string) {
	for _, l := range ls {
		h.b.WriteString(l + "\n")
	}
}

func (h *header) printf(format string, args ...any) { h.lines(fmt.Sprintf(format, args...)) }

// comment prints text as line comments, the first after lead and the others
// indented below it.
func (h *header) comment(lead, text string) {
	item := listItem(lead + oneLine(text))
	for i, l := range item {
		if i == 0 {
			h.printf("// %s", strings.TrimPrefix(l, "  - "))
			continue
		}
		h.printf("//   %s", strings.TrimSpace(l))
	}
}

// macro is a free macro name made of words: kv_heads → NAME_KV_HEADS.
func (h *header) macro(words string) string {
	return unique(h.taken, h.prefix+strings.ToUpper(identOf(words)))
}

// define prints a macro; doc may be empty.
func (h *header) define(words string, value any, doc string) {
	line := fmt.Sprintf("#define %s %v", h.macro(words), value)
	if doc != "" {
		line += "  // " + oneLine(doc)
	}
	h.lines(line)
}

func (h *header) head() {
	l := h.l
	h.lines("// "+Generated, "//")
	h.printf("// Params block and launch of the kernel %s (%s, for %s), for host programs in C11 or C++17.", l.Kernel,
		l.Source, l.Arch)
	for _, d := range l.Doc {
		h.comment("", d)
	}
	h.lines("//")
	h.comment("", "The kernel is launched cooperatively, so that all CTAs are resident at once, and has one argument, "+
		h.argument()+
		". With the driver API, for a function that was allowed "+h.prefix+"SHARED_BYTES of dynamic shared memory:")
	grid := h.prefix + "GRID"
	if l.Grid == 0 {
		grid = "grid"
	}
	h.printf("//   void *arguments[] = {&params};")
	h.printf("//   cuLaunchCooperativeKernel(function, %s, 1, 1, %sTHREADS, 1, 1, %sSHARED_BYTES, stream, arguments);",
		grid, h.prefix, h.prefix)
	h.lines("// How weights are packed, and the tables that some buffers hold, are in layout.json.")
}

// argument is what a launch passes.
func (h *header) argument() string {
	if h.l.ByValue {
		return "a " + h.name + "_params itself"
	}
	return "the address of a " + h.name + "_params in device memory"
}

func (h *header) launch() {
	l := h.l
	h.lines("// The launch.")
	h.define("kernel", `"`+l.Kernel+`"`, "name of the function, extern \"C\"")
	if l.Grid > 0 {
		h.define("grid", l.Grid, "CTAs")
	}
	h.define("cluster size", l.ClusterSize, "CTAs of a cluster")
	h.define("threads", l.Threads, "of a CTA")
	h.define("shared bytes", l.SharedBytes, "dynamic shared memory of a CTA")
	h.define("params bytes", l.ParamsBytes, "the params block")
	h.lines("")
}

func (h *header) constants() {
	if len(h.l.Constants) == 0 {
		return
	}
	h.lines("// What the kernel was made for.")
	for _, c := range h.l.Constants {
		h.define(c.Name, c.Value, c.Doc)
	}
	h.lines("")
}

// buffers prints what a host must know of each buffer.
func (h *header) buffers() {
	first := true
	for _, f := range h.l.Params {
		if !f.Pointer {
			continue
		}
		if first {
			h.comment("", "The buffers, in memory that the device reaches: their types, sizes and alignments in bytes, and what the host writes into them before the "+
				"first launch. b128 is 16 bytes without a type, bf16 a bit pattern of 16 bits; pages are those of the context.")
			first = false
		}
		h.lines("")
		h.comment("", bufferText(f))
		switch {
		case f.Bytes > 0:
			h.define(f.Name+" bytes", f.Bytes, "")
		case f.PageBytes > 0:
			h.printf("#define %s(pages) (UINT64_C(%d) * (pages) + %d)", h.macro(f.Name+" bytes"), f.PageBytes, f.MoreBytes)
		}
		h.define(f.Name+" align", f.Align, "")
	}
	if !first {
		h.lines("")
	}
}

func bufferText(f Field) string {
	text := f.Name + ": " + fieldComment(f)
	if f.ReadOnly {
		text += "; only read"
	}
	switch f.Host {
	case "reads":
		text += "; the host may read its words while the kernel runs, from mapped host memory say"
	case "keeps":
		text += "; in mapped host memory say, for the host to read behind a launch"
	case "writes":
		text += "; the host may write its words while the kernel runs, by a copy in another stream say"
	}
	if f.Bytes == 0 && f.Size != "" {
		text += ". Size: " + f.Size
	}
	if f.Fill != "" {
		text += ". The host writes: " + f.Fill
	}
	return text
}

// block prints the struct and the checks of its layout.
func (h *header) block() {
	l, members := h.l, newNamer()
	if len(l.Params) == 0 {
		return
	}
	members.reserved["restrict"] = true // C's own
	align, check, message := h.macro("align8"), h.macro("check"), `"layout of `+h.name+`_params"`
	h.lines("#ifdef __cplusplus")
	h.printf("#define %s alignas(8)", align)
	h.printf("#define %s(condition) static_assert(condition, %s)", check, message)
	h.lines("#else")
	h.printf("#define %s _Alignas(8)", align)
	h.printf("#define %s(condition) _Static_assert(condition, %s)", check, message)
	h.lines("#endif", "", "// The params block, little-endian. Pointers are the addresses by which the device reaches the buffers, as CUdeviceptr is.")
	h.printf("typedef struct %s_params {", h.name)
	names := make([]string, len(l.Params))
	for i, f := range l.Params {
		names[i] = members.pick(f.Name)
		member := "  "
		if i == 0 {
			member += align + " "
		}
		doc := f.Doc
		if f.Pointer {
			doc = fieldComment(f)
		}
		h.lines(strings.TrimRight(fmt.Sprintf("%s%s %s;  // %s", member, cMember(f), names[i], oneLine(doc)), "/ "))
	}
	h.printf("} %s_params;", h.name)
	h.lines("")
	for i, f := range l.Params {
		h.printf("%s(offsetof(%s_params, %s) == %d);", check, h.name, names[i], f.Offset)
	}
	h.printf("%s(sizeof(%s_params) == %d);", check, h.name, l.ParamsBytes)
	h.printf("#undef %s", align)
	h.printf("#undef %s", check)
	h.lines("")
}

// cMember is the C type of a member.
func cMember(f Field) string {
	if f.Pointer {
		return "uint64_t"
	}
	switch f.Type {
	case "i32":
		return "int32_t"
	case "u32":
		return "uint32_t"
	case "u64":
		return "uint64_t"
	case "f32":
		return "float"
	}
	panic("BUG: emit: parameter of type " + f.Type)
}
