package models

import "math"

// defaultTheta is what transformers takes where rope_theta is absent.
const defaultTheta = 10000

// rope reads the rotary embedding in either layout. transformers 4 has
// rope_theta beside rope_scaling (null for none); transformers 5 has both in
// rope_parameters, by kind of layer where kinds differ, and still accepts the old form.
func (r *Fields) rope(c *Config) {
	outer := Rope{Theta: defaultTheta}
	theta, hasTheta := r.Float("rope_theta")
	if hasTheta {
		outer.Theta = theta
	}
	r.partial(r, c, &outer)
	c.Rope = outer
	found := ""
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
		if found != "" {
			r.refuse(field, value, "nothing, because rope_scaling is there",
				"keep the one that the model was trained with")
			continue
		}
		found = field
		_, byLayer := o.get("full_attention")
		if _, typed := o.get("rope_type"); byLayer && !typed {
			r.byLayerType(c, outer, field, o)
			continue
		}
		c.Rope = r.ropeObject(c, outer, hasTheta && r.has("rope_theta"), field, o)
	}
}

// byLayerType reads one rope for the layers of full attention, and one for those with a window.
func (r *Fields) byLayerType(c *Config, outer Rope, field string, o object) {
	whole := newFields(o, r.prefix+field+".", r.p)
	part := func(name string) *Rope {
		value, ok := whole.take(name)
		if !ok {
			return nil
		}
		inner, ok := value.(object)
		if !ok {
			whole.refuse(name, value, "an object or null", "")
			return nil
		}
		rope := r.ropeObject(c, outer, false, field+"."+name, inner)
		return &rope
	}
	if rope := part("full_attention"); rope != nil {
		c.Rope = *rope
	}
	r.sliding = part("sliding_attention")
	whole.inRope = true
	whole.others()
}

// SlidingRope returns the rotary embedding that rope_parameters has for the layers with a window; nil where it has
// none.
func (r *Fields) SlidingRope() *Rope {
	r.slidingTaken = true
	return r.sliding
}

// ropeObject reads rope_scaling or rope_parameters, or what either has for one kind of layers.
func (r *Fields) ropeObject(c *Config, rope Rope, outside bool, field string, o object) Rope {
	inner := newFields(o, r.prefix+field+".", r.p)
	inner.inRope, inner.inThree = true, r.inThree
	inner.ropeTheta(&rope, outside)
	r.partial(inner, c, &rope)
	if _, grows := inner.take("llama_4_scaling_beta"); grows {
		r.growth = &Growth{Beta: inner.Positive("llama_4_scaling_beta"), Every: c.MaxPositions}
		inner.Pass("max_position_embeddings")
	}
	inner.ropeType(r, c, &rope, field == "rope_scaling")
	if s := rope.Scaling; s != nil && r.growth != nil {
		r.growth.Every = s.OriginalPositions
	}
	inner.others()
	return rope
}

// Growth returns what the rotary embedding's parameters say of scores that grow with the position.
func (r *Fields) Growth() (g Growth) {
	r.growthTaken = true
	if r.growth != nil {
		g = *r.growth
	}
	return g
}

// partial reads which part of a head is rotated.
func (r *Fields) partial(in *Fields, c *Config, rope *Rope) {
	x, ok := in.Float("partial_rotary_factor")
	if !ok {
		return
	}
	dims := int(float64(c.HeadDim) * x)
	switch {
	case !(x > 0 && x <= 1) || dims < 2 || dims%2 != 0:
		in.Refuse("partial_rotary_factor", "a number up to 1 that leaves an even part of head_dim", "")
	case x != 1 && !r.partialAllowed:
		in.Refuse("partial_rotary_factor", "1", "this family rotates whole heads")
	case x == 1:
		rope.Dims = 0 // whatever the family's default or the outer field say
	default:
		rope.Dims = dims
	}
}

// ropeTheta reads rope_theta inside rope_parameters.
func (r *Fields) ropeTheta(rope *Rope, outside bool) {
	before := r.p.Len()
	theta, ok := r.Float("rope_theta")
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
func (r *Fields) ropeType(outer *Fields, c *Config, rope *Rope, old bool) {
	const want = `one of "default", "llama3", "linear", "dynamic", "yarn", "longrope"`
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
	case !hasNew && old:
		r.missing("rope_type", want)
		r.passOver()
		return
	case !hasNew:
		kind = "default"
	}
	name, _ := kind.(string)
	if r.inThree {
		r.Pass("mrope_section", "mrope_interleaved")
		if name == "mrope" { // so called by transformers 4
			name = "default"
		}
	}
	if name == "su" || name == "yarn" && r.has("short_factor") { // Phi-3 called it so at first
		name = string(ScalingLongRoPE)
	}
	s := &Scaling{Type: ScalingType(name)}
	switch s.Type {
	case "default":
		return
	case ScalingLlama3:
		s.Factor = r.required("factor")
		s.LowFreqFactor = r.required("low_freq_factor")
		s.HighFreqFactor = r.required("high_freq_factor")
		s.OriginalPositions = r.original(outer, 0)
	case ScalingLinear, ScalingDynamic:
		s.Factor = r.required("factor")
		s.OriginalPositions = c.MaxPositions
	case ScalingYaRN:
		r.yarn(outer, c, s)
	case ScalingLongRoPE:
		r.longRoPE(outer, c, rope, s)
	default:
		r.refuse(field, kind, want, "other scalings of the rotary embedding are not supported")
		r.passOver()
		return
	}
	rope.Scaling = s
}

// yarn reads what _compute_yarn_parameters of transformers does.
func (r *Fields) yarn(outer *Fields, c *Config, s *Scaling) {
	s.OriginalPositions = r.original(outer, c.MaxPositions)
	s.Factor = r.Positive("factor")
	if s.Factor == 0 {
		s.Factor = float64(c.MaxPositions) / float64(s.OriginalPositions)
	}
	s.BetaFast, s.BetaSlow = r.unlessZero("beta_fast"), r.unlessZero("beta_slow")
	if s.BetaFast == 0 {
		s.BetaFast = 32
	}
	if s.BetaSlow == 0 {
		s.BetaSlow = 1
	}
	r.Pass("finetuned") // of Yarn-Llama-2, not read by transformers
	_, stated := r.take("truncate")
	s.Truncate = !stated || r.Bool("truncate")
	s.AttentionFactor = r.Positive("attention_factor")
	one, all := r.unlessZero("mscale"), r.unlessZero("mscale_all_dim")
	switch {
	case s.AttentionFactor != 0:
	case one != 0 && all != 0:
		s.AttentionFactor = yarnFactor(s.Factor, one) / yarnFactor(s.Factor, all)
	default:
		s.AttentionFactor = yarnFactor(s.Factor, 1)
	}
}

// longRoPE reads what _compute_longrope_parameters of transformers does.
func (r *Fields) longRoPE(outer *Fields, c *Config, rope *Rope, s *Scaling) {
	s.OriginalPositions = r.original(outer, 0)
	n := rope.over(c.HeadDim).Dims / 2
	s.ShortFactors, s.LongFactors = r.factors("short_factor", n), r.factors("long_factor", n)
	s.Factor = r.Positive("factor")
	if s.Factor == 0 {
		s.Factor = max(1, float64(c.MaxPositions)/float64(s.OriginalPositions))
	}
	s.AttentionFactor = r.Positive("attention_factor")
	if s.AttentionFactor == 0 {
		s.AttentionFactor = longRoPEFactor(s.Factor, s.OriginalPositions)
	}
}

// factors reads a list of n numbers.
func (r *Fields) factors(field string, n int) []float64 {
	value, present := r.take(field)
	l, ok := value.(list)
	var out []float64
	for _, v := range l {
		x, isNumber := toFloat(v)
		ok = ok && isNumber
		out = append(out, x)
	}
	switch {
	case !present:
		r.missing(field, "a list of "+formatFloat(float64(n))+" numbers")
	case !ok || len(out) != n:
		r.refuse(field, value, "a list of "+formatFloat(float64(n))+" numbers, half the rotated elements of a head", "")
	}
	return out
}

// original reads original_max_position_embeddings inside or, as Phi-3 has it, outside the rope object; otherwise stands
// in where it is in neither and not 0.
func (r *Fields) original(outer *Fields, otherwise int) int {
	const field = "original_max_position_embeddings"
	outer.originalTaken = true
	inside, outside := r.Optional(field, 1, MaxMaxPositions), outer.Optional(field, 1, MaxMaxPositions)
	switch {
	case inside != 0 && outside != 0 && inside != outside:
		outer.Refuse(field, formatFloat(float64(inside))+" as in the rope scaling", "")
		return inside
	case inside != 0:
		return inside
	case outside != 0:
		return outside
	case otherwise != 0:
		return otherwise
	}
	r.missing(field, wantInt(1, MaxMaxPositions))
	return 1
}

// unusedOriginal accepts original_max_position_embeddings that no scaling uses only where it says nothing new.
func (r *Fields) unusedOriginal(c *Config) {
	const field = "original_max_position_embeddings"
	if value, ok := r.take(field); ok && !r.originalTaken {
		if n, isNumber := toFloat(value); !isNumber || n != float64(c.MaxPositions) {
			r.refuse(field, value, "nothing, because no rope scaling uses it", "")
		}
	}
}

// stretch raises MaxPositions to what a scaling makes of the context of the first training, where the file states that.
func (c *Config) stretch() {
	s := c.Rope.Scaling
	if s == nil || s.Type != ScalingYaRN && s.Type != ScalingDynamic {
		return
	}
	stretched := math.Floor(s.Factor * float64(s.OriginalPositions))
	if stretched > float64(c.MaxPositions) && stretched <= MaxMaxPositions {
		c.MaxPositions = int(stretched)
	}
}
