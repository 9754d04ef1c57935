package checkpoint

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// elementBits returns the size of an element of a safetensors dtype, 0 for a name
// that the format does not have.
func elementBits(dtype string) int {
	switch dtype {
	case "F4":
		return 4
	case "F6_E2M3", "F6_E3M2":
		return 6
	case "BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ":
		return 8
	case "I16", "U16", "F16", "BF16":
		return 16
	case "I32", "U32", "F32":
		return 32
	case "C64", "F64", "I64", "U64":
		return 64
	}
	return 0
}

// layOut sorts entries by their place and checks that each has the bytes that its
// type and shape need, and that together they are the size-data bytes after the
// header, each byte once. All problems come back together.
func layOut(file string, entries []entry, data, size int64) error {
	var p problems
	for _, e := range entries {
		e.checkExtent(file, &p)
	}
	if err := p.Err(); err != nil {
		return err
	}
	slices.SortStableFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	at, before := int64(0), "the header"
	for _, e := range entries {
		if e.begin < at {
			p.add(Problem{File: file, Tensor: e.name, Found: fmt.Sprintf("data from byte %d", e.begin),
				Want: fmt.Sprintf("from byte %d on, where %s ends", at, shorten(before)), Why: "they overlap"})
		} else if e.begin > at {
			p.add(Problem{File: file, Tensor: e.name, Found: fmt.Sprintf("data from byte %d", e.begin),
				Want: fmt.Sprintf("from byte %d on, where %s ends", at, shorten(before)), Why: "the format has no holes"})
		}
		at, before = max(at, e.end), e.name
	}
	if err := p.Err(); err != nil {
		return err
	}
	return checkEnd(file, entries, at, size-data)
}

// checkExtent compares the bytes that e takes with those that it needs.
func (e entry) checkExtent(file string, p *problems) {
	perElement := elementBits(e.dtype)
	if perElement == 0 {
		p.add(Problem{File: file, Tensor: e.name, Found: fmt.Sprintf("dtype %q", shorten(e.dtype)), Want: wantDType})
		return
	}
	need, ok := e.bytes(perElement)
	takes := fmt.Sprintf("bytes %d to %d", e.begin, e.end)
	if !ok {
		p.add(Problem{File: file, Tensor: e.name, Found: "shape " + showShape(e.shape),
			Want: "a whole number of bytes below 2^63"})
	} else if e.begin > e.end {
		p.add(Problem{File: file, Tensor: e.name, Found: takes, Want: "an end that is not before the beginning"})
	} else if e.end-e.begin != need {
		p.add(Problem{File: file, Tensor: e.name, Found: fmt.Sprintf("%s, which are %d", takes, e.end-e.begin),
			Want: fmt.Sprintf("%d for %s of shape %s", need, e.dtype, showShape(e.shape))})
	}
}

// bytes returns the size of e; ok is false where that is no int64 or no whole
// number.
func (e entry) bytes(perElement int) (n int64, ok bool) {
	total := uint64(perElement)
	for _, d := range e.shape {
		high, low := bits.Mul64(total, uint64(d))
		if high != 0 {
			return 0, false
		}
		total = low
	}
	return int64(total / 8), total%8 == 0
}

// checkEnd compares the end of the last tensor with the end of the file.
func checkEnd(file string, entries []entry, end, have int64) error {
	if end == have {
		return nil
	}
	p := &Problem{File: file, Found: bytesOf(have) + " of data", Want: bytesOf(end)}
	if have > end {
		p.Why = "no tensor claims the rest"
		return p
	}
	p.Why = "the file is truncated"
	cut := slices.DeleteFunc(slices.Clone(entries), func(e entry) bool { return e.end <= have })
	p.Tensor = cut[0].name
	switch later := len(cut) - 1; {
	case later == 1:
		p.Why += ", 1 later tensor is cut off with this one"
	case later > 1:
		p.Why += fmt.Sprintf(", %d later tensors are cut off with this one", later)
	}
	return p
}

// showShape returns "[2, 3]".
func showShape[T int | int64](shape []T) string {
	return strings.ReplaceAll(fmt.Sprint(shape), " ", ", ")
}
