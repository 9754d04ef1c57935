package trace

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/mkgen/mkgen/internal/picture"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page is what the template shows.
type page struct {
	Generator     string
	Model, Device string
	Basis         string
	Notices       []string
	Cards         []card
	Grids         []pageGrid
	Timeline      template.HTML
	Bars          template.HTML
	Histograms    template.HTML
	Ring          template.HTML
}

// card is a headline figure.
type card struct{ Figure, What string }

type pageGrid struct {
	Title string
	Head  []pageCell
	Rows  [][]pageCell
}

type pageCell struct {
	Text  string
	Right bool
}

// WritePage writes one HTML file, which needs nothing else: headline figures, the
// timeline of one representative layer, the chunks in the ring over it, the parts of
// the phases, the arrivals at the syncs, and the summary's tables. It is XML, too.
func (t *Trace) WritePage(w io.Writer) error {
	if err := t.Check(); err != nil {
		return err
	}
	y := t.tally()
	s := y.summary()
	plot := y.plot(s)
	plot.inPage = true
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, page{Generator: generator, Model: t.Model, Device: t.Device, Basis: s.basis(),
		Notices: s.notices(), Cards: s.cards(), Grids: s.pageGrids(), Timeline: inline(plot.timeline()),
		Ring: inline(plot.ringPlot()), Bars: inline(plot.bars()), Histograms: inline(plot.histograms())})
	if err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	_, err = w.Write(b.Bytes())
	return err
}

func inline(document []byte) template.HTML { return template.HTML(picture.Inline(document)) }

// cards are the headline figures, those that there are.
func (s *Summary) cards() (cards []card) {
	if s.Steps > 0 {
		cards = append(cards, card{amount(s.Unit, s.Step.Time), "a step"})
	}
	if s.LayerRuns > 0 {
		cards = append(cards, card{amount(s.Unit, s.Layer.Time), "a layer"})
	}
	p := s.Shares()
	if p.Time == 0 {
		return cards
	}
	cards = append(cards, card{percent(p.Share(p.Work)), "consumers work"},
		card{percent(p.Share(p.Chunks)), "wait for chunks"}, card{percent(p.Share(p.Syncs)), "wait at syncs"})
	if p.Others > 0 {
		cards = append(cards, card{percent(p.Share(p.Others)), "wait for words"})
	}
	if s.Producers > 0 {
		cards = append(cards, card{percent(p.Share(p.RingFull)), "the ring is full"})
	}
	if h := s.mostSkewed(); h != nil && h.Skew > 0 {
		cards = append(cards, card{amount(s.Unit, h.Skew), "lost to uneven arrival at the " + h.Name})
	}
	return cards
}

// mostSkewed is the sync with the greatest Skew, nil if there is none.
func (s *Summary) mostSkewed() (most *SyncSummary) {
	for i := range s.Syncs {
		if most == nil || s.Syncs[i].Skew > most.Skew {
			most = &s.Syncs[i]
		}
	}
	return most
}

func (s *Summary) pageGrids() (grids []pageGrid) {
	for _, g := range s.grids() {
		if len(g.rows) == 0 {
			continue
		}
		pg := pageGrid{Title: g.title}
		for _, h := range g.head {
			h = strings.ReplaceAll(h, "\n", " ")
			r, text := right(h)
			pg.Head = append(pg.Head, pageCell{text, r})
		}
		for _, row := range g.rows {
			var cells []pageCell
			for i, c := range row {
				cells = append(cells, pageCell{fmt.Sprint(c), pg.Head[i].Right})
			}
			pg.Rows = append(pg.Rows, cells)
		}
		grids = append(grids, pg)
	}
	return grids
}
