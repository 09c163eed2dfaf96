package mutant

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An Edit is a place of a file that is written otherwise. Old is in the file
// exactly once; New takes its place.
type Edit struct{ File, Old, New string }

// Overlay writes the changed files, and files that are added (their text by
// their names), and returns an overlay that puts them in place. Names are
// relative to the directory of the test.
func Overlay(t testing.TB, edits []Edit, add map[string]string) (path string) {
	t.Helper()
	dir := t.TempDir()
	texts := map[string]string{} // by absolute path
	abs := func(name string) string {
		file, err := filepath.Abs(name)
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	for name, text := range add {
		texts[abs(name)] = text
	}
	for _, e := range edits {
		file := abs(e.File)
		text, changed := texts[file]
		if !changed {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text = string(b)
		}
		if n := strings.Count(text, e.Old); n != 1 {
			t.Errorf("%s has %d times, not once:\n%s", e.File, n, e.Old)
		}
		texts[file] = strings.Replace(text, e.Old, e.New, 1)
	}
	replace := map[string]string{}
	for file, text := range texts {
		replace[file] = filepath.Join(dir, fmt.Sprintf("%d_%s", len(replace), filepath.Base(file)))
		if err := os.WriteFile(replace[file], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
