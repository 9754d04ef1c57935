package kernels

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// cNumber is a value of a C++ integer type: 1 bit (bool), 32 or 64.
type cNumber struct {
	bits   uint64
	width  int
	signed bool
}

func cOf(bits uint64, ctype string) cNumber {
	switch ctype {
	case "bool":
		return cNumber{bits: min(bits, 1), width: 1}
	case "u64":
		return cNumber{bits: bits, width: 64}
	case "i32":
		return cNumber{bits: bits & 0xffffffff, width: 32, signed: true}
	}
	return cNumber{bits: bits & 0xffffffff, width: 32}
}

// i is the value as a number.
func (n cNumber) i() int64 {
	if n.signed {
		return int64(int32(n.bits))
	}
	return int64(n.bits)
}

// cText evaluates emitted statements without loops and branches by the grammar of C++ and its arithmetic conversions.
// Signed arithmetic that overflows panics: C++ leaves it open.
type cText struct {
	names map[string]cNumber
	load  func(buffer string, i uint64) cNumber
	store func(buffer string, i uint64, v cNumber)
	now   string   // the statement
	in    []string // tokens that are left
}

var (
	cToken    = regexp.MustCompile(`0x[0-9a-f]+(?:ull|u)?|[0-9]+(?:ull|u)?|[\w:]+|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^~!<>?:(),\[\]]`)
	cDefine   = regexp.MustCompile(`^const (\w+) (\w+) = (.*)$`)
	cStore    = regexp.MustCompile(`^(\w+)\[(.*?)\] = (.*)$`)
	cConverts = map[string]bool{"u32": true, "i32": true, "u64": true, "bool": true}
	cPriority = map[string]int{"||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, ">": 7, "<=": 7,
		">=": 7, "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10}
)

// run executes statements, each ended by a semicolon; others than definitions and stores are passed over.
func (c *cText) run(text string) {
	for s := range strings.SplitSeq(text, ";") {
		s = strings.Join(strings.Fields(s), " ")
		c.now = s
		if m := cDefine.FindStringSubmatch(s); m != nil && cConverts[m[1]] {
			c.names[m[2]] = cOf(uint64(c.value(m[3]).i()), m[1])
		} else if m := cStore.FindStringSubmatch(s); m != nil {
			c.store(m[1], c.value(m[2]).bits, c.value(m[3]))
		}
	}
}

func (c *cText) value(text string) cNumber {
	c.in = cToken.FindAllString(text, -1)
	v := c.choice()
	if len(c.in) > 0 {
		panic(fmt.Sprintf("%q: left is %q", text, c.in))
	}
	return v
}

func (c *cText) peek() string {
	if len(c.in) == 0 {
		return ""
	}
	return c.in[0]
}

func (c *cText) take() string {
	t := c.in[0]
	c.in = c.in[1:]
	return t
}

// expect takes a token that must be next.
func (c *cText) expect(t string) {
	if got := c.take(); got != t {
		panic(fmt.Sprintf("%q before %q, want %q", got, c.in, t))
	}
}

func (c *cText) choice() cNumber {
	v := c.infix(1)
	if c.peek() != "?" {
		return v
	}
	c.take()
	a := c.choice()
	c.expect(":")
	b := c.choice()
	t := common(a, b)
	if v.bits == 0 {
		a = b
	}
	return cOf(uint64(a.i()), t)
}

func (c *cText) infix(least int) cNumber {
	v := c.unary()
	for cPriority[c.peek()] >= least {
		op := c.take()
		v = apply(op, v, c.infix(cPriority[op]+1))
	}
	return v
}

func (c *cText) unary() cNumber {
	switch t := c.take(); {
	case t == "-":
		v := c.unary()
		return apply("-", cNumber{width: v.width, signed: v.signed}, v)
	case t == "~":
		v := c.unary()
		return cOf(^uint64(v.i()), common(v, v))
	case t == "!":
		return cOf(1-min(c.unary().bits, 1), "bool")
	case t == "(" && cConverts[c.peek()] && c.in[1] == ")":
		to := c.take()
		c.take()
		return cOf(uint64(c.unary().i()), to)
	case t == "(":
		v := c.choice()
		c.expect(")")
		return v
	case t[0] >= '0' && t[0] <= '9':
		return number(t)
	case c.peek() == "(":
		return c.call(t)
	case c.peek() == "[":
		c.take()
		i := c.choice()
		c.expect("]")
		return c.load(t, i.bits)
	default:
		v, ok := c.names[t]
		if !ok {
			panic("no name " + t)
		}
		return v
	}
}

func (c *cText) call(name string) cNumber {
	c.take()
	a := c.choice()
	c.expect(",")
	b := c.choice()
	c.expect(")")
	if less := apply("<", a, b).bits != 0; name != "min" && name != "max" {
		panic("no function " + name)
	} else if less != (name == "min") {
		a = b
	}
	return cOf(uint64(a.i()), common(a, b))
}

func number(t string) cNumber {
	digits, suffix := strings.TrimRight(t, "ul"), ""
	suffix = t[len(digits):]
	v, err := strconv.ParseUint(digits, 0, 64)
	if err != nil {
		panic(err)
	}
	return cOf(v, map[string]string{"": "i32", "u": "u32", "ull": "u64"}[suffix])
}

// common is the type of the usual arithmetic conversions.
func common(a, b cNumber) string {
	switch {
	case max(a.width, b.width) == 64:
		return "u64"
	case a.width == 32 && !a.signed || b.width == 32 && !b.signed:
		return "u32"
	}
	return "i32"
}

func apply(op string, a, b cNumber) cNumber {
	truth := func(v bool) cNumber {
		if v {
			return cOf(1, "bool")
		}
		return cOf(0, "bool")
	}
	switch op {
	case "&&":
		return truth(a.bits != 0 && b.bits != 0)
	case "||":
		return truth(a.bits != 0 || b.bits != 0)
	case "<<":
		return cOf(uint64(a.i())<<b.bits, common(a, a))
	case ">>":
		if a.signed {
			return cOf(uint64(a.i()>>b.bits), "i32")
		}
		return cOf(a.bits>>b.bits, common(a, a))
	}
	t := common(a, b)
	x, y := cOf(uint64(a.i()), t), cOf(uint64(b.i()), t)
	compare := map[string]bool{"==": x.i() == y.i(), "!=": x.i() != y.i(), "<": less(x, y), ">": less(y, x),
		"<=": !less(y, x), ">=": !less(x, y)}
	if v, ok := compare[op]; ok {
		return truth(v)
	}
	var v int64
	switch op {
	case "+":
		v = x.i() + y.i()
	case "-":
		v = x.i() - y.i()
	case "*":
		v = x.i() * y.i()
	case "&":
		v = x.i() & y.i()
	case "|":
		v = x.i() | y.i()
	case "^":
		v = x.i() ^ y.i()
	case "/", "%":
		v = divide(op, x, y)
	default:
		panic("no operator " + op)
	}
	if t == "i32" && v != int64(int32(v)) {
		panic(fmt.Sprintf("%d %s %d overflows", x.i(), op, y.i()))
	}
	return cOf(uint64(v), t)
}

func divide(op string, x, y cNumber) int64 {
	switch {
	case x.signed && op == "/":
		return x.i() / y.i()
	case x.signed:
		return x.i() % y.i()
	case op == "/":
		return int64(x.bits / y.bits)
	}
	return int64(x.bits % y.bits)
}

func less(a, b cNumber) bool {
	if a.signed {
		return a.i() < b.i()
	}
	return a.bits < b.bits
}
