package engine

import (
	"fmt"
	"runtime/debug"
	"testing"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
)

// Nor does what is done with very many files, of which one host has delegated
// most to the other one.
func TestManyFilesHoldTheEngineForLong(t *testing.T) {
	if long.Race {
		t.Skip("with -race all is many times slower")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	bestOfHolds(t, func(m *leastHolds) { holdFiles(t, m, *holds) })
}

// holdFiles is holdRun with n open files on each of two hosts.
func holdFiles(t *testing.T, m *leastHolds, n int) {
	p := newPair(t, "rw")
	m.pair = p
	step := m.step
	a, b := p.nodes[0], p.nodes[1]
	open := func(node, i int) *locks.Request {
		h := locks.HandleID(1 + i)
		return &locks.Request{
			Key:   locks.Key{File: fmt.Sprintf("directory%d/file%d", node, i), Class: locks.Open},
			Owner: locks.OwnerID(h), Handle: h, Mode: locks.Write, Range: locks.Whole, Program: locks.Program{PID: 1},
		}
	}
	openAll := func(node, from, n int) {
		for i := from; i < n; i++ {
			p.must(node, open(node, i))
		}
	}
	all := func() bool { all, _ := a.Delegation(); return all }

	few := min(n, maxExcepted-10)
	openAll(1, 0, few)
	for _, e := range p.nodes {
		e.mu.Lock()
		e.o.Uniform = func() string { return "rw" }
		e.borrowed.times, e.lent.opened = delegationTimes{}, -1<<60
		e.mu.Unlock()
	}
	step("delegate", func() {
		openAll(0, 0, 16)
		waitUntil(t, "delegated", all)
	})
	step("open", func() { openAll(0, 16, n) })
	if a.borrowed.uses < n-100 {
		t.Fatalf("%d opens without a message, of %d", a.borrowed.uses, n)
	}
	step("a third part of them closed", func() {
		for i := 0; i < n; i += 3 {
			a.UnlockHandle(open(0, i).Key, locks.HandleID(1+i), "closed")
		}
	})
	step("return", func() {
		p.must(1, open(1, n))
		waitUntil(t, "it is returned", func() bool { _, to := b.Delegation(); return to == "" && !all() })
		a.Ping()
		b.Ping()
	})
	step("count", func() { a.Count() })
	step("list", func() { a.Locks() })
	step("view", p.view)
	step("resume", func() { a.Resume() })
	step("expelled", func() { a.Expelled("a test") })
	p.view()
	step("leave", func() { b.Leave() })
}
