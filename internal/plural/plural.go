// Package plural writes numbers of things.
package plural

import "fmt"

// Of is "1 stage", "2 stages".
func Of(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
