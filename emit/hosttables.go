package emit

import (
	"github.com/dave/jennifer/jen"
)

// hostLayout is the launch's constants and the buffers.
func hostLayout(g *jen.File, l *Layout) {
	g.Comment("The kernel and its launch.")
	taken := map[string]bool{}
	for _, name := range []string{"Source", "NvccFlags", "Launch", "Function", "FunctionOf", "DevicePtr", "Params",
		"Buffer", "Buffers", "PackEntry", "RowRun", "Packing", "Table", "Tables"} {
		taken[name] = true
	}
	g.Const().DefsFunc(func(d *jen.Group) {
		def := func(name string, v any, doc string) {
			d.Id(unique(taken, name)).Op("=").Lit(v).Comment(oneLine(doc))
		}
		def("KernelName", l.Kernel, "the function, extern \"C\"")
		def("Arch", l.Arch, "what it is compiled for")
		def("Grid", l.Grid, "CTAs, all resident at once; 0: any number")
		def("ClusterSize", l.ClusterSize, "CTAs a cluster")
		def("Threads", l.Threads, "per CTA")
		def("SharedBytes", l.SharedBytes, "dynamic shared memory per CTA")
		def("ParamsBytes", l.ParamsBytes, "size of the params block")
	})
	if len(l.Constants) > 0 {
		g.Comment("What the kernel was specialised for.")
		g.Const().DefsFunc(func(d *jen.Group) {
			for _, c := range l.Constants {
				d.Id(unique(taken, exported(c.Name))).Op("=").Lit(int(c.Value)).Comment(oneLine(c.Doc))
			}
		})
	}
	g.Comment("Buffer is a buffer in device memory that the host allocates and binds.")
	g.Type().Id("Buffer").Struct(
		jen.Id("Name").String(),
		jen.Id("Type").String().Comment("of an element"),
		jen.Id("Length").Int64().Comment("elements; 0: the host decides"),
		jen.Id("Bytes").Int64().Comment("0: the host decides"),
		jen.Id("Align").Int().Comment("bytes"),
		jen.Id("ReadOnly").Bool().Comment("the kernel never writes it"),
		jen.Id("Size").String().Comment("how many bytes, in words, where the host decides"),
		jen.Id("Fill").String().Comment("what the host writes before the first launch; empty: nothing"),
	)
	g.Comment("Buffers lists the kernel's buffers in the order of the params block.")
	g.Func().Id("Buffers").Params().Index().Id("Buffer").Block(jen.Return(jen.Index().Id("Buffer").CustomFunc(multiLine,
		func(v *jen.Group) {
			for _, f := range l.Params {
				if f.Pointer {
					v.Values(jen.Lit(f.Name), jen.Lit(f.Type), jen.Lit(int(f.Length)), jen.Lit(int(f.Bytes)), jen.Lit(f.Align),
						jen.Lit(f.ReadOnly), jen.Lit(f.Size), jen.Lit(f.Fill))
				}
			}
		})))
}

var multiLine = jen.Options{Open: "{", Close: "}", Separator: ",", Multi: true}

// hostPacking is the weight-packing table.
func hostPacking(g *jen.File, l *Layout) {
	g.Comment("PackEntry says how one matrix lies in the packed weight buffer. Matrices of a layer repeat Layers times, LayerStride bytes apart.")
	g.Type().Id("PackEntry").Struct(
		jen.Id("Matrix").String(),
		jen.List(jen.Id("Rows"), jen.Id("K")).Int(),
		jen.Id("Layers").Int(),
		jen.Id("Base").Int64().Comment("byte of its first tile in the buffer, in the first layer"),
		jen.Id("LayerStride").Int64().Comment("bytes from one layer to the next; 0 for one"),
		jen.List(jen.Id("TileRows"), jen.Id("Tiles")).Int(),
		jen.Id("KPadded").Int(),
		jen.Id("Order").String().Comment("how the elements of a chunk are ordered"),
		jen.Id("Sources").Index().Id("RowRun").Comment("where the rows come from"),
	)
	g.Comment("RowRun says that for i below Count row Row + i·RowStep of a packed matrix is row Source + i·SourceStep of a tensor, in whose")
	g.Comment("name %d stands for the layer.")
	g.Type().Id("RowRun").Struct(
		jen.Id("Tensor").String(),
		jen.List(jen.Id("Row"), jen.Id("RowStep"), jen.Id("Source"), jen.Id("SourceStep"), jen.Id("Count")).Int(),
	)
	g.Comment("Packing is the table of the packed weight buffer, in the order of execution.")
	g.Func().Id("Packing").Params().Index().Id("PackEntry").
		Block(jen.Return(jen.Index().Id("PackEntry").CustomFunc(multiLine, func(v *jen.Group) {
			for _, e := range l.Packing {
				v.Add(packEntry(e))
			}
		})))
}

func packEntry(e PackEntry) *jen.Statement {
	field := func(name string, v jen.Code) jen.Code { return jen.Id(name).Op(":").Add(v) }
	return jen.Custom(multiLine,
		field("Matrix", jen.Lit(e.Matrix)), field("Rows", jen.Lit(e.Rows)), field("K", jen.Lit(e.K)),
		field("Layers", jen.Lit(e.Layers)), field("Base", jen.Lit(int(e.Base))),
		field("LayerStride", jen.Lit(int(e.LayerStride))),
		field("TileRows", jen.Lit(e.TileRows)), field("Tiles", jen.Lit(e.Tiles)), field("KPadded", jen.Lit(e.KPadded)),
		field("Order", jen.Lit(e.Order)),
		field("Sources", jen.Index().Id("RowRun").CustomFunc(multiLine, func(v *jen.Group) {
			for _, r := range e.Sources {
				v.Values(jen.Lit(r.Tensor), jen.Lit(r.Row), jen.Lit(r.RowStep), jen.Lit(r.Source), jen.Lit(r.SourceStep),
					jen.Lit(r.Count))
			}
		})),
	)
}
