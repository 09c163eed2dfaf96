package dmxfs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestMap wants every package on the map of docs/ARCHITECTURE.md and in the
// package comment here, and nothing else on either.
func TestMap(t *testing.T) {
	b, err := os.ReadFile("docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(b), "\n| package | is |")
	table, _, _ = strings.Cut(table, "\n\n")
	inTable := map[string]bool{}
	for _, cell := range regexp.MustCompile(`(?m)^\|[^|]*`).FindAllString(table, -1) {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
			inTable[m[1]] = true
		}
	}
	file, err := parser.ParseFile(token.NewFileSet(), "doc.go", nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	inDoc := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^  - ([a-z0-9/, \n-]+):`).FindAllStringSubmatch(file.Doc.Text(), -1) {
		for _, name := range strings.FieldsFunc(m[1], func(r rune) bool { return r == ',' || r == ' ' || r == '\n' }) {
			inDoc[name] = true
		}
	}
	want := map[string]bool{}
	for _, p := range packages(t) {
		if dir, ok := strings.CutPrefix(p.ImportPath, module+"/"); ok {
			want[dir] = true
		}
	}
	for where, got := range map[string]map[string]bool{"the table of docs/ARCHITECTURE.md": inTable, "doc.go": inDoc} {
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if !got[name] {
				t.Errorf("%s has no package %s", where, name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(got)) {
			if !want[name] {
				t.Errorf("%s has %s, and there is no such package", where, name)
			}
		}
	}
}

// TestPartsOfTheMount wants every part of fusefs in the list of its package
// comment, in the order in which assemble makes them.
func TestPartsOfTheMount(t *testing.T) {
	fset := token.NewFileSet()
	var listed, made []string
	for _, name := range goFiles(t) {
		if path.Dir(name) != "fusefs" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if file.Doc != nil {
			for _, m := range regexp.MustCompile(`(?m)^  - ([a-zA-Z, ]+):`).FindAllStringSubmatch(file.Doc.Text(), -1) {
				listed = append(listed, strings.Split(m[1], ", ")...)
			}
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Name.Name != "assemble" {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				c, ok := n.(*ast.CompositeLit)
				if ok {
					made = append(made, c.Type.(*ast.Ident).Name)
				}
				return !ok
			})
		}
	}
	if !slices.Equal(listed, made) {
		t.Errorf("the package comment of fusefs lists the parts\n%q, and assemble makes\n%q", listed, made)
	}
}

// TestNoCycles: between the folders at the top, imports run one way. (Between
// packages the compiler sees to it.)
func TestNoCycles(t *testing.T) {
	imports := map[string][]string{}
	for _, p := range packages(t) {
		from := area(p.ImportPath)
		for _, imp := range p.Imports {
			if to := area(imp); to != "" && to != from && !slices.Contains(imports[from], to) {
				imports[from] = append(imports[from], to)
			}
		}
	}
	done := map[string]bool{}
	var visit func(path []string, at string)
	visit = func(path []string, at string) {
		if i := slices.Index(path, at); i >= 0 {
			t.Errorf("a cycle: %s", strings.Join(append(path[i:], at), " -> "))
			return
		}
		if done[at] {
			return
		}
		for _, to := range imports[at] {
			visit(append(slices.Clip(path), at), to)
		}
		done[at] = true
	}
	for _, from := range slices.Sorted(maps.Keys(imports)) {
		visit(nil, from)
	}
}

// area is the folder at the top that a package of this module is in. What is below
// internal has no rank in common: some serve all, others stand above the mount.
func area(importPath string) string {
	rest, ok := strings.CutPrefix(importPath, module+"/")
	if !ok {
		return ""
	}
	first, below, _ := strings.Cut(rest, "/")
	if first == "internal" {
		second, _, _ := strings.Cut(below, "/")
		return first + "/" + second
	}
	return first
}

// goFiles are the Go files of the repository, with slashes.
func goFiles(t *testing.T) (files []string) {
	t.Helper()
	for _, p := range packages(t) {
		all, err := filepath.Glob(filepath.Join(p.Dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, all...)
	}
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range files {
		rel, err := filepath.Rel(root, f)
		if err != nil {
			t.Fatal(err)
		}
		files[i] = filepath.ToSlash(rel)
	}
	return files
}
