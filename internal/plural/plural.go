// Package plural writes numbers of things, and lists of them.
package plural

import (
	"fmt"
	"strings"
)

// Of is "1 stage", "2 stages", "2 launches", "2 matrices".
func Of(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "ch"):
		what += "e"
	case strings.HasSuffix(what, "matrix"):
		what = strings.TrimSuffix(what, "x") + "ce"
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Are is "1 stage is", "2 stages are".
func Are(n int, what string) string {
	if n == 1 {
		return Of(n, what) + " is"
	}
	return Of(n, what) + " are"
}

// Or is "a, b or c"; of nothing it is empty.
func Or[T ~string](all []T) string {
	var b strings.Builder
	for i, word := range all {
		switch {
		case i > 0 && i == len(all)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(string(word))
	}
	return b.String()
}
