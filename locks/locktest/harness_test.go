package locktest

import (
	"slices"
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
)

var centralOptions = Options{Reorders: true, Duplicates: true, LaxTries: true, MaxNodes: 5}

func TestConformanceOfCentral(t *testing.T) { Conformance(t, central(bugs{}), centralOptions) }

// Each check of the harness finds the bug that it is for. (What it finds in rw
// is in the tests of that package.)
func TestTheHarnessFindsBugs(t *testing.T) {
	long.NoRace(t)
	overtakes, spares, strict := centralOptions, centralOptions, centralOptions
	overtakes.Overtakes = true
	spares.Spares = true
	strict.LaxTries = false
	for _, c := range []struct {
		name string
		bugs bugs
		opt  Options
		want string
	}{
		{"grants two", bugs{grantsTwo: true}, centralOptions, "was granted beside"},
		{"keeps ghosts", bugs{keepsGhosts: true}, centralOptions, "waits with nothing under way"},
		{"loses waiters", bugs{losesWaiters: true}, centralOptions, "waits with nothing under way"},
		{"old tokens", bugs{oldTokens: true}, centralOptions, "has token"},
		{"no handover", bugs{noHandover: true}, centralOptions, "but the last one was"},
		{"no stale", bugs{noStale: true}, centralOptions, "but the last one was"},
		{"denies waits", bugs{deniesAll: true}, centralOptions, "was denied without cause"},
		{"denies tries", bugs{deniesTries: true}, centralOptions, "was denied without cause"},
		{"denies tries for a ghost", bugs{}, strict, "was denied without cause"},
		{"grants twice", bugs{grantsTwice: true}, centralOptions, "of a ticket that does not wait"},
		{"enters while suspended", bugs{entersSuspended: true}, centralOptions, "may not enter"},
		{"speaks between epochs", bugs{speaksFrozen: true}, centralOptions, "between two epochs"},
		{"forgets who holds at an epoch", bugs{forgetsHolder: true}, centralOptions, "was granted beside|but the last one was"},
		{"is never idle", bugs{neverIdle: true}, centralOptions, "cannot be dropped"},
		{"messages without end", bugs{echoes: true}, centralOptions, "end"},
		{"what is encoded is not decoded", bugs{miscodes: true}, centralOptions, "message 0"},
		{"panics", bugs{panics: true}, centralOptions, "panic: on purpose"},
		{"refuses a message", bugs{refuses: true}, centralOptions, "not wanted"},
		{"overtakes nobody", bugs{}, overtakes, "waits with nothing under way and nothing against it"},
		{"always stale", bugs{}, spares, "read its own writes in again"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(3000) {
				s, err := runSeed(central(c.bugs), c.opt, seed, false)
				if err == nil {
					continue
				}
				found := func(text string) bool {
					return slices.ContainsFunc(strings.Split(c.want, "|"), func(s string) bool { return strings.Contains(text, s) })
				}
				if !found(err.Error()) {
					t.Fatalf("seed %d: %v, want an error about %q", seed, err, c.want)
				}
				if text := shortest(central(c.bugs), c.opt, s.plan, s.ops); !found(text) && !strings.Contains(text, "end") {
					t.Errorf("seed %d: the shortest run does not fail in that way:\n%s", seed, text)
				}
				return
			}
			t.Errorf("not found")
		})
	}
}

// A machine that does not do the same for the same is found by doing a run
// twice.
func TestRunsThatDifferAreFound(t *testing.T) {
	for seed := range uint64(100) {
		a, err1 := runSeed(central(bugs{random: true}), centralOptions, seed, true)
		b, err2 := runSeed(central(bugs{random: true}), centralOptions, seed, true)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if a.digest != b.digest {
			return
		}
	}
	t.Errorf("all runs were the same")
}

// An op in an interaction file is read as it was written.
func TestOpsAreReadAsWritten(t *testing.T) {
	for seed := range uint64(300) {
		s, err := runSeed(central(bugs{}), centralOptions, seed, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range s.ops {
			again, err := parseOp(o.String())
			if err != nil {
				t.Fatal(err)
			}
			if again.String() != o.String() {
				t.Errorf("%q was read as %q", o, again)
			}
		}
	}
	for _, bad := range []string{
		"", "acquire", "acquire n0/1", "acquire n0/1 W", "acquire n0/x W A", "acquire 0/1 W A", "acquire n0/1 X A",
		"acquire n0/1 W AC", "acquire n0/1 W A later", "acquire n0/1,2 W A", "replace n0/1 2=W", "replace n0/1 2:W:A",
		"deliver n0", "deliver n0->x", "deliver n0->n1 twice", "view n0,x", "expire n0 now", "sleep n0",
	} {
		if o, err := parseOp(bad); err == nil {
			t.Errorf("%q was read as %q", bad, o)
		}
	}
}

// Breadth first, the first failure is a shortest one.
func TestExploreFindsAShortestRun(t *testing.T) {
	_, err := Explore(central(bugs{grantsTwo: true}), centralOptions, Config{Nodes: []string{"W A, W A", "W A"}})
	if err == nil || strings.Count(err.Error(), "\n----\n") != 5 { // the nodes and four steps
		t.Errorf("%v, want a run of four steps", err)
	}
	r, err := Explore(central(bugs{}), centralOptions, Config{Nodes: []string{"W A", "W A"}})
	if err != nil || !r.Complete || r.Ends == 0 {
		t.Errorf("%v, %v", r, err)
	}
}
