package emit

import (
	"strconv"
	"strings"
)

// namer gives out C++ names that are unique among those visible at a point.
// A name is visible from where it is given until its scope is closed; sibling
// scopes may use the same name, nested ones may not.
type namer struct {
	taken    map[string]bool
	reserved map[string]bool
	next     map[string]int // by base: no number below is free
	scopes   [][]given
}

// given is a name and how it was made.
type given struct {
	name, base string
	number     int
}

func newNamer() *namer {
	return &namer{taken: map[string]bool{}, reserved: reserved(), next: map[string]int{}, scopes: [][]given{nil}}
}

func (n *namer) open() { n.scopes = append(n.scopes, nil) }

func (n *namer) close() {
	last := len(n.scopes) - 1
	for _, g := range n.scopes[last] {
		delete(n.taken, g.name)
		n.next[g.base] = min(n.next[g.base], g.number)
	}
	n.scopes = n.scopes[:last]
}

// pick is a free name made of hint: hint itself, or hint_2, hint_3, ….
func (n *namer) pick(hint string) string {
	base := identOf(hint)
	number := max(n.next[base], 1)
	name := numbered(base, number)
	for n.taken[name] || n.reserved[name] {
		number++
		name = numbered(base, number)
	}
	n.taken[name], n.next[base] = true, number+1
	last := len(n.scopes) - 1
	n.scopes[last] = append(n.scopes[last], given{name, base, number})
	return name
}

func numbered(base string, number int) string {
	if number == 1 {
		return base
	}
	return base + "_" + strconv.Itoa(number)
}

// identOf turns any text into a C++ identifier: letters, digits and single
// underscores, no underscore first or last, no digit first; "v" for nothing.
func identOf(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			b.WriteRune(r)
		default:
			b.WriteByte('_')
		}
	}
	parts := strings.FieldsFunc(b.String(), func(r rune) bool { return r == '_' })
	name := strings.Join(parts, "_")
	if name == "" || name[0] >= '0' && name[0] <= '9' {
		name = "v" + name
	}
	return name
}

// isIdent reports whether s is a C identifier that is free for programs.
func isIdent(s string) bool {
	return s != "" && s == identOf(s)
}

// reserved are the names a kernel's variables must not take: C++'s keywords,
// names of the emitted file, CUDA's built-in variables, and the built-in
// functions and macros that the file uses or headers may define.
func reserved() map[string]bool {
	names := map[string]bool{}
	for _, name := range strings.Fields(reservedWords) {
		names[name] = true
	}
	return names
}

const reservedWords = `
	NULL Params PARAM_OFFSET abs alignas alignof and and_eq asm assert auto bf16 bitand bitor blockDim blockIdx bool break case
	catch char char16_t char32_t char8_t class clock clock64 co_await co_return co_yield compl concept const const_cast
	consteval constexpr constinit continue cosf cta decltype default defined delete do double dynamic_cast else enum exp2f
	explicit export extern f16 fabsf false final float floorf fmaf fmaxf fminf for friend goto grid gridDim half i32 if inline
	int int4 isnan lane log2f long main make_float2 make_float4 make_int2 make_int4 make_uint2 make_uint4 make_ulonglong2
	make_ushort2 make_ushort4 max min mutable namespace new noexcept not not_eq nullptr operator or or_eq override p private
	protected ptx public register reinterpret_cast requires return rintf rsqrtf short signed sinf sizeof smem sqrtf static
	static_assert static_cast std struct switch tanhf template this thread_local threadIdx throw tid true try typedef typeid
	typename u16 u32 u64 uint2 uint4 ulonglong2 union unix linux unsigned using ushort2 ushort4 virtual void volatile warp
	warpSize wchar_t while xor xor_eq bf16x2 f16x2 float2 float4 int2 evict_first evict_last j0 j1 jn y0 y1 yn div exit
	printf malloc free memcpy memset round trunc ceil floor log log2 exp exp2 pow sqrt sin cos tan tanh fma fmin fmax`
