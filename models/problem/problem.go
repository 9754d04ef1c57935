// Package problem collects what is wrong with a file that somebody else wrote,
// and makes what stands in it fit for a message.
package problem

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Most is how many problems one error lists.
const Most = 32

// List is problems in the order they were found. The zero List is empty.
type List struct {
	found   []error
	omitted int
}

// Add appends a problem; beyond Most it is only counted.
func (l *List) Add(err error) {
	if len(l.found) == Most {
		l.omitted++
		return
	}
	l.found = append(l.found, err)
}

// Len is the number of problems listed, Most at most.
func (l *List) Len() int { return len(l.found) }

// Err joins the problems, and says how many were left out; nil for none.
func (l *List) Err() error {
	if l.omitted > 0 {
		return errors.Join(append(l.found[:len(l.found):len(l.found)], fmt.Errorf("and %d more problems", l.omitted))...)
	}
	return errors.Join(l.found...)
}

// Shorten makes text from a file fit for one line of a message: printable, at
// most that many bytes before quoting.
func Shorten(text string, most int) string {
	cut := text
	if len(cut) > most {
		cut = strings.ToValidUTF8(cut[:most], "") + "..."
	}
	quoted := strconv.Quote(cut)
	return quoted[1 : len(quoted)-1]
}
