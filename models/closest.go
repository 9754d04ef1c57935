package models

// closest returns the candidate with the least edit distance to name, the first
// among equals. candidates must not be empty.
func closest(name string, candidates []string) string {
	name = name[:min(len(name), 64)]
	best, bestDistance := candidates[0], editDistance(name, candidates[0])
	for _, c := range candidates[1:] {
		if d := editDistance(name, c); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// editDistance is Levenshtein's: the least number of insertions, deletions and
// substitutions of bytes that turn a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
