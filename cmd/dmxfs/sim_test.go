package main

import (
	"os"
	"path/filepath"
	"testing"
)

// The simulator beside the program comes before that of $PATH, which may be of
// another version.
func TestSimulatorIsFound(t *testing.T) {
	beside, inPath := t.TempDir(), t.TempDir()
	t.Setenv("PATH", inPath)
	if path, err := findSimulator(beside); err == nil {
		t.Errorf("found %s, and there is none", path)
	}
	for _, dir := range []string{inPath, beside} {
		want := filepath.Join(dir, simulator)
		if err := os.WriteFile(want, nil, 0o755); err != nil {
			t.Fatal(err)
		}
		if path, err := findSimulator(beside); err != nil || path != want {
			t.Errorf("found %s %v, want %s", path, err, want)
		}
	}
}
