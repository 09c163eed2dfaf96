package rules

import (
	"errors"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/policy"
)

func TestEveryAlgorithmIsThere(t *testing.T) {
	for _, name := range policy.Algorithms {
		if a := Algorithms[name]; a == nil || a.Name != name || a.Shared == policy.Exclusive(name) {
			t.Errorf("%s: %+v", name, a)
		}
	}
	if len(Algorithms) != len(policy.Algorithms) {
		t.Errorf("%d algorithms, of which rules can name %d", len(Algorithms), len(policy.Algorithms))
	}
}

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
	var r Rules
	r.now.Store(&ruling{Policy: p})
	mount := fusefs.Rule{Open: true, Yield: 20 * time.Second, Wait: time.Minute}
	for path, want := range map[string]fusefs.Rule{
		"other":      mount,
		"exclusive":  {Open: true, PerProcess: true, Wait: time.Minute},
		"yields":     {Open: true, PerProcess: true, Yield: 3 * time.Second},
		"off":        {Yield: 20 * time.Second, Wait: time.Minute},
		"strict":     {Open: true, PerProcess: true, Wait: 2 * time.Second},
		"d/a.db-shm": {Open: true, UntilClose: true, Wait: time.Minute},
	} {
		if got := r.forOpen(path, mount); got != want {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
	}
	if got := r.forOpen("a.db-shm", fusefs.Rule{Open: true, Yield: time.Second}); got.Wait != sharedMemoryWait {
		t.Errorf("a file that is shared memory: %+v", got)
	}
	if got := r.Algorithm("exclusive") + " " + r.Algorithm("off") + " " + r.Algorithm("other"); got != "ring rw rw" {
		t.Errorf("algorithms %s", got)
	}
	// Rules that nobody here understands are followed by no lock at all.
	r.now.Store(&ruling{err: errors.New("newer")})
	if got := r.Algorithm("other"); got != "" {
		t.Errorf("algorithm %q of rules that cannot be read", got)
	}
}
