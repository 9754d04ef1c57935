package checkpoint

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
)

// match compares the tensors of the files with the index and with those that the
// configuration needs, and takes over the latter. All problems come back together.
func (c *Checkpoint) match(lines []indexed, found map[string]*tensor, inOrder []string) error {
	var p problems
	ignored, headName := ignoredOf(c.config), c.config.TensorName(models.RoleHead)
	if lines != nil {
		where := map[string]string{}
		for name, t := range found {
			where[name] = t.file.name
		}
		checkIndex(lines, where, inOrder, ignored, &p)
	}
	if c.config.TextPart {
		found, inOrder = textPart(&c.config, found, inOrder)
	}
	if len(c.config.Skipped) > 0 {
		found, inOrder = renumbered(&c.config, found, inOrder)
	}
	need := tensorsOf(c.config)
	for _, w := range need {
		c.order = append(c.order, w.name)
		if t := found[w.name]; t == nil {
			p.add(w.missing(found, headName))
		} else {
			c.tensors[w.name] = t
			t.fit(w, &p)
		}
	}
	scales := kvScalesOf(c.config)
	c.matchScales(found, &p)
	for _, name := range inOrder {
		if name == headName && c.config.TieEmbeddings {
			found[name].fit(wanted{headName, need[0].shape}, &p)
		} else if c.tensors[name] == nil && !ignored[name] && !scales[name] {
			p.add(extra(found[name]))
		}
	}
	return p.Err()
}

// textPart takes the language model's tensors out of a multimodal checkpoint, under the names that they have in one of
// text alone: embedding, layers and final norm stand behind whatever stands before the embedding's name, in files of
// transformers 4 and 5 language_model.model, model.language_model, model.text_model or model; the LM head is anywhere.
func textPart(c *models.Config, found map[string]*tensor, inOrder []string) (text map[string]*tensor, names []string) {
	const own = "model."
	embed, norm, head := c.TensorName(models.RoleEmbed), c.TensorName(models.RoleFinal), c.TensorName(models.RoleHead)
	text, before := map[string]*tensor{}, own
	for _, name := range inOrder {
		if at, is := strings.CutSuffix(name, strings.TrimPrefix(embed, own)); is && (at == "" || at[len(at)-1] == '.') {
			before = at
		}
	}
	for _, name := range inOrder {
		as, isText := strings.CutPrefix(name, before)
		as = own + as
		isText = isText && (as == embed || as == norm || strings.HasPrefix(as, own+"layers."))
		if name == head || strings.HasSuffix(name, "."+head) {
			as, isText = head, true
		}
		if isText {
			text[as] = found[name]
			names = append(names, as)
		}
	}
	return text, names
}

// renumbered takes out the tensors of layers that are passed over, and gives the others the numbers that they then
// have.
func renumbered(c *models.Config, found map[string]*tensor, inOrder []string) (own map[string]*tensor, names []string) {
	own = map[string]*tensor{}
	for _, name := range inOrder {
		as := name
		if rest, ok := strings.CutPrefix(name, "model.layers."); ok {
			number, of, _ := strings.Cut(rest, ".")
			if n, err := strconv.Atoi(number); err == nil {
				m, in := c.LayerNumber(n)
				if !in {
					continue
				}
				as = fmt.Sprintf("model.layers.%d.%s", m, of)
			}
		}
		own[as] = found[name]
		names = append(names, as)
	}
	return own, names
}

// fit checks t's type and shape, and sets its rows and columns.
func (t *tensor) fit(w wanted, p *problems) {
	if _, ok := dtypeOf(t.dtype); !ok {
		p.add(Problem{File: t.file.name, Tensor: t.name, Found: "dtype " + t.dtype, Want: wantDType})
	}
	same := func(a int64, b int) int { return int(a - int64(b)) }
	if slices.CompareFunc(t.shape, w.shape, same) != 0 {
		p.add(Problem{File: t.file.name, Tensor: t.name, Found: "shape " + showShape(t.shape), Want: showShape(w.shape)})
	}
	t.rows, t.cols = 1, w.shape[len(w.shape)-1]
	if len(w.shape) == 2 {
		t.rows = w.shape[0]
	}
}

// equal compares a with b, of the same shape, as Row would deliver them.
func (c *Checkpoint) equal(ctx context.Context, a, b *tensor) error {
	const block = 256
	differs := make([]int, (a.rows+block-1)/block) // 1 + the first row that differs
	err := parallel(ctx, len(differs), func(i int) error {
		x, y := make([]half.BF16, a.cols), make([]half.BF16, b.cols)
		return c.read(a, func() error {
			return b.file.guard(b.name, func() error {
				for row := i * block; row < min(a.rows, (i+1)*block); row++ {
					if a.from == b.from && bytes.Equal(a.row(row), b.row(row)) {
						continue
					}
					convert(x, a.row(row), a.from, c.f16)
					convert(y, b.row(row), b.from, c.f16)
					if !slices.Equal(x, y) {
						differs[i] = row + 1
						return nil
					}
				}
				return nil
			})
		})
	})
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(differs, func(row int) bool { return row > 0 }); i >= 0 {
		return &Problem{File: a.file.name, Tensor: a.name, Found: fmt.Sprintf("another row %d than in %s", differs[i]-1,
			b.name),
			Want: "equal ones, or no " + a.name, Why: ConfigFile + " says tie_word_embeddings true"}
	}
	return nil
}
