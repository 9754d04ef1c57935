package quant

// ints says where in a tensor the elements of a matrix of integers are, a row and a column each. Elements have 4 or 8
// bits and fill a word from its lowest bits up; words are little-endian.
type ints struct {
	tensor     string
	bits       int       // of an element, 4 or 8
	perWord    int       // elements of a word; 1 where nothing is packed
	width      int       // words of a row of the tensor
	down       bool      // a word's elements are of one column of the tensor, below each other, else of one row
	transposed bool      // the tensor's rows are the matrix's columns
	order      *[8]uint8 // slot in its word of each element; nil for the order of the elements
	offset     int       // added to a stored value, which is unsigned
	signed     bool      // a stored value is signed, of 8 bits
}

// at returns one element; data is the tensor's.
func (p *ints) at(data []byte, row, col int) int {
	if p.transposed {
		row, col = col, row
	}
	var word, slot int
	if p.down {
		word, slot = row/p.perWord*p.width+col, row%p.perWord
	} else {
		word, slot = row*p.width+col/p.perWord, col%p.perWord
	}
	if p.order != nil {
		slot = int(p.order[slot])
	}
	bit := (word*p.perWord + slot) * p.bits
	value := int(data[bit/8]>>(bit%8)) & (1<<p.bits - 1)
	if p.signed {
		value = int(int8(value))
	}
	return value + p.offset
}
