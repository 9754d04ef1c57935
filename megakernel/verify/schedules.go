package verify

import (
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/internal/plural"
)

// PolicyError is a Request of a policy that there is not.
type PolicyError struct{ Policy string }

func (e *PolicyError) Error() string {
	return fmt.Sprintf("verify: found %q, want %s", e.Policy, plural.Or(interp.Policies()))
}

// schedules are the seeds of a request, in order: from Seed on all, or those that have the
// policy asked for. The policies come in turn, so a few seeds are as many different policies.
func (r *Request) schedules() ([]uint64, error) {
	if r.Policy != "" && !slices.Contains(interp.Policies(), r.Policy) {
		return nil, &PolicyError{r.Policy}
	}
	var seeds []uint64
	first := max(1, r.Seed)
	if r.Policy == interp.PolicyPCT.String() && first < interp.FirstPCT {
		first = interp.FirstPCT + first%(1<<31)
	}
	for seed := first; len(seeds) < r.Seeds; seed++ {
		if r.Policy == "" || interp.PolicyOf(seed).String() == r.Policy {
			seeds = append(seeds, seed)
		}
	}
	return seeds, nil
}

// policiesOf names the policies of seeds, each once, with the depth of the one that has one.
func policiesOf(seeds []uint64) (names []string) {
	for _, seed := range seeds {
		name := interp.PolicyOf(seed).String()
		if interp.PolicyOf(seed) == interp.PolicyPCT {
			name += fmt.Sprintf(" of depth %d", interp.PCTDepth)
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
