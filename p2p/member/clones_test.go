package member_test

import (
	"slices"
	"testing"
)

// clone is a machine that was cloned with its memory: it has the boot ID of the
// other one, and its state directory with the same inodes.
func (h *host) clone(addr string) *host {
	c := *h
	c.lives, c.addr = slices.Clone(h.lives), addr
	return &c
}

var clones = []struct {
	name  string
	story func(seed uint64, bug string) error
}{
	{"of a member, at another address", func(seed uint64, bug string) error {
		return directed(options{seed: seed, bug: bug, clones: true}, func(w *world) {
			n := w.together(2)
			w.isolatedOn("a", n[0].host.clone("-clone"), 30_000)
			w.run(20_000)
		})
	}},
	{"of a host before it was a member", func(seed uint64, bug string) error {
		return directed(options{seed: seed, bug: bug, clones: true}, func(w *world) {
			h := w.newHost()
			c := h.clone("")
			w.startOn("a", h, nil)
			w.runUntil(60_000, w.settled)
			w.run(2000)
			w.isolatedOn("a", c, 30_000)
			w.run(20_000)
		})
	}},
	{"of a template, with an identity of its own", func(seed uint64, bug string) error {
		return directed(options{seed: seed, bug: bug}, func(w *world) {
			n := w.together(2)
			c := n[0].host.clone("")
			c.lives = nil
			w.isolatedOn("z", c, 30_000)
			w.run(20_000)
		})
	}},
}

// isolatedOn is isolated on a host of its own.
func (w *world) isolatedOn(name string, h *host, d int64) {
	for _, peer := range w.peerNames() {
		for _, k := range [][2]string{{name, peer}, {peer, name}} {
			l := w.link(k[0], k[1])
			l.cut++
			w.after(d*ms, func() { l.cut-- })
		}
	}
	w.startOn(name, h, nil)
}

// What a clone of a machine knows is no proof that the original is dead.
func TestClonesProveNothing(t *testing.T) {
	for _, c := range clones {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(30) {
				if err := c.story(seed, ""); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		})
	}
}

// If it were, two would go on.
func TestClonesThatProveSomething(t *testing.T) {
	needsBugs(t)
	for _, c := range clones {
		t.Run(c.name, func(t *testing.T) {
			found := 0
			for seed := range uint64(30) {
				if c.story(seed, "cloneProof") != nil {
					found++
				}
			}
			if found == 0 {
				t.Error("the planted bug is not found")
			}
			t.Logf("%d of 30 break", found)
		})
	}
}
