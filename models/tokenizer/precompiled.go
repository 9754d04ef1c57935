package tokenizer

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// precompiled is SentencePiece's table of replacements: a double-array trie of what is replaced, and the replacements,
// each with a zero byte after it.
type precompiled struct {
	units []uint32
	texts string
}

func readPrecompiled(place string, raw json.RawMessage) (normalizer, error) {
	f, err := fields[struct {
		Map string `json:"precompiled_charsmap"`
	}](place, raw)
	if err != nil {
		return nil, err
	}
	place += ".precompiled_charsmap"
	data, err := base64.StdEncoding.DecodeString(f.Map)
	if err != nil {
		return nil, fault(place, err.Error(), "base64")
	}
	if len(data) == 0 {
		return precompiled{}, nil
	}
	size := uint64(0)
	if len(data) >= 4 {
		size = uint64(binary.LittleEndian.Uint32(data))
	}
	if size == 0 || size%4 != 0 || 4+size > uint64(len(data)) || !utf8.Valid(data[4+size:]) {
		return nil, fault(place, "a table of another form", "the size of a trie, the trie and texts in UTF-8")
	}
	n := precompiled{texts: string(data[4+size:])}
	for at := uint64(4); at < 4+size; at += 4 {
		n.units = append(n.units, binary.LittleEndian.Uint32(data[at:]))
	}
	return n, nil
}

// normalize replaces each user-perceived character of less than 6 bytes that begins with an entry, as a whole. In
// others it replaces each code point that has an entry. That is the library's way, odd as it is, because the model was
// trained so.
func (n precompiled) normalize(p piece) (piece, error) {
	var out strings.Builder
	state, cut := -1, false
	for rest := p.text; rest != ""; {
		var cluster string
		at := len(p.text) - len(rest)
		cluster, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if len(cluster) < 6 {
			if text, ok := n.find(cluster); ok {
				cut = cut || at == 0 && text == ""
				out.WriteString(text)
				continue
			}
		}
		for i, r := range cluster {
			text, ok := n.find(cluster[i : i+utf8.RuneLen(r)])
			if !ok {
				text = string(r)
			}
			cut = cut || at+i == 0 && text == ""
			out.WriteString(text)
		}
	}
	return piece{out.String(), p.first && !cut}, nil
}

// find gives the replacement of the shortest entry that key begins with.
func (n precompiled) find(key string) (string, bool) {
	at := uint32(0)
	if len(n.units) == 0 {
		return "", false
	}
	at ^= offset(n.units[0])
	for i := range len(key) {
		if key[i] == 0 {
			break
		}
		at ^= uint32(key[i])
		if at >= uint32(len(n.units)) {
			break
		}
		unit := n.units[at]
		if unit&(1<<31|0xff) != uint32(key[i]) {
			break
		}
		at ^= offset(unit)
		if unit>>8&1 == 0 {
			continue
		}
		if at >= uint32(len(n.units)) {
			break
		}
		from := n.units[at] &^ (1 << 31)
		if uint64(from) > uint64(len(n.texts)) {
			break
		}
		text, _, _ := strings.Cut(n.texts[from:], "\x00")
		return text, true
	}
	return "", false
}

// offset leads from a unit of the trie to its children.
func offset(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }
