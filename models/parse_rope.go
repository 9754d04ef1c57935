package models

import "fmt"

// defaultTheta is what transformers takes where rope_theta is absent.
const defaultTheta = 10000

// rope reads the rotary embedding in either layout. transformers 4 has
// rope_theta beside rope_scaling (null for none); transformers 5 has both in
// rope_parameters, and still accepts the old form.
func (r *reader) rope(rope *Rope) {
	theta, hasTheta := r.float("rope_theta")
	rope.Theta = defaultTheta
	if hasTheta {
		rope.Theta = theta
	}
	before := r.p.Len()
	var inner *reader
	for _, field := range []string{"rope_scaling", "rope_parameters"} {
		value, ok := r.take(field)
		if !ok {
			continue
		}
		o, ok := value.(object)
		if !ok {
			r.refuse(field, value, "an object or null", "")
			continue
		}
		if inner != nil {
			r.refuse(field, value, "nothing, because rope_scaling is there",
				"keep the one that the model was trained with")
			continue
		}
		inner = newReader(o, field+".", r.p)
		inner.ropeTheta(rope, hasTheta)
		inner.ropeType(rope)
		inner.others()
	}
	r.topLevelOriginal(rope, r.p.Len() > before)
}

// ropeTheta reads rope_theta inside rope_parameters.
func (r *reader) ropeTheta(rope *Rope, outside bool) {
	before := r.p.Len()
	theta, ok := r.float("rope_theta")
	if !ok || r.p.Len() > before {
		return
	}
	if outside && theta != rope.Theta {
		r.p.add(r.prefix+"rope_theta", formatFloat(theta),
			"the same as the outer rope_theta "+formatFloat(rope.Theta), "")
	}
	rope.Theta = theta
}

// ropeType reads rope_type (in old files type) and what belongs to it.
func (r *reader) ropeType(rope *Rope) {
	const want = `"llama3" or "default"`
	newName, hasNew := r.take("rope_type")
	oldName, hasOld := r.take("type")
	kind, field := newName, "rope_type"
	switch {
	case hasNew && hasOld && show(newName) != show(oldName):
		r.refuse("type", oldName, "the same as rope_type "+show(newName), "")
		r.passOver()
		return
	case !hasNew && hasOld:
		kind, field = oldName, "type"
	case !hasNew && r.prefix == "rope_scaling.":
		r.missing("rope_type", want)
		r.passOver()
		return
	case !hasNew:
		kind = "default"
	}
	switch kind {
	case "default":
		return
	case "llama3":
		rope.Scaling = r.llama3()
	default:
		r.refuse(field, kind, want, "other scalings of the rotary embedding are not supported")
		r.passOver()
	}
}

func (r *reader) llama3() *Scaling {
	return &Scaling{
		Type:              ScalingLlama3,
		Factor:            r.required("factor"),
		LowFreqFactor:     r.required("low_freq_factor"),
		HighFreqFactor:    r.required("high_freq_factor"),
		OriginalPositions: r.integer("original_max_position_embeddings", 1, MaxMaxPositions),
	}
}

// topLevelOriginal accepts original_max_position_embeddings outside the rope
// object only where it repeats the one inside: transformers 5 lets it win.
func (r *reader) topLevelOriginal(rope *Rope, failed bool) {
	const field = "original_max_position_embeddings"
	value, ok := r.take(field)
	if !ok || failed {
		return
	}
	if rope.Scaling == nil {
		r.refuse(field, value, "nothing, because no rope scaling uses it", "")
		return
	}
	if n, isNumber := toFloat(value); !isNumber || n != float64(rope.Scaling.OriginalPositions) {
		r.refuse(field, value, fmt.Sprintf("%d as in the rope scaling", rope.Scaling.OriginalPositions), "")
	}
}
