package draw

// A row's scores are what the log-probabilities of one token are made of: the logit of the token that was chosen, or of
// RowTarget's; from ScoreTops on the highest logits with their tokens, the highest first, of equals the lower token;
// and from ScoreParts on of each part of the vocabulary its highest logit and the sum of exp(logit − highest).
const (
	MaxTops     = 20 // the most probable tokens of a row, at most
	ScoredSteps = 16 // tokens of a row whose scores are kept; a power of 2

	ScoreChosen = 0 // f32
	ScoreTops   = 4 // MaxTops pairs of a logit, f32, and its token
	ScoreParts  = ScoreTops + 2*MaxTops

	NoToken = 1<<32 - 1 // where there are fewer logits
)

// ScoreWords is the length of a row's scores, with a number of parts.
func ScoreWords(parts int) int { return ScoreParts + 2*parts }

// Tops is how many of the most probable tokens a row wants, -1 for no scores.
func (r *Row) Tops() int { return int(r[RowScores]) - 1 }

// SetTops asks for the scores of the chosen token and of n (0 to MaxTops) of the most probable ones; -1 for none.
func (r *Row) SetTops(n int) { r[RowScores] = uint32(n + 1) }

// SetTarget has the scores be those of a token, whichever the row chooses, as of a prompt's next one.
func (r *Row) SetTarget(token int) { r[RowTarget] = uint32(token + 1) }

// Scored is the token that the row's scores are of, where it has chosen one.
func (r *Row) Scored(chosen int) int {
	if target := r[RowTarget]; target > 0 {
		return int(target) - 1
	}
	return chosen
}
