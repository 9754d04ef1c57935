package randomize

import "github.com/mkgen/mkgen/dsl"

// values are eight consecutive elements of a tensor, from element on.
func (b *builder) values(tensor, element u32) (out []pair) {
	t := b.tensor(tensor)
	for i := 0; i < unit; i += 2 {
		out = append(out, b.two(t, element, i))
	}
	return out
}

// tensor are the words of a tensor in bufTensors.
func (b *builder) tensor(i u32) []u32 {
	return b.tensors.LoadN(i.MulC(tensorWords), tensorWords, dsl.CacheHint(dsl.NonCoherent))
}

// two are the element of a tensor that is i behind one, and the next.
func (b *builder) two(t []u32, element u32, i int) pair {
	at := func(i int) f32 { return normal(fmix(fmix(element.AddC(i).Xor(t[0])).Add(t[1])), t) }
	return dsl.Pack[dsl.BF16x2](at(i), at(i+1))
}

// fmix is murmur3's 32-bit finaliser.
func fmix(x u32) u32 {
	x = x.Xor(x.ShrC(16)).MulC(0x85ebca6b)
	x = x.Xor(x.ShrC(13)).MulC(0xc2b2ae35)
	return x.Xor(x.ShrC(16))
}

// normal is the sum of the four bytes, less 510, times scale: exact in f32, as the
// scale is a power of two times 8 bits.
func normal(hash u32, tensor []u32) f32 {
	const everyOther = 0x00ff00ff
	two := hash.AndC(everyOther).Add(hash.ShrC(8).AndC(everyOther))
	sum := two.AndC(0xffff).Add(two.ShrC(16))
	return dsl.Cast[dsl.F32](dsl.Bits[dsl.I32](sum.AddC(-510))).Mul(dsl.Bits[dsl.F32](tensor[2]))
}
