package dmxfs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"strings"
	"testing"
)

// How long a file and a function may be, in lines.
const (
	maxFile = 500
	maxFunc = 80
)

// longer are the files and functions that are longer than that, and how many
// lines they may have. The list only gets shorter: nothing is added to it, no
// number grows, and what has become short enough must be taken off.
var longer = map[string]int{}

// How many methods a type may have, and in how many files.
const (
	maxMethods = 60
	maxFiles   = 5
)

// size of a type: its methods, and the files that they are in.
type size struct{ methods, files int }

// crowded are the types that have more than that, and what they have. The list
// only gets shorter, as longer does.
var crowded = map[string]size{}

// TestTypes holds types to so few methods and files that a reader can know one.
func TestTypes(t *testing.T) {
	methods, files := map[string]int{}, map[string]map[string]bool{}
	for _, name := range goFiles(t) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				typ, _, _ := strings.Cut(funcName(f), ".")
				typ = path.Dir(name) + ": " + typ
				methods[typ]++
				if files[typ] == nil {
					files[typ] = map[string]bool{}
				}
				files[typ][name] = true
			}
		}
	}
	for typ, n := range methods {
		is, may := size{n, len(files[typ])}, crowded[typ]
		most := size{max(maxMethods, may.methods), max(maxFiles, may.files)}
		switch {
		case is.methods > most.methods || is.files > most.files:
			t.Errorf("%s has %d methods in %d files, more than %d in %d: divide it", typ, is.methods, is.files, most.methods, most.files)
		case may == (size{}):
		case is.methods <= maxMethods && is.files <= maxFiles:
			t.Errorf("%s is small enough: take it off the list", typ)
		case is != may:
			t.Errorf("%s has %d methods in %d files by now: say so in the list", typ, is.methods, is.files)
		}
	}
	for typ := range crowded {
		if methods[typ] == 0 {
			t.Errorf("%s is gone: take it off the list", typ)
		}
	}
}

func TestSizes(t *testing.T) {
	long := map[string]bool{}
	check := func(name string, lines, most int) {
		if lines <= most {
			return
		}
		long[name] = true
		if allowed, ok := longer[name]; !ok {
			t.Errorf("%s has %d lines, more than %d: divide it", name, lines, most)
		} else if lines > allowed {
			t.Errorf("%s has grown to %d lines, and had at most %d: divide it", name, lines, allowed)
		}
	}
	for _, name := range goFiles(t) {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, src, 0)
		if err != nil {
			t.Fatal(err)
		}
		check(name, fset.File(file.Pos()).LineCount()-1, maxFile)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				check(name+": "+funcName(f), fset.Position(f.End()).Line-fset.Position(f.Pos()).Line+1, maxFunc)
			}
		}
	}
	for name := range longer {
		if !long[name] {
			t.Errorf("%s is short enough, or gone: take it off the list", name)
		}
	}
}

// funcName is the name of a function, or Type.Name of a method.
func funcName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	at := f.Recv.List[0].Type
	for {
		switch x := at.(type) {
		case *ast.StarExpr:
			at = x.X
		case *ast.IndexExpr:
			at = x.X
		case *ast.Ident:
			return x.Name + "." + f.Name.Name
		default:
			return f.Name.Name
		}
	}
}
