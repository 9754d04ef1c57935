package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	maxFile = 256 << 20 // bytes of one file; Llama 3's tokenizer.json has 9 or 17 MB
	maxID   = 1 << 20   // ids lie below; the largest known vocabularies have 262,144
)

// token is what an id stands for. Ids that the files give to nothing have known false.
type token struct {
	name    string // as the files spell it
	known   bool
	special bool
}

// Tokenizer is a checkpoint's tokenizer, made by Open or Parse.
type Tokenizer struct {
	tokens        []token // by id
	byName        map[string]int32
	raw           added // looked for first
	normalizers   normalizers
	normalized    added // looked for in what is left between those, once it is normalized
	preTokenizers []preTokenizer
	model         model
	before, after []int // put around a text
	decoders      []decoder
	config        config
}

// Open reads the tokenizer of the checkpoint in the folder dir: tokenizer.json, and where they are there
// tokenizer_config.json and chat templates in files of their own, which go before those in the former. Errors name the
// file, the field, what is there and what is wanted. A folder without a tokenizer is an fs.ErrNotExist, one with a
// tokenizer in another format an error that says how to convert it.
func Open(dir string) (*Tokenizer, error) {
	t, err := opener(func(name string) (fs.File, error) { return os.Open(filepath.Join(dir, name)) }).tokenizer()
	if err != nil && !errors.As(err, new(*fs.PathError)) { // which names the file in full
		err = fmt.Errorf("%s: %w", dir, err)
	}
	return t, err
}

// OpenFS reads the tokenizer at the root of fsys as Open does. fsys is not used after OpenFS returned.
func OpenFS(fsys fs.FS) (*Tokenizer, error) { return opener(fsys.Open).tokenizer() }

// opener opens one of the files by its name.
type opener func(name string) (fs.File, error)

func (o opener) tokenizer() (*Tokenizer, error) {
	tokenizerJSON, err := o.read(tokenizerFile)
	if err != nil {
		return nil, o.otherFormat(err)
	}
	configJSON, err := o.readOptional(configFile)
	if err != nil {
		return nil, err
	}
	t, err := Parse(tokenizerJSON, configJSON)
	if err != nil {
		return nil, err
	}
	return t, o.templates(t)
}

// otherFormat says what to do where tokenizer.json is missing and the tokenizer is there in another format. Any
// other error it returns as it is.
func (o opener) otherFormat(err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range otherFiles {
		f, err := o(name)
		if err != nil {
			continue
		}
		f.Close()
		return fault(tokenizerFile, "not there, but "+name+" is",
			tokenizerFile+", which Hugging Face's transformers writes: "+
				`python -c "from transformers import AutoTokenizer as T; T.from_pretrained('.').save_pretrained('.')" in the checkpoint's folder`)
	}
	return err
}

// readOptional is nil for a file that is not there.
func (o opener) readOptional(name string) ([]byte, error) {
	data, err := o.read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

func (o opener) read(name string) ([]byte, error) {
	f, err := o(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fault(name, fmt.Sprintf("more than %d bytes", maxFile), "a smaller file")
	}
	return data, nil
}

// Parse makes a tokenizer of the contents of tokenizer.json and of tokenizer_config.json; configJSON may be empty, then
// there are no named special tokens and there is no chat template.
func Parse(tokenizerJSON, configJSON []byte) (*Tokenizer, error) {
	t := &Tokenizer{}
	if err := t.parse(tokenizerJSON); err != nil {
		return nil, fmt.Errorf("%s: %w", tokenizerFile, err)
	}
	if err := t.parseConfig(configJSON); err != nil {
		return nil, fmt.Errorf("%s: %w", configFile, err)
	}
	return t, nil
}

func (t *Tokenizer) parse(data []byte) error {
	var file fileJSON
	if err := json.Unmarshal(data, &file); err != nil {
		return err
	}
	if err := t.readSplits(file); err != nil {
		return err
	}
	if err := t.readModel(file.Model); err != nil {
		return err
	}
	if err := t.readAdded(file.AddedTokens); err != nil {
		return err
	}
	if err := t.readProcessor(file.PostProcessor); err != nil {
		return err
	}
	var err error
	t.decoders, err = readDecoders(file.Decoder)
	return err
}

// readSplits reads what comes before the model.
func (t *Tokenizer) readSplits(file fileJSON) (err error) {
	t.normalizers, err = readComponents("normalizer", "normalizers", file.Normalizer, normalizerReaders)
	if err != nil {
		return err
	}
	t.preTokenizers, err = readComponents("pre_tokenizer", "pretokenizers", file.PreTokenizer, preTokenizerReaders)
	return err
}

// readModel reads the vocabulary and the model. A byte-level BPE takes bytes as they are: that spares spelling them.
func (t *Tokenizer) readModel(raw json.RawMessage) error {
	name, err := kind("model", raw)
	if err != nil {
		return err
	}
	switch name {
	case "BPE":
		bytes := false
		if last := len(t.preTokenizers) - 1; last >= 0 {
			if level, ok := t.preTokenizers[last].(byteLevel); ok {
				level.raw, bytes = true, true
				t.preTokenizers[last] = level
			}
		}
		t.model, err = t.readBPE(raw, bytes)
	case "Unigram":
		t.model, err = t.readUnigram(raw)
	case "":
		err = fault("model", "none", `"BPE" or "Unigram"`)
	default:
		err = fault("model", quote(name), `"BPE" or "Unigram"`)
	}
	return err
}

// Size is one more than the highest id. A model's logits may have more rows than that, never fewer.
func (t *Tokenizer) Size() int { return len(t.tokens) }

// ID is the id of the token that the files spell so: "<|eot_id|>", or "Ġthe" in the byte-level alphabet; false when
// there is none.
func (t *Tokenizer) ID(name string) (int, bool) {
	id, ok := t.byName[name]
	return int(id), ok
}

// Token is the files' spelling of the token id; false when id belongs to no token.
func (t *Tokenizer) Token(id int) (string, bool) {
	if !t.known(id) {
		return "", false
	}
	return t.tokens[id].name, true
}

// Special tells whether id is a special token, one that Decode can skip; false for ids that belong to no token.
func (t *Tokenizer) Special(id int) bool { return t.known(id) && t.tokens[id].special }

func (t *Tokenizer) known(id int) bool { return id >= 0 && id < len(t.tokens) && t.tokens[id].known }
