package emit

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/dave/jennifer/jen"
)

// hostTables is the contents of the buffers that are the same for every launch.
func hostTables(g *jen.File, l *Layout) {
	g.Comment("Table is the whole content of a buffer before the first launch, where that depends on nothing but the kernel.")
	g.Type().Id("Table").Struct(
		jen.Id("Name").String().Comment("the buffer"),
		jen.Id("Type").String().Comment("of an element: u32 or f32"),
		jen.Id("Bytes").Index().Byte().Comment("little-endian, to be copied to the buffer as they are"),
	)
	g.Comment("Tables lists the tables in fresh memory, which the caller may keep and change.")
	g.Func().Id("Tables").Params().Index().Id("Table").Block(jen.Return(jen.Index().Id("Table").CustomFunc(multiLine,
		func(v *jen.Group) {
			for _, t := range l.Tables {
				v.Values(jen.Lit(t.Name), jen.Lit(t.Type),
					jen.Id("littleEndian").CallFunc(func(a *jen.Group) { tableWords(a, t.Words) }))
			}
		})))
	if len(l.Tables) == 0 {
		return
	}
	g.Line()
	g.Func().Id("littleEndian").Params(jen.Id("words").Op("...").Uint32()).Index().Byte().Block(
		jen.Id("b").Op(":=").Make(jen.Index().Byte(), jen.Lit(0), jen.Lit(4).Op("*").Len(jen.Id("words"))),
		jen.For(jen.List(jen.Id("_"), jen.Id("w")).Op(":=").Range().Id("words")).Block(
			jen.Id("b").Op("=").Qual("encoding/binary", "LittleEndian").Dot("AppendUint32").Call(jen.Id("b"), jen.Id("w"))),
		jen.Return(jen.Id("b")))
}

// wordsALine is how many words of a table stand in a line.
const wordsALine = 8

func tableWords(a *jen.Group, words []uint32) {
	for i, w := range words {
		word := jen.Op(fmt.Sprintf("0x%08x", w))
		if i%wordsALine == 0 {
			word = jen.Line().Add(word)
		}
		a.Add(word)
	}
}

// fillDoc is the part of the package's comment that says what a host does with
// each buffer before the first launch; empty when nothing is known of them.
func fillDoc(l *Layout) []string {
	var filled, others []string
	for _, f := range l.Params {
		switch {
		case !f.Pointer:
		case f.Fill != "":
			filled = append(filled, listItem(fmt.Sprintf("%s (%s): %s", f.Name, sizeText(f), oneLine(f.Fill)))...)
		default:
			others = append(others, listItem(fmt.Sprintf("%s (%s)", f.Name, sizeText(f)))...)
		}
	}
	if len(filled) == 0 {
		return nil
	}
	lines := append([]string{"", "# Buffers", "",
		"Before the first launch the host allocates every buffer, binds it in [Params], and writes into these:", ""},
		filled...)
	if len(others) > 0 {
		lines = append(append(lines, "", "The others need no content:", ""), others...)
	}
	return lines
}

// listItem is text as an item of a list in a doc comment, in lines of about
// 120 letters.
func listItem(text string) []string {
	lines := []string{"  -"}
	for _, word := range strings.Fields(text) {
		last := &lines[len(lines)-1]
		if utf8.RuneCountInString(*last+word) > 120 {
			lines = append(lines, "    "+word)
			continue
		}
		*last += " " + word
	}
	return lines
}

// sizeText is how big a buffer is.
func sizeText(f Field) string {
	switch {
	case f.Bytes > 0:
		return fmt.Sprintf("%d bytes", f.Bytes)
	case f.Size != "":
		return oneLine(f.Size)
	}
	return "any size"
}
