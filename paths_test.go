package dmxfs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// guides are the documents that lead readers to files and functions.
var guides = []string{"CONTRIBUTING.md", "docs/ARCHITECTURE.md"}

// TestReadingPaths wants every Go file that the guides name to be there, and what
// they name behind it to be declared in it, as in
//
//	`fusefs/admission.go` (`fence.enter`; `admit` refuses it), `fence.go`
//
// A file without a directory is in that of the one before it in the paragraph, or
// in the row of a table; at its beginning it may be anywhere.
func TestReadingPaths(t *testing.T) {
	byName := map[string][]string{}
	for _, name := range goFiles(t) {
		byName[path.Base(name)] = append(byName[path.Base(name)], name)
	}
	files, functions := 0, 0
	for _, guide := range guides {
		b, err := os.ReadFile(guide)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range paragraphs(string(b)) {
			dir := ""
			for _, x := range namedFiles(part) {
				files++
				at := x.file
				if d := path.Dir(at); d != "." {
					dir = d
				} else if dir != "" {
					at = path.Join(dir, at)
				} else if all := byName[at]; len(all) == 1 {
					at = all[0]
				}
				if _, err := os.Stat(at); err != nil {
					t.Errorf("%s names %s, and there is no %s", guide, x.file, at)
					continue
				}
				known := declaredIn(t, at)
				for _, name := range x.declares {
					functions++
					if !known[name] {
						t.Errorf("%s says that %s is in %s, and it is not declared there", guide, name, at)
					}
				}
			}
		}
	}
	if files < 50 || functions < 30 {
		t.Errorf("the guides name %d files and %d functions: are they written in another way by now?", files, functions)
	}
}

// paragraphs are the parts of a document in which a directory is said once: what
// stands between blank lines, each item of a list, each row of a table.
func paragraphs(doc string) (parts []string) {
	begins := regexp.MustCompile(`^(- |\d+\. |\||$)`)
	part := ""
	for line := range strings.Lines(doc) {
		if begins.MatchString(strings.TrimRight(line, "\n")) {
			parts, part = append(parts, part), ""
		}
		part += line
	}
	return append(parts, part)
}

// namedFile is a file in a guide, and what it is said to declare.
type namedFile struct {
	file     string
	declares []string
}

var (
	fileNamed = regexp.MustCompile("`([a-z0-9/_-]+\\.go)`(?:\\s+\\(([^)]*)\\)|:\\s+(`[A-Za-z.]+`))?")
	nameIn    = regexp.MustCompile("`([A-Za-z][A-Za-z.]*)`")
)

func namedFiles(part string) (all []namedFile) {
	for _, m := range fileNamed.FindAllStringSubmatch(part, -1) {
		x := namedFile{file: m[1]}
		for _, n := range nameIn.FindAllStringSubmatch(m[2]+m[3], -1) {
			x.declares = append(x.declares, n[1])
		}
		all = append(all, x)
	}
	return all
}

// declaredIn are the names of the functions, methods and types of a file, those of
// methods with their type and without.
func declaredIn(t *testing.T, name string) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names[d.Name.Name], names[funcName(d)] = true, true
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, ok := s.(*ast.TypeSpec); ok {
					names[s.Name.Name] = true
				}
			}
		}
	}
	return names
}
