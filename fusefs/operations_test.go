package fusefs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// What go-fuse can pass on has an entry that says what it does at the fence.
func TestEveryOperationHasAnEntry(t *testing.T) {
	entries := map[string]bool{"Writev": true} // of WRITE
	for _, o := range operations {
		entries[o.method] = true
	}
	// These come from nobody.
	for _, m := range []string{"String", "SetDebug", "Init", "OnUnmount"} {
		entries[m] = true
	}
	for m := range reflect.TypeFor[fuse.RawFileSystem]().Methods() {
		if !entries[m.Name] {
			t.Errorf("operations has no entry for %s: say what it does at the fence, and test it", m.Name)
		}
	}
}

// changing are the system calls of package unix that change the storage.
var changing = []string{
	"Mkdirat", "Mknodat", "Symlinkat", "Linkat", "Unlinkat", "Renameat", "Renameat2",
	"Fchmodat", "Fchmod", "Chmod", "Fchownat", "Fchown", "Lchown", "Chown", "UtimesNanoAt", "Utimes", "Futimes",
	"Setxattr", "Lsetxattr", "Fsetxattr", "Removexattr", "Lremovexattr", "Fremovexattr",
	"Truncate", "Ftruncate", "Fallocate", "CopyFileRange", "Pwrite", "Pwritev", "Pwritev2",
}

// beforeTheFence are the functions that make such a call and leave it to their
// callers to pass the fence, or that have no program behind them.
var beforeTheFence = map[string]string{
	"pwrite":      "called by write, in change",
	"dropSetID":   "called in change",
	"dropSetIDOf": "called in change",
	"dropSetGID":  "called in change",
	"makeDir":     "called in make",
	"listAnew":    "the times of a directory that a program lists, which say nothing of what is in it",
	"keepSetGID":  "of a file that was just made, and is not known to anybody",
	"stirOne":     "the time of access of a directory, which says nothing of what is in it",
	"punchBehind": "far behind the end of the file, where there is nothing to change",
	"openMade":    "the mode of a file that was just made, and is not known to anybody",
	"NewRequests": "memory",
	"ready":       "memory",
	"forceLookup": "a link from another file system, which always fails",
}

// Every system call that changes the storage is made by what change is given.
func TestEveryChangePassesTheFence(t *testing.T) {
	files, err := os.ReadDir(".")
	must(t, err)
	fset := token.NewFileSet()
	for _, e := range files {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, e.Name(), nil, 0)
		must(t, err)
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || beforeTheFence[fn.Name.Name] != "" {
				continue
			}
			fenced := false
			var calls []*ast.CallExpr
			ast.Inspect(fn, func(n ast.Node) bool {
				c, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				s, ok := c.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				switch x := s.X.(type) {
				case *ast.Ident:
					if x.Name == "unix" && slices.Contains(changing, s.Sel.Name) {
						calls = append(calls, c)
					}
					fenced = fenced || s.Sel.Name == "make" || s.Sel.Name == "remove"
				case *ast.SelectorExpr:
					fenced = fenced || x.Sel.Name == "fence" && slices.Contains([]string{"change", "alter", "create"}, s.Sel.Name)
				}
				return true
			})
			for _, c := range calls {
				if !fenced {
					t.Errorf("%v: %s changes the storage and passes no fence", fset.Position(c.Pos()), fn.Name.Name)
				}
			}
		}
	}
}
