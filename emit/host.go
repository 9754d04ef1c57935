package emit

import (
	"bytes"
	"fmt"
	"go/token"
	"strings"
	"unicode"

	"github.com/dave/jennifer/jen"
	"github.com/mkgen/mkgen/dsl/ir"
)

// File is one generated file.
type File struct {
	Name string // without directories
	Data []byte
}

// Package is everything generated for kernel k but its layout's file: the .cu, kernel.h
// and the Go host package called name (an identifier), in order of file name. The
// files belong in one folder. It refuses what Print and Host refuse.
func Package(k *ir.Kernel, t Target, o Options, name string, x Extras) ([]File, *Layout, error) {
	src, err := Print(k, t, o)
	if err != nil {
		return nil, nil, fmt.Errorf("kernel: %w", err)
	}
	l, err := NewLayout(k, t, x)
	if err != nil {
		return nil, nil, err
	}
	l.ByValue = o.ParamsByValue
	head, err := Header(l, name)
	if err != nil {
		return nil, nil, err
	}
	host, err := Host(l, name)
	return append([]File{{KernelFile, src.Text}, {HeaderFile, head}}, host...), l, err
}

// Host is the Go host package of a kernel, called name: the params block as a
// struct with its byte layout, the launch's constants, buffers and what goes
// into them, the weight packing, the embedded source, and behind the build tag cuda the launch
// through an interface that any CUDA binding can satisfy. It needs nothing
// but the standard library. It refuses a name that is no Go package name.
func Host(l *Layout, name string) ([]File, error) {
	if !token.IsIdentifier(name) || name == "_" || name == "main" {
		return nil, fmt.Errorf("host package name %q is not an importable Go package name", name)
	}
	var files []File
	for _, f := range []struct {
		name string
		tag  string
		fill func(*jen.File, *Layout)
	}{
		{"zkernel.go", "", hostKernel},
		{"zlaunch_cuda.go", "cuda", hostLaunch},
		{"zlayout.go", "", hostLayout},
		{"zpacking.go", "", hostPacking},
		{"zparams.go", "", hostParams},
		{"ztables.go", "", hostTables},
	} {
		g := jen.NewFile(name)
		g.HeaderComment("// " + Generated)
		if f.tag != "" {
			g.HeaderComment("//go:build " + f.tag)
		}
		if f.name == "zkernel.go" {
			packageDoc(g, l, name)
		}
		f.fill(g, l)
		var b bytes.Buffer
		if err := g.Render(&b); err != nil {
			return nil, fmt.Errorf("BUG: host package %s: %w", f.name, err)
		}
		files = append(files, File{f.name, b.Bytes()})
	}
	return files, nil
}

func packageDoc(g *jen.File, l *Layout, name string) {
	g.PackageComment(fmt.Sprintf("// Package %s launches the kernel %s for %s.", name, l.Kernel, l.Arch))
	for i, d := range l.Doc {
		if i == 0 {
			g.PackageComment("//")
		}
		for line := range strings.SplitSeq(d, "\n") {
			g.PackageComment(strings.TrimRight("// "+oneLine(line), " "))
		}
	}
	for _, line := range fillDoc(l) {
		g.PackageComment(strings.TrimRight("// "+line, " "))
	}
}

// hostKernel embeds the source.
func hostKernel(g *jen.File, l *Layout) {
	g.Anon("embed")
	g.Comment("//go:embed " + l.Source)
	g.Var().Id("source").String()
	g.Line()
	g.Comment("Source is the kernel as CUDA C++, for nvcc with NvccFlags or for NVRTC.")
	g.Func().Id("Source").Params().String().Block(jen.Return(jen.Id("source")))
	g.Comment("NvccFlags are the arguments with which nvcc compiles Source.")
	g.Func().Id("NvccFlags").Params().Index().String().
		Block(jen.Return(jen.Index().String().ValuesFunc(func(v *jen.Group) {
			for _, f := range l.Flags {
				v.Lit(f)
			}
		})))
}

// hostLaunch calls an interface, so that the package needs no CUDA binding.
func hostLaunch(g *jen.File, l *Layout) {
	block, what := jen.Id("DevicePtr"),
		"the device address of the params block, which must stay unchanged until the kernel has ended"
	if l.ByValue {
		block, what = jen.Index().Byte(), "the params block, Params.Bytes"
	}
	arguments := func() []jen.Code {
		return []jen.Code{jen.List(jen.Id("grid"), jen.Id("threads"), jen.Id("sharedBytes")).Int(),
			jen.Id("params").Add(block.Clone())}
	}
	g.Comment("Function is the loaded kernel on a stream, as any CUDA binding can offer it: LaunchCooperative starts grid CTAs of threads")
	g.Comment("threads, all resident at once, with sharedBytes of dynamic shared memory (above 48 KiB the function must have been allowed")
	g.Comment("that much), and gives the kernel its one argument: params, " + what + ".")
	g.Type().Id("Function").Interface(jen.Id("LaunchCooperative").Params(arguments()...).Error())
	g.Comment("FunctionOf makes a Function of a Go function.")
	g.Type().Id("FunctionOf").Func().Params(arguments()...).Error()
	g.Comment("LaunchCooperative calls f.")
	g.Func().Params(jen.Id("f").Id("FunctionOf")).Id("LaunchCooperative").Params(arguments()...).Error().
		Block(jen.Return(jen.Id("f").Call(jen.Id("grid"), jen.Id("threads"), jen.Id("sharedBytes"), jen.Id("params"))))

	grid, params, doc := jen.Id("Grid"), []jen.Code{jen.Id("f").Id("Function")}, "Launch starts the kernel once."
	if l.Grid == 0 {
		grid, params, doc = jen.Id("grid"), append(params, jen.Id("grid").Int()),
			"Launch starts the kernel once with grid CTAs."
	}
	give := jen.Id("params")
	if l.ByValue {
		params, give = append(params, jen.Id("params").Op("*").Id("Params")), jen.Id("params").Dot("Bytes").Call()
	} else {
		params, doc = append(params, jen.Id("params").Id("DevicePtr")),
			doc+" params is the device address of a copy of Params.Bytes."
	}
	g.Comment(doc)
	g.Func().Id("Launch").Params(params...).Error().
		Block(jen.Return(jen.Id("f").Dot("LaunchCooperative").Call(grid, jen.Id("Threads"), jen.Id("SharedBytes"), give)))
}

// hostParams is the params block as a Go struct.
func hostParams(g *jen.File, l *Layout) {
	names := fieldNames(l)
	g.Comment("DevicePtr is an address in device memory.")
	g.Type().Id("DevicePtr").Uint64()
	g.Comment(fmt.Sprintf("Params are the arguments of a launch. The kernel takes them as a block of %d bytes.",
		l.ParamsBytes))
	g.Type().Id("Params").StructFunc(func(s *jen.Group) {
		for i, f := range l.Params {
			t := jen.Id("DevicePtr")
			if !f.Pointer {
				t = goType(f.Type)
			}
			s.Id(names[i]).Add(t).Comment(fieldComment(f))
		}
	})
	g.Comment("Bytes is the block, little-endian, ParamsBytes long.")
	g.Func().Params(jen.Id("p").Op("*").Id("Params")).Id("Bytes").Params().Index().Byte().BlockFunc(func(b *jen.Group) {
		b.Id("b").Op(":=").Make(jen.Index().Byte(), jen.Id("ParamsBytes"))
		for i, f := range l.Params {
			b.Add(putField(f, jen.Id("p").Dot(names[i])))
		}
		b.Return(jen.Id("b"))
	})
	g.Comment("MarshalBinary is Bytes for encoding.BinaryMarshaler; it never fails.")
	g.Func().Params(jen.Id("p").Op("*").Id("Params")).Id("MarshalBinary").Params().Params(jen.Index().Byte(), jen.Error()).
		Block(jen.Return(jen.Id("p").Dot("Bytes").Call(), jen.Nil()))
	g.Comment("Bind sets the pointer of the buffer called name, one of Buffers; others are an error.")
	g.Func().Params(jen.Id("p").Op("*").Id("Params")).Id("Bind").Params(jen.Id("name").String(),
		jen.Id("at").Id("DevicePtr")).Error().
		Block(jen.Switch(jen.Id("name")).BlockFunc(func(s *jen.Group) {
			for i, f := range l.Params {
				if f.Pointer {
					s.Case(jen.Lit(f.Name)).Block(jen.Id("p").Dot(names[i]).Op("=").Id("at"))
				}
			}
			s.Default().Block(jen.Return(jen.Qual("fmt", "Errorf").Call(jen.Lit("kernel "+l.Kernel+" has no buffer %q"),
				jen.Id("name"))))
		}), jen.Return(jen.Nil()))
}

func fieldComment(f Field) string {
	text := f.Type
	if f.Pointer {
		text = "any number of " + f.Type
		if f.Length > 0 {
			text = fmt.Sprintf("%d × %s", f.Length, f.Type)
		}
	}
	if f.Doc != "" {
		text += ": " + oneLine(f.Doc)
	}
	return text
}

// putField stores one member at its offset.
func putField(f Field, v *jen.Statement) *jen.Statement {
	at := jen.Id("b").Index(jen.Lit(f.Offset).Op(":"))
	put, bits := "PutUint32", jen.Uint32().Call(v)
	switch {
	case f.Pointer || f.Type == "u64":
		put, bits = "PutUint64", jen.Uint64().Call(v)
	case f.Type == "f32":
		bits = jen.Qual("math", "Float32bits").Call(v)
	}
	return jen.Qual("encoding/binary", "LittleEndian").Dot(put).Call(at, bits)
}

// goType is the Go type of a scalar parameter.
func goType(t string) *jen.Statement {
	switch t {
	case "i32":
		return jen.Int32()
	case "u32":
		return jen.Uint32()
	case "u64":
		return jen.Uint64()
	case "f32":
		return jen.Float32()
	}
	panic("BUG: emit: parameter of type " + t)
}

// fieldNames are exported, unique Go names for the members of the params block.
func fieldNames(l *Layout) []string {
	taken := map[string]bool{"Bytes": true, "Bind": true, "MarshalBinary": true}
	names := make([]string, len(l.Params))
	for i, f := range l.Params {
		names[i] = unique(taken, exported(f.Name))
	}
	return names
}

func unique(taken map[string]bool, name string) string {
	n := name
	for i := 2; taken[n]; i++ {
		n = fmt.Sprintf("%s%d", name, i)
	}
	taken[n] = true
	return n
}

// exported is words in any notation as an exported Go name: kv_heads → KvHeads.
func exported(s string) string {
	words := strings.FieldsFunc(s, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	var b strings.Builder
	for _, w := range words {
		r := []rune(w)
		b.WriteString(string(unicode.ToUpper(r[0])) + string(r[1:]))
	}
	name := b.String()
	if name == "" || !unicode.IsUpper([]rune(name)[0]) {
		name = "X" + name
	}
	return name
}
