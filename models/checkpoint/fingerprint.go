package checkpoint

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// What Fingerprint reads of a file of weights: pieces of sampleBytes, one every sampleEvery bytes, and the last.
const (
	sampleBytes = 4 << 10
	sampleEvery = 4 << 20
)

// Fingerprint returns a hash that changes when the weights in directory dir do: over names, sizes and times of change
// of the safetensors files, over a thousandth of their bytes with all of the headers of up to 4 KiB, and over all of
// the configurations beside them. Reading all of the weights would take longer than what is kept under such a name
// saves. A change that keeps size and time of a file and touches none of the samples is not seen.
func Fingerprint(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err != nil || len(files) == 0 { // a pattern in the directory's own name
		entries, err := os.ReadDir(dir)
		if err != nil {
			return "", err
		}
		for _, e := range entries {
			if filepath.Ext(e.Name()) == ".safetensors" {
				files = append(files, filepath.Join(dir, e.Name()))
			}
		}
	}
	slices.Sort(files)
	sum := sha256.New()
	for _, path := range files {
		if err := sample(sum, path); err != nil {
			return "", err
		}
	}
	for _, name := range []string{ConfigFile, IndexFile, "quantize_config.json", "hf_quant_config.json"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n%s", name, len(text), text)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// sample writes what Fingerprint takes of a file.
func sample(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s\n", filepath.Base(path))
	if err := binary.Write(w, binary.LittleEndian, []int64{info.Size(), info.ModTime().UnixNano()}); err != nil {
		return err
	}
	for at := int64(0); at < info.Size(); at += sampleEvery {
		if _, err := io.Copy(w, io.NewSectionReader(f, at, sampleBytes)); err != nil {
			return err
		}
	}
	_, err = io.Copy(w, io.NewSectionReader(f, max(0, info.Size()-sampleBytes), sampleBytes))
	return err
}
