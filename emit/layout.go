package emit

import (
	"github.com/mkgen/mkgen/dsl/ir"
)

// Layout is what a launcher in any language must know about a kernel; it is
// written as layout.json. Sizes and offsets are in bytes unless they say
// otherwise; lengths are in elements.
type Layout struct {
	Comment     string      `json:"comment"` // that the file is generated
	Kernel      string      `json:"kernel"`  // the function's name, extern "C"
	Doc         []string    `json:"doc,omitempty"`
	Arch        string      `json:"arch"`
	Flags       []string    `json:"nvcc_flags"`
	Source      string      `json:"source"` // file name of the .cu beside this file
	Header      string      `json:"header"` // and of the C header
	Grid        int         `json:"grid"`   // CTAs, all resident at once; 0: any number
	ClusterSize int         `json:"cluster_size"`
	Threads     int         `json:"threads"` // per CTA
	SharedBytes int         `json:"shared_bytes"`
	ParamsBytes int         `json:"params_bytes"`
	ByValue     bool        `json:"params_by_value"` // the argument is the block itself, not its address
	Params      []Field     `json:"params"`
	Shared      []Region    `json:"shared"`
	Constants   []Constant  `json:"constants,omitempty"`
	Packing     []PackEntry `json:"packing,omitempty"`
	Tables      []Table     `json:"tables,omitempty"`
}

// Field is a member of the params block. A pointer is 8 bytes and names a
// buffer of Length elements of Type; Length 0 leaves it to the host.
type Field struct {
	Name     string `json:"name"`
	Pointer  bool   `json:"pointer"`
	Type     string `json:"type"`
	Offset   int    `json:"offset"`
	Length   int64  `json:"length,omitempty"`
	Bytes    int64  `json:"bytes,omitempty"` // of the buffer; 0 where the host decides
	Align    int    `json:"align,omitempty"` // of the buffer
	ReadOnly bool   `json:"read_only,omitempty"`
	// Host is "reads" or "writes" for a buffer whose words the host may read, or
	// write, while the kernel runs; the first may lie in mapped host memory. It is
	// "keeps" for one that should.
	Host string `json:"host,omitempty"`
	Doc  string `json:"doc,omitempty"`
	Size string `json:"size,omitempty"` // as Need.Size
	Fill string `json:"fill,omitempty"` // as Need.Fill

	PageBytes int64    `json:"page_bytes,omitempty"` // as Need.PageBytes
	MoreBytes int64    `json:"more_bytes,omitempty"` // as Need.MoreBytes
	Tensors   []string `json:"tensors,omitempty"`    // as Need.Tensors
}

// Region is a buffer in a CTA's shared memory.
type Region struct {
	Name   string `json:"name"`
	Type   string `json:"type"`
	Length int64  `json:"length"`
	Offset int    `json:"offset"`
	Bytes  int64  `json:"bytes"`
	Doc    string `json:"doc,omitempty"`
}

// Constant is a number the kernel was specialised for, for host programs.
type Constant struct {
	Name  string `json:"name"` // words in any notation: kv_heads, "page size"
	Value int64  `json:"value"`
	Doc   string `json:"doc,omitempty"`
}

// PackEntry says how one matrix lies in the packed weight buffer. Matrices of
// a layer repeat Layers times, LayerStride bytes apart.
type PackEntry struct {
	Matrix      string   `json:"matrix"`
	Rows        int      `json:"rows"`
	K           int      `json:"k"`
	Layers      int      `json:"layers"`
	Base        int64    `json:"base"`         // its first tile, in the first layer
	LayerStride int64    `json:"layer_stride"` // from one layer to the next; 0 for one
	TileRows    int      `json:"tile_rows"`
	Tiles       int      `json:"tiles"`
	KPadded     int      `json:"k_padded"`
	Order       string   `json:"order,omitempty"`
	Sources     []RowRun `json:"sources,omitempty"`
}

// RowRun says where rows of a packed matrix come from: for i below Count, row
// Row + i·RowStep of the matrix is row Source + i·SourceStep of the tensor.
type RowRun struct {
	Tensor     string `json:"tensor"` // %d stands for the layer
	Row        int    `json:"row"`
	RowStep    int    `json:"row_step"`
	Source     int    `json:"source"`
	SourceStep int    `json:"source_step"`
	Count      int    `json:"count"`
}

// Extras is what a layout says beyond the kernel itself; all of it is optional.
type Extras struct {
	Constants []Constant
	Packing   []PackEntry
	Tables    []Table
	Needs     []Need
}

// KernelFile is the name of the emitted kernel among generated files.
const KernelFile = "kernel.cu"

// NewLayout describes kernel k emitted for t with its params block by address;
// set ByValue when it was printed with Options.ParamsByValue. It refuses extras
// about buffers that the kernel does not have, and tables that do not fit theirs.
func NewLayout(k *ir.Kernel, t Target, x Extras) (*Layout, error) {
	if err := checkExtras(k, x); err != nil {
		return nil, err
	}
	l := &Layout{
		Comment: Generated, Kernel: k.Name, Doc: k.Doc, Arch: t.Arch, Flags: t.NvccFlags(), Source: KernelFile,
		Header: HeaderFile,
		Grid:   k.Grid, ClusterSize: max(k.ClusterSize, 1), Threads: 32 * k.Warps, SharedBytes: k.SharedBytes,
		Constants: x.Constants, Packing: x.Packing, Tables: x.Tables,
	}
	fields, size := k.ParamsLayout()
	l.ParamsBytes = size
	for _, f := range fields {
		if f.Buf == nil {
			l.Params = append(l.Params, Field{Name: f.Name, Type: f.Type.String(), Offset: f.Offset, Doc: f.Param.Doc})
			continue
		}
		b := f.Buf
		l.Params = append(l.Params, Field{Name: f.Name, Pointer: true, Type: b.Elem.String(), Offset: f.Offset, Length: b.Len,
			Bytes: b.Bytes(), Align: max(b.Align, b.Elem.Size()), ReadOnly: b.ReadOnly, Host: hostUse(b.Host), Doc: b.Doc})
	}
	describe(l.Params, x.Needs)
	for _, b := range k.Shareds() {
		l.Shared = append(l.Shared, Region{Name: b.Name, Type: b.Elem.String(), Length: b.Len, Offset: b.Offset,
			Bytes: b.Bytes(), Doc: b.Doc})
	}
	return l, nil
}

// lookAhead is how many rows beyond a run's first RowRuns searches for its
// second.
const lookAhead = 64

// RowRuns describes a row permutation as few runs: rows rows of a matrix, of
// which row r is the row of the tensor that source gives. Runs come in the
// order of their first rows, and each row is in exactly one.
func RowRuns(rows int, source func(row int) (tensor string, tensorRow int)) []RowRun {
	type origin struct {
		tensor string
		row    int
	}
	from := make([]origin, rows)
	for r := range from {
		from[r].tensor, from[r].row = source(r)
	}
	taken := make([]bool, rows)
	var runs []RowRun
	for r := range from {
		if taken[r] {
			continue
		}
		run := RowRun{Tensor: from[r].tensor, Row: r, RowStep: 1, Source: from[r].row, SourceStep: 1, Count: 1}
		for next := r + 1; next < min(rows, r+1+lookAhead); next++ {
			if step := from[next].row - run.Source; !taken[next] && from[next].tensor == run.Tensor && step == 1 {
				run.RowStep = next - r
				break
			}
		}
		for at := r; at < rows && !taken[at] &&
			from[at] == (origin{run.Tensor, run.Source + (at-r)/run.RowStep}); at += run.RowStep {
			taken[at], run.Count = true, (at-r)/run.RowStep+1
		}
		runs = append(runs, run)
	}
	return runs
}

// hostUse is Field.Host.
func hostUse(h ir.HostUse) string {
	if h == ir.HostNone {
		return ""
	}
	return h.String()
}
