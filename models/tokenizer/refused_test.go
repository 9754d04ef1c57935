package tokenizer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMistakesInTokenizerJSONAreNamed(t *testing.T) {
	source, _ := files(t)
	for _, c := range []struct{ old, new, want string }{
		{source, "", "unexpected end of JSON input"},
		{source, "{", "unexpected end of JSON input"},
		{source, "[]", "cannot unmarshal array"},
		{source, "null", `model: none; want "BPE" or "Unigram"`},
		{source, "{}", `model: none; want "BPE" or "Unigram"`},
		{source, strings.Repeat("[", 20000), "exceeded max depth"},
		{`"normalizer":null`, `"normalizer":{"type":"Nmt"}`,
			`normalizer: "Nmt"; want one of Lowercase, NFC, NFD, NFKC, NFKD, Precompiled, Prepend, Replace, Sequence, Strip, StripAccents`},
		{`"normalizer":null`, `"normalizer":{}`, `normalizer: no type; want an object with a type`},
		{`"normalizer":null`, `"normalizer":7`, `normalizer: json: cannot unmarshal number`},
		{`"decoder":{"type":"ByteLevel"`, `"decoder":{"type":"CTC"`,
			`decoder: "CTC"; want one of ByteFallback, ByteLevel, Fuse, Metaspace, Replace, Sequence, Strip`},
		{`"type":"BPE"`, `"type":"WordPiece"`, `model: "WordPiece"; want "BPE" or "Unigram"`},
		{`"dropout":null`, `"dropout":0.1`, `model.dropout: 0.1; want none`},
		{`"end_of_word_suffix":null`, `"end_of_word_suffix":"</w>"`, `want neither`},
		{`"!":0,`, `"!":-1,`, `model.vocab: "!" has id -1; want 0 to`},
		{`"!":0,`, `"!":99999999999,`, `has id 99999999999; want 0 to`},
		{`"!":0,`, `"!":0.5,`, `cannot unmarshal number 0.5`},
		{`"!":0,`, `"!":0,"":2047,`, `the empty token with id 2047; want tokens of one byte or more`},
		{`"!":0,`, `"!":1,`, `another token have id 1; want one token for an id`},
		{`"merges":[["`, `"merges":[["nope`, `want two tokens whose concatenation is a token too`},
		{`"merges":[`, `"merges":["a b c",`, `model.merges: "a b c"; want two tokens with one space between them`},
		{`"merges":[`, `"merges":[["a"],`, `model.merges: "[\"a\"]"; want a list of two tokens`},
		{`"merges":[`, `"merges":[null,`, `want a list of two tokens`},
		{`"id":2049,`, `"id":2048,`,
			`added_tokens 1 ("<|end_of_text|>"): id 2048, as "<|begin_of_text|>" has; want one token for an id`},
		{`"id":2049,`, `"id":-1,`, `id -1; want 0 to`},
		{`"id":2049,`, `"id":999999999999,`, `id 999999999999; want 0 to`},
		{`"content":"<|end_of_text|>"`, `"content":""`, `no content; want a token`},
		{`"content":"<|end_of_text|>"`, `"content":"!"`, `ids 0 and 2049; want one id for a token`},
		{`"behavior":"Isolated"`, `"behavior":"Dropped"`,
			`pre_tokenizer 0.behavior: "Dropped"; want Removed, Isolated, Contiguous, MergedWithPrevious or MergedWithNext`},
		{`"use_regex":false`, `"use_regex":7`, `pre_tokenizer 1: json: cannot unmarshal number`},
		{`{"Regex":`, `{"Glob":`, `pre_tokenizer 0: no pattern; want pattern.String or pattern.Regex`},
		{`"Regex":"(?i:`, `"Regex":"((?i:`, `pre_tokenizer 0: pattern:`},
		{`\\s+(?!\\S)`, `\\h+`, `escape: "\\h"; want`},
		{`\\s+(?!\\S)`, `\\p{Thai}`, `class: "\\p{Thai}"; want \p{L}, \p{Lu}`},
		{`\\s+(?!\\S)`, `^a`, `pattern: "^"; want signs that all engines read alike`},
		{`\\s+(?!\\S)`, `[a&&b]`, `want signs that all engines read alike`},
		{`\\s+(?!\\S)`, `[]a]`, `an empty class`},
		{`\\s+(?!\\S)`, `a{,2}`, `want a repeat with a lower bound`},
		{`\\s+(?!\\S)`, `a{2}+`, `want one repeat after another thing than a repeat`},
		{`\\s+(?!\\S)`, `|+`, `want something before it to repeat`},
		{`\\s+(?!\\S)`, `(?x:a)`, `want groups that begin with`},
		{`"pre_tokenizer":{`, `"pre_tokenizer":{"type":"UnicodeScripts"},"x":{`,
			`pre_tokenizer: "UnicodeScripts"; want one of BertPreTokenizer,`},
		{`"unk_token":null`, `"unk_token":"<nope>"`, `model.unk_token: "<nope>"; want a token of the vocabulary`},
		{`"type":"TemplateProcessing"`, `"type":"OtherProcessing"`, `post_processor 1: "OtherProcessing"; want`},
		{`{"Sequence":{"id":"A"`, `{"Sequence":{"id":"B"`, `want a SpecialToken or the Sequence "A"`},
		{`"ids":[2048]`, `"ids":[70000]`, `id 70000; want the id of a token`},
		{`"special_tokens":{"<|b`, `"special_tokens":{"<|c`, `want one listed in special_tokens`},
	} {
		require.Contains(t, source, c.old)
		_, err := Parse([]byte(strings.Replace(source, c.old, c.new, 1)), nil)
		require.ErrorContains(t, err, "tokenizer.json: ", "%.60s", c.new)
		require.ErrorContains(t, err, c.want, "%.60s", c.new)
	}
}

func TestMistakesInTokenizerConfigAreNamed(t *testing.T) {
	source, _ := files(t)
	for config, want := range map[string]string{
		`{`:                        "unexpected end of JSON input",
		`[]`:                       "cannot unmarshal array",
		`{"bos_token": "<nope>"}`:  `bos_token: "<nope>"; want a token of tokenizer.json`,
		`{"eos_token": 7}`:         `eos_token: value: "7"; want a string or an object with content`,
		`{"eos_token": {}}`:        `want a string or an object with content`,
		`{"chat_template": 7}`:     `chat_template: "7"; want a string or a list of objects with name and template`,
		`{"chat_template": ["a"]}`: `want a string or a list of objects with name and template`,
	} {
		_, err := Parse([]byte(source), []byte(config))
		require.ErrorContains(t, err, "tokenizer_config.json: ", config)
		require.ErrorContains(t, err, want, config)
	}
}

func TestTextThatIsNotUTF8IsRefused(t *testing.T) {
	tok := open(t)
	for text, want := range map[string]string{
		"\xff":           "byte 0xff at offset 0 is not UTF-8",
		"aé\xc3":         "byte 0xc3 at offset 3 is not UTF-8",
		"a\xed\xa0\x80b": "byte 0xed at offset 1 is not UTF-8",
		"\xf0\x9f\x98":   "byte 0xf0 at offset 0 is not UTF-8",
		"\ufffd\x80":     "byte 0x80 at offset 3 is not UTF-8",
	} {
		_, err := tok.Encode(text, true)
		require.ErrorContains(t, err, want)
		_, err = tok.EncodePlain(text)
		require.ErrorContains(t, err, want)
	}
}

func TestBytesWithoutTokenAreRefused(t *testing.T) {
	source, _ := files(t)
	without := strings.Replace(source, `"!":0,`, `"<no>":0,`, 1)
	tok, err := Parse([]byte(without), nil)
	require.NoError(t, err)
	_, err = tok.Encode("Hi!", false)
	require.ErrorContains(t, err, `text: byte 0x21 in "!"; want bytes that the vocabulary has a token for`)
	_, err = tok.Encode("Hi", false)
	require.NoError(t, err)
}

func TestOpenOfFolders(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, tokenizerFile)
	tokenizerJSON, configJSON := files(t)
	write := func(name, content string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}

	write(tokenizerFile, tokenizerJSON)
	tok, err := Open(dir)
	require.NoError(t, err, "tokenizer_config.json may be missing")
	_, ok := tok.BOS()
	require.False(t, ok)
	_, err = tok.ChatTemplate("")
	require.ErrorIs(t, err, ErrNoChatTemplate)

	write(configFile, configJSON)
	tok, err = Open(dir)
	require.NoError(t, err)
	_, err = tok.ChatTemplate("")
	require.NoError(t, err)

	write(templateFile, "{{ bos_token }}{{ messages[0].content }}")
	tok, err = Open(dir)
	require.NoError(t, err)
	template, err := tok.ChatTemplate("")
	require.NoError(t, err)
	text, err := template.Render([]Message{{Role: "user", Content: "hi"}}, ChatOptions{})
	require.NoError(t, err)
	require.Equal(t, "<|begin_of_text|>hi", text)

	write(tokenizerFile, "{")
	_, err = Open(dir)
	require.ErrorContains(t, err, dir)
	require.NoError(t, os.Remove(filepath.Join(dir, tokenizerFile)))
	require.NoError(t, os.Mkdir(filepath.Join(dir, tokenizerFile), 0o755))
	_, err = Open(dir)
	require.Error(t, err)
}
