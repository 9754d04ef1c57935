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

// row fills dst with the elements of a row, as at would; integers of 8 bits that are unsigned keep their bits.
func (p *ints) row(data []byte, row int, dst []int8) {
	if p.down == p.transposed {
		if p.bits == 4 && !p.transposed && p.order == nil {
			p.pairs(data[row*p.width*p.perWord/2:], dst)
			return
		}
		if p.bits == 8 && !p.transposed && p.order == nil {
			p.bytes(data[row*p.width*p.perWord:], dst)
			return
		}
		p.alongWords(data, row, dst)
		return
	}
	word, step := row/p.perWord*p.width, 1 // down a column of words
	if p.transposed {
		word, step = row/p.perWord, p.width
	}
	at, shift := p.slot(row % p.perWord)
	size := p.perWord * p.bits / 8
	mask := byte(1<<p.bits - 1)
	for c := range dst {
		dst[c] = int8(int(data[(word+c*step)*size+at]>>shift&mask) + p.offset)
	}
}

// alongWords fills dst where the columns of a row share words.
func (p *ints) alongWords(data []byte, row int, dst []int8) {
	word, step := row*p.width, 1
	if p.transposed {
		word, step = row, p.width
	}
	size := max(1, p.perWord*p.bits/8)
	mask := byte(1<<p.bits - 1)
	for s := range p.perWord {
		at, shift := p.slot(s)
		for c, w := s, word; c < len(dst); c, w = c+p.perWord, w+step {
			dst[c] = int8(int(data[w*size+at]>>shift&mask) + p.offset)
		}
	}
}

// pairs fills dst with the nibbles of bytes, the lower one first, whatever the size of the words.
func (p *ints) pairs(data []byte, dst []int8) {
	offset := int8(p.offset)
	data = data[:(len(dst)+1)/2]
	for i := range len(dst) / 2 {
		b := data[i]
		d := dst[2*i : 2*i+2 : 2*i+2]
		d[0], d[1] = int8(b&15)+offset, int8(b>>4)+offset
	}
	if len(dst)%2 == 1 {
		dst[len(dst)-1] = int8(data[len(data)-1]&15) + offset
	}
}

// bytes fills dst with bytes, whatever the size of the words.
func (p *ints) bytes(data []byte, dst []int8) {
	offset := int8(p.offset)
	data = data[:len(dst)]
	for i, b := range data {
		dst[i] = int8(b) + offset
	}
}

// block fills dst with n rows of a transposed tensor of 32-bit words, from row first on, a multiple of blockRows: each
// word is looked at once. Rows are columns apart in dst.
func (p *ints) block(data []byte, first, n int, dst []int8, columns int) {
	mask, offset := uint32(1<<p.bits-1), int8(p.offset)
	if p.down { // a word has perWord columns of one row
		for w := range (columns + p.perWord - 1) / p.perWord {
			words := data[4*(w*p.width+first):]
			for r := range n {
				word := leUint32(words[4*r:])
				to := dst[r*columns:][w*p.perWord : min((w+1)*p.perWord, columns)]
				for i := range to {
					to[i] = int8(word&mask) + offset
					word >>= p.bits & 31
				}
			}
		}
		return
	}
	for r := 0; r < n; r += p.perWord { // a word has perWord rows of one column
		var shifts [blockRows]int
		rows := min(p.perWord, n-r)
		for i := range rows {
			at, shift := p.slot(i)
			shifts[i] = 8*at + shift
		}
		for c := range columns {
			word := leUint32(data[4*(c*p.width+(first+r)/p.perWord):])
			for i := range rows {
				dst[(r+i)*columns+c] = int8(word>>(shifts[i]&31)&mask) + offset
			}
		}
	}
}

// slot returns the byte of a word and the shift in it of an element.
func (p *ints) slot(i int) (at, shift int) {
	if p.order != nil {
		i = int(p.order[i])
	}
	return i * p.bits / 8, i * p.bits % 8
}
