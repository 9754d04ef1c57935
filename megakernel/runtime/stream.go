package runtime

import "context"

// Stream is Generate that hands out every chosen token as it comes. each is
// called in order, on the caller's goroutine; when it returns false, or when ctx
// ends, the launch is told to stop and the tokens it has chosen until then are
// returned: those handed out, and perhaps a few more. Pos says what is in the
// cache; Rewind forgets what is not wanted. A cancelled ctx is not an error of
// the session, which can go on; Stream then returns ctx's error beside the tokens.
func (s *Session) Stream(ctx context.Context, prompt []int, n int, each func(token int) bool) (chosen []int, err error) {
	for len(chosen) < n {
		if err := ctx.Err(); err != nil {
			return chosen, err
		}
		next, err := s.Generate(prompt, 1)
		if err != nil || len(next) == 0 {
			return chosen, err
		}
		chosen = append(chosen, next[0])
		if s.ends[next[0]] || !each(next[0]) {
			break
		}
		prompt = next
	}
	return chosen, nil
}
