package policy

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// Places in a policy file: the decoder tells them of what it refuses, but not
// of what it has read.

// lines are where the rules of a file begin, and where their keys are.
type lines []map[string]int

// locate finds the rules that are written as [[rule]]. text has been decoded
// without an error.
func locate(text string) lines {
	var out lines
	var p unstable.Parser
	p.Reset([]byte(text))
	line := func(n *unstable.Node) int {
		it := n.Key()
		if !it.Next() {
			return 0
		}
		return p.Shape(p.Range(it.Node().Data)).Start.Line
	}
	name := func(n *unstable.Node) string {
		it := n.Key()
		if !it.Next() {
			return ""
		}
		return string(it.Node().Data)
	}
	for p.NextExpression() {
		switch e := p.Expression(); e.Kind {
		case unstable.ArrayTable:
			out = append(out, map[string]int{"": line(e)})
		case unstable.KeyValue:
			if len(out) > 0 {
				out[len(out)-1][name(e)] = line(e)
			}
		}
	}
	return out
}

// line says where a key of a rule is, or the rule itself.
func (l lines) line(rule int, key string) string {
	if rule >= len(l) {
		return fmt.Sprintf("rule %d", rule+1) // written in another form
	}
	if n := l[rule][key]; n > 0 {
		return fmt.Sprintf("line %d", n)
	}
	return fmt.Sprintf("line %d", l[rule][""])
}

// Problem says in one line what is wrong with a TOML file, and where.
func Problem(err error) string {
	if missing, ok := errors.AsType[*toml.StrictMissingError](err); ok {
		var all []string
		for _, e := range missing.Errors {
			row, _ := e.Position()
			all = append(all, fmt.Sprintf("line %d: unknown key %q", row, strings.Join(e.Key(), ".")))
		}
		return strings.Join(all, "; ")
	}
	if de, ok := errors.AsType[*toml.DecodeError](err); ok {
		row, _ := de.Position()
		return fmt.Sprintf("line %d: %s", row, plainType(strings.TrimPrefix(de.Error(), "toml: ")))
	}
	return err.Error()
}

// plainType says of a value that does not fit what the decoder says of it with names
// of this program's types.
func plainType(problem string) string {
	rest, ok := strings.CutPrefix(problem, "cannot decode TOML ")
	is, rest, in := strings.Cut(rest, " into ")
	_, of, typed := strings.Cut(rest, " of type ")
	if !ok || !in || !typed {
		return problem
	}
	want := "something else"
	switch strings.Trim(of, "*") {
	case "string":
		want = "a string"
	case "bool":
		want = "true or false"
	case "int", "int64", "uint64":
		want = "a number"
	case "[]string":
		want = "an array of strings"
	}
	return fmt.Sprintf("a value of type %s is here: it must be %s", is, want)
}
