package megakernel

import (
	"encoding/json"

	"github.com/mkgen/mkgen/emit"
)

// layoutFile is the content of layout.json.
type layoutFile struct {
	Generator string   `json:"generator"`
	Files     []string `json:"files"`
}

func (mk *Kernel) layout(_ emit.Target, files []File) (File, error) {
	l := layoutFile{Generator: Generator, Files: []string{LayoutFile}}
	for _, f := range files {
		l.Files = append(l.Files, f.Name)
	}
	text, err := json.MarshalIndent(&l, "", "  ")
	return File{LayoutFile, append(text, '\n')}, err
}
