package tokenizer

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/nikolalohinski/gonja/v2/builtins"
	statements "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// newEnvironment is what templates may use: the engine's filters, tests and methods, with those of Hugging Face's environment and of
// Python where the engine's differ, and the statements that neither read files nor recur without end.
func newEnvironment() *exec.Environment {
	allowed := map[string]parser.ControlStructureParser{}
	for _, name := range [...]string{"if", "set", "raw", "with", "filter", "do", "break", "continue", "call"} {
		allowed[name], _ = builtins.ControlStructures.Get(name)
	}
	allowed["for"], allowed["macro"], allowed["generation"] = parseFor, parseMacro, parseGeneration
	methods := builtins.Methods
	methods.Dict, methods.Str = dictMethods(), strMethods()
	functions := exec.EmptyContext().Update(builtins.GlobalFunctions)
	functions.Set("range", rangeFunction)
	return &exec.Environment{
		Context:           functions,
		Filters:           exec.NewFilterSet(map[string]exec.FilterFunction{}).Update(builtins.Filters).Update(exec.NewFilterSet(filters())),
		Tests:             builtins.Tests,
		ControlStructures: exec.NewControlStructureSet(allowed),
		Methods:           methods,
	}
}

// parseFor refuses {% for … recursive %}: nothing would bound the recursion.
func parseFor(p, args *parser.Parser) (nodes.ControlStructure, error) {
	parse, _ := builtins.ControlStructures.Get("for")
	parsed, err := parse(p, args)
	if loop, ok := parsed.(*statements.ForControlStructure); ok && loop.Recursive {
		return nil, errors.New("a recursive loop; want one that is not")
	}
	return parsed, err
}

// macro is {% macro %} with bounded recursion.
type macro struct {
	*statements.MacroControlStructure
}

func parseMacro(p, args *parser.Parser) (nodes.ControlStructure, error) {
	parse, _ := builtins.ControlStructures.Get("macro")
	parsed, err := parse(p, args)
	if err != nil {
		return nil, err
	}
	return macro{parsed.(*statements.MacroControlStructure)}, nil
}

// Execute defines the macro.
func (m macro) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	call, err := exec.MacroNodeToFunc(m.Macro, r)
	if err != nil {
		return err
	}
	counter, _ := r.Environment.Context.Get(depthName)
	depth, ok := counter.(*int)
	if !ok {
		return fault("variable "+depthName, "set by the template", "left alone")
	}
	r.Environment.Context.Set(m.Name, exec.Macro(func(args *exec.VarArgs) *exec.Value {
		if *depth >= maxDepth {
			return exec.AsValue(fault("macro "+m.Name, fmt.Sprintf("%d macros that call each other", maxDepth), "fewer"))
		}
		*depth++
		defer func() { *depth-- }()
		return call(args)
	}))
	return nil
}

// generation is Hugging Face's {% generation %}, which marks what the assistant says; the text is that of its body.
type generation struct {
	at   *tokens.Token
	body *nodes.Wrapper
}

func parseGeneration(p, args *parser.Parser) (nodes.ControlStructure, error) {
	at := p.Current()
	body, _, err := p.WrapUntil("endgeneration")
	if err == nil && !args.End() {
		err = args.Error("generation takes no arguments", args.Current())
	}
	return &generation{at, body}, err
}

// Position is where the block begins.
func (g *generation) Position() *tokens.Token { return g.at }

// String names the block in the engine's errors.
func (g *generation) String() string { return "generation" }

// Execute renders the body; what it sets stays inside.
func (g *generation) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	return r.Inherit().ExecuteWrapper(g.body)
}

func filters() map[string]exec.FilterFunction {
	return map[string]exec.FilterFunction{"tojson": toJSON, "trim": trim, "items": items}
}

// toJSON is Hugging Face's filter: json.dumps without HTML's escapes.
func toJSON(_ *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	var ascii, indent, separators, sorted any
	none := exec.AsValue(nil)
	if err := args.Take(exec.KeywordArgument("ensure_ascii", none, exec.AnyArgument(&ascii)), exec.KeywordArgument("indent", none, exec.AnyArgument(&indent)),
		exec.KeywordArgument("separators", none, exec.AnyArgument(&separators)), exec.KeywordArgument("sort_keys", none, exec.AnyArgument(&sorted))); err != nil {
		return exec.AsValue(exec.ErrInvalidCall(err))
	}
	d := dumper{item: ", ", key: ": ", ascii: ascii == true, sort: sorted == true}
	switch v := indent.(type) {
	case int:
		d.lines, d.indent, d.item = true, strings.Repeat(" ", min(max(v, 0), 64)), ","
	case string:
		d.lines, d.indent, d.item = true, v, ","
	}
	if pair := exec.AsValue(separators); pair.IsList() && pair.Len() == 2 {
		d.item, d.key = pair.Index(0).String(), pair.Index(1).String()
	}
	d.value(in.Interface())
	if d.unknownErr != nil {
		return exec.AsValue(d.unknownErr)
	}
	return exec.AsValue(d.out.String())
}

func trim(_ *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	text, err := strip(strings.TrimFunc)(in.String(), in, args)
	if err != nil {
		return exec.AsValue(err)
	}
	return exec.AsValue(text)
}

// items is the filter: the entries of a dict in their order.
func items(_ *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
	if in.IsError() {
		return in
	}
	if err := args.Take(); err != nil {
		return exec.AsValue(exec.ErrInvalidCall(err))
	}
	if !in.IsDict() {
		return exec.AsValue(fault("items", in.String(), "a mapping"))
	}
	list := []any{}
	for _, pair := range pairs(in) {
		list = append(list, []any{pair.Key.Interface(), pair.Value.Interface()})
	}
	return exec.AsValue(list)
}

// pySpace tells what Python's str.isspace does: Unicode's white space, and the four separators of ASCII.
func pySpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// rangeFunction is range as a list, of at most as many numbers as Jinja's sandbox allows.
func rangeFunction(args *exec.VarArgs) (*exec.Value, error) {
	const limit = 100000
	bounds := [3]int{0, 0, 1}
	for i, arg := range args.Args {
		if i > 2 || !arg.IsInteger() {
			return nil, fault("range", arg.String(), "up to three integers")
		}
		bounds[i] = arg.Integer()
	}
	if len(args.Args) == 1 {
		bounds[0], bounds[1] = 0, bounds[0]
	}
	if len(args.Args) == 0 || bounds[2] == 0 {
		return nil, fault("range", "no end, or step 0", "one to three integers")
	}
	list := []any{}
	for i := bounds[0]; (bounds[2] > 0 && i < bounds[1]) || (bounds[2] < 0 && i > bounds[1]); i += bounds[2] {
		if len(list) == limit {
			return nil, fault("range", fmt.Sprintf("more than %d numbers", limit), "fewer")
		}
		list = append(list, i)
	}
	return exec.AsValue(list), nil
}
