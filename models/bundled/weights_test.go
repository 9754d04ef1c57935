package bundled_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/bundled"
	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/synth"
)

// passage was written for this test and is in none of the books that the model learned from.
const passage = `There was once a poor woodcutter who lived with his wife and his only daughter at the edge of a great forest. One morning in winter, when the snow lay deep before the door, the woman said to him:
"Husband, there is no bread left in the house, and the fire is going out. What shall we do?"
"Be of good cheer," answered the man. "I will go into the forest and cut some wood, and then I will sell it in the town."
So he took his axe and went away. He had not gone far when he saw an old man sitting on a stone, who had a long white beard and a red cap on his head.
"Good day," said the old man. "Will you give me a little of your bread? I have eaten nothing for three days."
"I have none for myself," said the woodcutter, "but come home with me, and you shall sit by our fire as long as you please."`

// model is the bundled checkpoint in the float64 reference, with the given roundings.
func model(t testing.TB, c *checkpoint.Checkpoint, hooks func(models.Config) reference.Hooks) *reference.Model {
	shape := c.Config()
	weights := reference.Weights{}
	for _, tensor := range synth.Tensors(shape) {
		cols := tensor.Shape[len(tensor.Shape)-1]
		bits := make([]half.BF16, tensor.Elems())
		for row := range len(bits) / cols {
			require.NoError(t, c.Row(tensor.Name, row, bits[row*cols:(row+1)*cols]))
		}
		weights[tensor.Name] = bits
	}
	m, err := reference.NewModel(shape, weights, hooks(shape))
	require.NoError(t, err)
	return m
}

func exact(models.Config) reference.Hooks { return reference.Hooks{} }

// bitsOf is the cross entropy of ids after the first, in bits.
func bitsOf(m *reference.Model, ids []int) float64 {
	bits := 0.0
	for i, id := range ids[1:] {
		logits := m.Step(ids[i])
		top, sum := slices.Max(logits), 0.0
		for _, x := range logits {
			sum += math.Exp(x - top)
		}
		bits -= (logits[id] - top - math.Log(sum)) / math.Ln2
	}
	return bits
}

// Weights that were not trained need 5 bits for a byte, as 320 tokens of equal chance do; those that know how often
// each letter occurs need more than 4.
func TestTheModelHasLearnedFromText(t *testing.T) {
	if testing.Short() {
		t.Skip("values that one goroutine makes, with -short")
	}
	c, tok := open(t)
	ids, err := tok.Encode(passage, true)
	require.NoError(t, err)
	require.Less(t, len(ids), c.Config().MaxPositions)
	trained := bitsOf(model(t, c, exact), ids) / float64(len(passage))
	t.Logf("%.3f bits per byte, %.3f with the kernel's roundings", trained,
		bitsOf(model(t, c, reference.AsKernel), ids)/float64(len(passage)))
	require.Less(t, trained, 1.7)

	shape := c.Config()
	random, err := reference.NewModel(shape, reference.Synthetic(shape, 1), reference.Hooks{})
	require.NoError(t, err)
	require.Greater(t, bitsOf(random, ids)/float64(len(passage)), 4.5)
}

// The float64 reference of the same weights must choose what transformers chose, where it was not a toss-up in float32.
// The kernel's roundings must move no logit by so much that the executor's test of the same continuations
// (tests/bundled_test.go) would ask for too much.
func TestTheReferenceChoosesWhatTransformersChose(t *testing.T) {
	c, tok := open(t)
	moved := 0.0
	for _, g := range readGolden(t).Continuations {
		ids, err := tok.Encode(g.Prompt, true)
		require.NoError(t, err)
		require.Equal(t, g.IDs, ids)
		require.Equal(t, g.Text, tok.Decode(g.Chosen, false))
		m, rounded := model(t, c, exact), model(t, c, reference.AsKernel)
		all := slices.Concat(g.IDs, g.Chosen)
		for i, id := range all[:len(all)-1] {
			logits := m.Step(id)
			for token, x := range rounded.Step(id) {
				moved = max(moved, math.Abs(x-logits[token]))
			}
			if at := i + 1 - len(g.IDs); at >= 0 && g.Margins[at] > 1e-3 {
				require.Equal(t, g.Chosen[at], reference.Argmax(logits), "%q, token %d", g.Prompt, at)
			}
		}
	}
	t.Logf("roundings move logits by up to %.3f", moved)
	require.Less(t, moved, 0.3)
	require.Greater(t, moved, 0.0)
}

// words are some that occur often in tales: enough to make up most of what a model writes that has learned to spell.
const words = `
a able about after again against air all almost alone along also always am among an and another answered any anything are as ask
asked asleep at away back be bear beautiful beauty became because bed been before began behind being best better big bird black
body both boy bring brother brothers brought but by called came can cannot care carried castle cat child children clothes come
coming could country court cried cut daughter day days dead dear death did die do dog don't done door down dragon each earth eat
emperor end enough even evening ever every everything eyes face fairy far fast father father's fear feet fell felt few find fine
fire first fish flew food foot for forest found four from full garden gave get giant girl give given go going gold golden gone
good got great grew ground had hair half hand hands happened happy has have having he head hear heard heart help her here herself
high him himself his home horse house how however hundred husband i i'll if immediately in indeed into is it its jack joy just
keep kept kill kind king king's knew know lady laid lake land large last lay leave left let life light like little live lived long
longer look looked looking lost love made maiden make man many married marry master may me men might mind moment money more
morning most mother mr much must my myself name near never new next night no nor not nothing now of off oh old on once one only
open opened or other our out over own palace passed people place poor prince princess put queen quite ran reached ready red
replied rest return returned right room rose round said same sat saw say saying says sea second see seeing seemed seen sent set
seven shall she should side sight silver since sister sleep small snow so some something son soon speak still stone stood story
strange such sun sure sword table take taken tell than that the their them themselves then there these they thing things think
third this those thou though thought three through thus till time times to together told tom too took towards tree trees tried
turned two under until up upon us very voice want wanted was water way we well went were what when where which while white who
whole whom why wicked wife will window wish with without woman wood word words work world would years yes yet you young youngest
your
`

func TestContinuationsAreMostlyWords(t *testing.T) {
	known, count, list := 0, 0, strings.Fields(words)
	for _, g := range readGolden(t).Continuations {
		written := strings.FieldsFunc(g.Text, func(r rune) bool { return !unicode.IsLetter(r) && r != '\'' })
		for _, w := range written[:max(0, len(written)-1)] { // the last may be cut off
			count++
			if slices.Contains(list, strings.ToLower(w)) {
				known++
			}
		}
	}
	require.Greater(t, count, 30)
	require.Greater(t, float64(known), 0.7*float64(count), "%d of %d words are known", known, count)
}

// small computes what tiny does, in wider matrices, but for the roundings of its weights to bf16: what one gives to a
// token the other gives, too.
func TestSmallComputesWhatTinyDoes(t *testing.T) {
	c, tok := open(t)
	wide, _, err := bundled.Checkpoint("small")
	require.NoError(t, err)
	defer wide.Close()
	require.Equal(t, []int{256, 512}, []int{wide.Config().Hidden, wide.Config().Intermediate})
	ids, err := tok.Encode("The old woman said to the fox,", true)
	require.NoError(t, err)
	a, b := model(t, c, exact), model(t, wide, exact)
	most := 0.0
	for _, id := range ids {
		x, y := a.Step(id), b.Step(id)
		for i := range x {
			most = max(most, math.Abs(x[i]-y[i]))
		}
	}
	t.Logf("logits differ by %.3f at most", most)
	require.Less(t, most, 0.3)
	require.Greater(t, most, 0.0)
}
