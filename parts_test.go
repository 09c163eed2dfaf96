package dmxfs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// assembled are the types that are put together from parts, by package. The
// parts are their fields that point to structs of the package. Of those that are
// embedded, some are what all parts have in common, and others stand above all.
var assembled = map[string]string{
	"fusefs":     "fileSystem",
	"p2p":        "Transport",
	"p2p/member": "Machine",
}

// TestParts holds the parts of a type to what the package comment says: it lists
// them in the order of the type, each asks only parts that stand above it there,
// and none writes fields of another one (but to the output of a step of a
// machine, which is for all of them).
func TestParts(t *testing.T) {
	for dir, whole := range assembled {
		structs, methods, listed := declared(t, dir)
		var parts, inOrder []string
		rank := map[string]int{} // of those that are not embedded
		for i, f := range structs[whole].List {
			if name := pointee(f.Type); structs[name] != nil {
				parts = append(parts, name)
				if len(f.Names) > 0 {
					rank[name] = i + 1
					inOrder = append(inOrder, name)
				}
			}
		}
		if len(rank) < 5 {
			t.Fatalf("%s: %s has %d parts: is it put together in another way by now?", dir, whole, len(rank))
		}
		listed = slices.DeleteFunc(listed, func(name string) bool { return rank[name] == 0 })
		if !slices.Equal(listed, inOrder) {
			t.Errorf("%s: the package comment lists the parts\n%q, and %s has\n%q", dir, listed, whole, inOrder)
		}
		for _, part := range parts {
			own := map[string]bool{"out": true}
			for _, f := range structs[part].List {
				other := pointee(f.Type)
				if n := rank[part]; n > 0 && rank[other] > n {
					t.Errorf("%s: %s asks %s, which stands below it in %s", dir, part, other, whole)
				}
				for _, name := range f.Names {
					own[name.Name] = rank[other] == 0
				}
			}
			for _, m := range methods[part] {
				for _, field := range written(m) {
					if !own[field] {
						t.Errorf("%s: %s.%s writes to %s, which is not its own", dir, part, m.Name.Name, field)
					}
				}
			}
		}
	}
}

// declared are the structs of a package, the methods of each type, and what the
// package comment has in lists.
func declared(t *testing.T, dir string) (structs map[string]*ast.FieldList, methods map[string][]*ast.FuncDecl, listed []string) {
	structs, methods = map[string]*ast.FieldList{}, map[string][]*ast.FuncDecl{}
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^  - ([a-zA-Z, ]+):`).FindAllStringSubmatch(file.Doc.Text(), -1) {
			listed = append(listed, strings.Split(m[1], ", ")...)
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil && len(d.Recv.List[0].Names) > 0 && d.Body != nil {
					typ, _, _ := strings.Cut(funcName(d), ".")
					methods[typ] = append(methods[typ], d)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if ts, ok := s.(*ast.TypeSpec); ok {
						if st, ok := ts.Type.(*ast.StructType); ok {
							structs[ts.Name.Name] = st.Fields
						}
					}
				}
			}
		}
	}
	return structs, methods, listed
}

// pointee is the T of *T; empty if that is not what e is.
func pointee(e ast.Expr) string {
	if p, ok := e.(*ast.StarExpr); ok {
		if id, ok := p.X.(*ast.Ident); ok {
			return id.Name
		}
	}
	return ""
}

// written are the fields of its receiver that a method assigns to, or through.
func written(m *ast.FuncDecl) (fields []string) {
	recv := m.Recv.List[0].Names[0].Name
	add := func(e ast.Expr) {
		last := ""
		for {
			switch x := e.(type) {
			case *ast.SelectorExpr:
				last, e = x.Sel.Name, x.X
				continue
			case *ast.IndexExpr:
				e = x.X
				continue
			case *ast.StarExpr:
				e = x.X
				continue
			case *ast.ParenExpr:
				e = x.X
				continue
			case *ast.Ident:
				if x.Name == recv && last != "" {
					fields = append(fields, last)
				}
			}
			return
		}
	}
	ast.Inspect(m.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, l := range n.Lhs {
				add(l)
			}
		case *ast.IncDecStmt:
			add(n.X)
		}
		return true
	})
	return fields
}
