package main

import (
	"testing"

	"github.com/dmxfs/dmxfs/internal/exitcode"
)

func TestPathsOfPolicyCheck(t *testing.T) {
	for _, c := range []struct{ path, want string }{
		{"/mnt/a/b", "a/b"}, {"/mnt/a/../.b/", ".b"}, {"/mnt", ""}, {"a/./b", "a/b"}, {"../x", "x"},
	} {
		if got, err := belowRoot(c.path, "/mnt"); err != nil || got != c.want {
			t.Errorf("%s: %q %v, want %q", c.path, got, err, c.want)
		}
	}
	for _, path := range []string{"/mnta/x", "/other"} {
		if got, err := belowRoot(path, "/mnt"); exitcode.Of(err) != exitcode.Usage {
			t.Errorf("%s: %q %v", path, got, err)
		}
	}
}
