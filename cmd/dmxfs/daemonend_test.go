package main

import (
	"os"
	"testing"
)

// What hangs in the storage when a daemon ends goes on with the shared directory,
// which it knows by the number of a descriptor.
func TestSourceStaysOpen(t *testing.T) {
	t.Parallel()
	root, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	d := &daemon{root: root}
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
	if err := syncfs(root); err != nil {
		t.Errorf("after the daemon's end: %v", err)
	}
}
