// Package batch lets up to 16 sequences share the steps of one ragged kernel, and
// the pages of its KV cache.
//
// A Scheduler is told of jobs with Add and works on them with Step. It knows
// tokens and pages; text and clocks are its caller's, and goroutines but one, which
// gives clients log-probabilities while the next launch runs. Readers are given the
// tokens of a launch's last step then, too: nothing that the next launch does not
// need comes before it. Nothing in it
// depends on time or chance: the same calls with the same stepper do the same.
//
// # A step
//
// A step has a fixed number of rows, each for one token of one sequence. Every
// running sequence has one at least: those that have one token left to feed, and
// so choose the next one, exactly one; those that still have prompt to feed share
// the others evenly. When all sequences choose, a launch runs many steps; it ends
// as soon as one of them has had enough.
//
// # Pieces
//
// How many tokens of a prompt come together decides where its sums are cut, so with
// Options.Piece that depends on the prompt alone: it comes in pieces of n tokens
// from its begin on, and what remains. A sequence has its whole next piece or no row at
// all; those that have waited longest come first. A page is then known by its tokens
// and the pieces they came in, and of pages that are remembered a sequence takes over as
// many as end where a piece does. What a sequence has chosen came token by token, and
// comes so again when it was sent back. Pieces of more tokens than a step has rows are launches of their own
// (Prefiller).
//
// Parts that are cut at fixed places are as many as a sequence is long, and a kernel has
// room for as many: where those of all sequences are too many for one launch, it is of
// those that have waited longest, and the others have theirs later. Only a sequence that
// alone has too many is refused.
//
// # Pages
//
// A sequence holds the pages of its cached tokens and, before a launch, of those
// that the launch can reach. Whole pages go to the tree of package prefix at once,
// so a sequence that begins like another one, running or gone, shares them. While
// one computes a page, others that need the same one wait for it.
//
// When no page is free, pages that only the tree remembers go, the least recently
// used first. When there are none either, the newest sequence is sent back to the
// head of the queue: its pages go to the tree, what it has chosen it keeps, and it
// goes on later as if nothing had been. The oldest never waits, so all end. Only a
// sequence that alone fills the whole cache is refused, with ErrFull.
//
// Jobs start in the order of Add, and only when the cache has room for what
// they and all that run have to feed; none overtakes another.
package batch
