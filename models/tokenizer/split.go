package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
)

type splitJSON struct {
	Type           string `json:"type"`
	Behavior       string `json:"behavior"`
	Invert         bool   `json:"invert"`
	AddPrefixSpace bool   `json:"add_prefix_space"`
	UseRegex       *bool  `json:"use_regex"`
	Pattern        struct {
		Regex  *string
		String *string
	} `json:"pattern"`
}

// readSplit compiles the pre-tokenizer: one Split by a regular expression that keeps what it matches as pieces, then ByteLevel.
func readSplit(raw json.RawMessage) (*regexp2.Regexp, error) {
	const wanted = "a Sequence of Split and ByteLevel"
	members, err := flatten("pre_tokenizer", "pretokenizers", raw)
	if err != nil {
		return nil, err
	}
	if len(members) != 2 {
		return nil, fault("pre_tokenizer", fmt.Sprintf("%d components", len(members)), wanted)
	}
	var split, level splitJSON
	if err := json.Unmarshal(members[0], &split); err != nil {
		return nil, fmt.Errorf("pre_tokenizer 0: %w", err)
	}
	if err := json.Unmarshal(members[1], &level); err != nil {
		return nil, fmt.Errorf("pre_tokenizer 1: %w", err)
	}
	switch {
	case split.Type != "Split" || level.Type != "ByteLevel":
		return nil, fault("pre_tokenizer", quote(split.Type+", "+level.Type), wanted)
	case split.Behavior != "Isolated" || split.Invert:
		return nil, fault("pre_tokenizer 0", fmt.Sprintf("behavior %s, invert %v", quote(split.Behavior), split.Invert), "Isolated, false")
	case split.Pattern.Regex == nil:
		return nil, fault("pre_tokenizer 0", "no pattern.Regex", "a regular expression")
	case level.AddPrefixSpace || level.UseRegex == nil || *level.UseRegex:
		return nil, fault("pre_tokenizer 1", "add_prefix_space or use_regex is set", "both false")
	}
	translated, err := translate(*split.Pattern.Regex)
	if err != nil {
		return nil, fmt.Errorf("pre_tokenizer 0: pattern: %w", err)
	}
	compiled, err := regexp2.Compile(translated, regexp2.OptionMaxBacktrackingStackSize(-1))
	if err != nil {
		return nil, fmt.Errorf("pre_tokenizer 0: pattern: %w", err)
	}
	return compiled, nil
}

// translate writes a pattern for Hugging Face's engine (Oniguruma) as one for ours that matches the same. Letters and numbers become
// the code points that Oniguruma has under these names, so that Go's version of Unicode does not matter. What the two engines read
// differently, or might, is refused.
func translate(pattern string) (string, error) {
	var out strings.Builder
	inClass := false
	for i := 0; i < len(pattern); {
		r, size := utf8.DecodeRuneInString(pattern[i:])
		rest := pattern[i+size:]
		switch {
		case r == '\\' && strings.HasPrefix(rest, "p{"):
			name, _, _ := strings.Cut(rest[2:], "}")
			ranges, err := classRanges(name)
			if err != nil {
				return "", err
			}
			if !inClass {
				ranges = "[" + ranges + "]"
			}
			out.WriteString(ranges)
			i += len(`\p{}`) + len(name)
			continue
		case r == '\\':
			if rest == "" || !strings.ContainsRune(`rntsS\()[]{}.?*+|^$-/'"`, rune(rest[0])) {
				return "", fault("escape", quote(pattern[i:min(i+2, len(pattern))]), `\r \n \t \s \S \p{L} \p{N} or an escaped sign`)
			}
			out.WriteString(pattern[i : i+2])
			i += 2
			continue
		case inClass && (r == '[' || r == '&'), !inClass && (r == '^' || r == '$' || r == '.'):
			return "", fault("pattern", quote(string(r)), "signs that all engines read alike")
		case !inClass && r == '{' && strings.HasPrefix(rest, ","):
			return "", fault("pattern", quote(pattern[i:]), "a repeat with a lower bound")
		case r == '[':
			inClass = true
			if rest == "" || rest[0] == ']' || strings.HasPrefix(rest, "^]") {
				return "", fault("pattern", "an empty class", "at least one character")
			}
		case r == ']':
			inClass = false
		}
		out.WriteString(pattern[i : i+size])
		i += size
	}
	return out.String(), nil
}

// classRanges is the inside of a character class: the letters or numbers of Hugging Face's engine.
func classRanges(name string) (string, error) {
	var table [][2]rune
	switch name {
	case "L":
		table = letters[:]
	case "N":
		table = numbers[:]
	default:
		return "", fault("class", quote(`\p{`+name+`}`), `\p{L} or \p{N}`)
	}
	var out strings.Builder
	for _, r := range table {
		fmt.Fprintf(&out, "%s-%s", classRune(r[0]), classRune(r[1]))
	}
	return out.String(), nil
}

func classRune(r rune) string {
	if r < 0x80 {
		return fmt.Sprintf(`\x%02x`, r)
	}
	return string(r)
}
