package tokenizer

// piece is a part of a text on its way to the model. first reports that it begins where the whole text begins.
type piece struct {
	text  string
	first bool
}

// normalizer changes a text before it is split. What it returns is first only if it took nothing off the beginning.
type normalizer interface {
	normalize(p piece) (piece, error)
}

// preTokenizer splits a text into the pieces that the model sees, and yields them in order. It yields no empty piece.
// An error of yield ends the split and is returned.
type preTokenizer interface {
	split(p piece, s *scratch, yield func(piece) error) error
}

// model turns a piece, which is not empty, into ids and appends them.
type model interface {
	encode(ids []int, text string, w *workspace) ([]int, error)
}

// decoder is one step from tokens to text. start gives its state for one text; joined reports that an earlier step made
// all the tokens one, so that what is added are parts of a single token.
type decoder interface {
	start(joined bool) stage
	joins() bool // makes all tokens one
}

// stage is a decoder at work on one text. What add and flush emit, in order, is what the decoder makes of all tokens.
// Every emitted string is whole characters.
type stage interface {
	add(token string, emit func(string))
	flush(emit func(string))
}

// normalizers are run one after the other.
type normalizers []normalizer

func (n normalizers) normalize(p piece) (piece, error) {
	for _, each := range n {
		if p.text == "" {
			return p, nil
		}
		var err error
		if p, err = each.normalize(p); err != nil {
			return p, err
		}
	}
	return p, nil
}
