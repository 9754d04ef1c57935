package promela

import (
	"errors"
	"fmt"
	"strings"
)

// Result is what SPIN's verifier says of a model.
type Result struct {
	Verdict     string // "no fault", "deadlock", or one of Faults with spaces
	States      int64  // stored
	Transitions int64
}

// Read reads what the verifier printed. It fails where the search ended for another reason than a fault or its end.
func Read(out string) (*Result, error) {
	r, unknown := &Result{}, ""
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		for _, n := range []struct {
			unit string
			to   *int64
		}{{"states, stored", &r.States}, {"transitions (=", &r.Transitions}} {
			var x float64
			if number, rest, _ := strings.Cut(line, " "); strings.HasPrefix(strings.TrimSpace(rest), n.unit) {
				if _, err := fmt.Sscan(number, &x); err == nil {
					*n.to = int64(x)
				}
			}
		}
		if !strings.HasPrefix(line, "pan:") || r.Verdict != "" {
			if strings.HasPrefix(line, "error:") {
				unknown = line
			}
			continue
		}
		switch {
		case strings.Contains(line, "invalid end state"):
			r.Verdict = "deadlock"
		case strings.Contains(line, "assertion violated"):
			r.Verdict = faultIn(line)
		}
		if r.Verdict == "" && !strings.HasPrefix(line, "pan: elapsed time") && !strings.HasPrefix(line, "pan: rate") {
			unknown = line
		}
	}
	if r.Verdict != "" {
		return r, nil
	}
	r.Verdict = "no fault"
	if unknown != "" || r.States == 0 || !strings.Contains(out, "errors: 0") || strings.Contains(out, "not completed") {
		return nil, errors.New("SPIN's search was not completed:\n" + out)
	}
	return r, nil
}

// faultIn is the fault that an assertion names, "" where it names none.
func faultIn(line string) string {
	for _, f := range Faults {
		if strings.Contains(line, "no_"+f+")") {
			return strings.ReplaceAll(f, "_", " ")
		}
	}
	return ""
}
