package main

import (
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/policy"
)

func TestWhatARuleMakesOfTheDefaults(t *testing.T) {
	p, err := policy.Parse("p", `
[[rule]]
path = "exclusive"
algorithm = "ring"
[[rule]]
path = "yields"
algorithm = "rcv"
yield = "3s"
wait = "none"
[[rule]]
path = "off"
algorithm = "rw"
open = "off"
[[rule]]
path = "strict"
algorithm = "rw"
yield = "never"
scope = "process"
wait = "2s"
open = "lock"
`)
	if err != nil {
		t.Fatal(err)
	}
	var r rules
	r.now.Store(&ruling{Policy: p})
	mount := fusefs.Rule{Open: true, Yield: 20 * time.Second, Wait: time.Minute}
	for path, want := range map[string]fusefs.Rule{
		"other":      mount,
		"exclusive":  {Open: true, PerProcess: true, Wait: time.Minute},
		"yields":     {Open: true, PerProcess: true, Yield: 3 * time.Second},
		"off":        {Yield: 20 * time.Second, Wait: time.Minute},
		"strict":     {Open: true, PerProcess: true, Wait: 2 * time.Second},
		"d/a.db-shm": {Open: true, Kept: true, Wait: time.Minute},
	} {
		if got := r.forOpen(path, mount); got != want {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
	}
	if got := r.forOpen("a.db-shm", fusefs.Rule{Open: true, Yield: time.Second}); got.Wait != sharedMemoryWait {
		t.Errorf("a file that is shared memory: %+v", got)
	}
	if got := r.algorithm("exclusive") + " " + r.algorithm("off") + " " + r.algorithm("other"); got != "ring rw rw" {
		t.Errorf("algorithms %s", got)
	}
	// Rules that nobody here understands are followed by no lock at all.
	r.now.Store(&ruling{err: errSilent})
	if got := r.algorithm("other"); got != "" {
		t.Errorf("algorithm %q of rules that cannot be read", got)
	}
}

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
