package member_test

import (
	"fmt"
	"testing"
)

// scene is a world with expectations: a story that is told in a test.
type scene struct {
	*world
	t      *testing.T
	failed bool
}

// tell tells a story with several seeds. Whatever else it expects, no check
// may fail.
func tell(t *testing.T, seeds int, o options, story func(s *scene)) {
	t.Helper()
	for seed := range uint64(seeds) {
		o.seed = seed + 1
		one := func(tracing, quiet bool) *scene {
			s := &scene{world: newWorld(o), t: t}
			s.tracing = tracing
			s.failed = quiet // only the first failure is reported
			story(s)
			if err := s.check.err; err != nil && !s.failed {
				s.failed = true
				t.Errorf("seed %d: %v", seed+1, err)
			}
			return s
		}
		if s := one(false, false); s.failed {
			t.Logf("%s", s.describe())
			for _, line := range one(true, true).trace {
				t.Log(line)
			}
			return
		}
	}
}

// expect is an assertion; after the first failure the rest is silent.
func (s *scene) expect(ok bool, format string, args ...any) {
	s.t.Helper()
	if ok || s.failed || s.check.err != nil {
		return
	}
	s.failed = true
	s.logf("EXPECTED: "+format, args...)
	s.t.Errorf("seed %d, at %.3f s: expected "+format, append([]any{s.opt.seed, float64(s.now) / 1e6}, args...)...)
}

// until lets time pass until done, at most limit milliseconds, and returns how
// long it took.
func (s *scene) until(limit int64, what string, done func() bool) int64 {
	s.t.Helper()
	from := s.now
	ok := s.runUntil(limit, done)
	s.expect(ok, "%s within %d ms", what, limit)
	return (s.now - from) / ms
}

// cluster starts n nodes, a, b, c ..., and waits until they grant in one view.
func (s *scene) cluster(n int) []*node {
	s.t.Helper()
	var nodes []*node
	for i := range n {
		nodes = append(nodes, s.start(string(rune('a'+i))))
		s.run(20)
	}
	s.until(10_000+6*s.opt.cache, fmt.Sprintf("a cluster of %d", n), s.settled)
	s.run(40_000) // long enough in service that nothing of the start is left
	s.expect(s.settled(), "the cluster to stay together")
	return nodes
}

// allGrant reports whether these nodes can grant.
func allGrant(nodes ...*node) func() bool {
	return func() bool {
		for _, n := range nodes {
			if !n.granting() {
				return false
			}
		}
		return true
	}
}

// pause lets d milliseconds pass and returns the longest time in which one of
// the nodes could not grant.
func (s *scene) pause(d int64, nodes ...*node) int64 {
	var longest, now int64
	granting := allGrant(nodes...)
	for range d {
		s.run(1)
		if granting() {
			now = 0
			continue
		}
		now++
		longest = max(longest, now)
	}
	return longest
}

// newViews is how many views were linked since the count was from.
func (s *scene) newViews(from int) int { return s.check.views - from }
