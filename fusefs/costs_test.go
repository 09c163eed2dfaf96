package fusefs

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/locktest"
)

// many is a file system with a file, and what there is very much of.
type many struct {
	*fileSystem
	n    *node
	p    *process
	hs   []*handle
	reqs []*locks.Request
}

func newMany(t *testing.T, n int, handles, owners bool) *many {
	m := &many{fileSystem: handlersOnly(t), p: new(process)}
	m.n = m.tree.put(m.tree.root, "f", 1, 1000, unix.S_IFREG)
	for i := range n {
		if handles || i == 0 {
			m.hs = append(m.hs, &handle{id: uint64(i + 1), n: m.n, proc: m.p})
		}
		r := &locks.Request{Key: locks.Key{Class: locks.Posix}, Owner: 1, Range: locks.Range{Start: uint64(2 * i), End: uint64(2*i + 1)}}
		if owners {
			r.Owner = locks.OwnerID(i + 1)
		}
		m.reqs = append(m.reqs, r)
	}
	return m
}

func (m *many) attachAll() {
	for _, h := range m.hs {
		m.openLocks.attach(h, openNone)
	}
}

func (m *many) rememberAll() {
	for i, r := range m.reqs {
		m.n.posixUse.Add(1)
		m.records.remember(m.hs[min(i, len(m.hs)-1)], m.p, r, locks.Grant{Tenure: 3})
	}
}

// costs are what is done with the tables of a mount when there is much in them.
// make prepares it, and what it returns is measured.
var costs = []struct {
	name  string
	files bool // that is what there are many of
	make  func(t *testing.T, n int) func()
}{
	{"files of a directory, and their names", true, func(t *testing.T, n int) func() {
		tr := newTestTree(t, false)
		return func() {
			for i := range n {
				f := tr.put(tr.root, fmt.Sprint(i), 1, uint64(10+i), unix.S_IFREG)
				tr.pathTo(f)
				tr.renamed(tr.root, fmt.Sprint(i), tr.root, fmt.Sprint("new", i), false)
				tr.pathTo(f)
				tr.gone(tr.root, fmt.Sprint("new", i))
				tr.forget(f.id, 1)
			}
		}
	}},
	{"files that stay", true, func(t *testing.T, n int) func() {
		tr := newTestTree(t, false)
		return func() {
			for i := range n {
				tr.pathTo(tr.put(tr.root, fmt.Sprint(i), 1, uint64(10+i), unix.S_IFREG))
			}
			for i := range n {
				tr.gone(tr.root, fmt.Sprint(i))
			}
			closeFiles(tr)
		}
	}},
	{"a directory of many is renamed", true, func(t *testing.T, n int) func() {
		tr := newTestTree(t, false)
		d := tr.put(tr.root, "d", 1, 9, unix.S_IFDIR)
		for i := range n {
			tr.put(d, fmt.Sprint(i), 1, uint64(10+i), unix.S_IFREG)
		}
		return func() {
			for i := range n {
				tr.renamed(tr.root, []string{"d", "e"}[i%2], tr.root, []string{"e", "d"}[i%2], false)
			}
			tr.renamed(tr.root, []string{"d", "e"}[n%2], tr.root, "end", false)
			closeFiles(tr)
		}
	}},
	{"numbers of handles", false, func(_ *testing.T, n int) func() {
		var r registry[handle]
		return func() {
			for i := range n {
				r.put(uint64(i), new(handle))
			}
			for i := range n {
				if r.get(uint64(i)) == nil || r.take(uint64(i)) == nil {
					panic("not there")
				}
			}
		}
	}},
	{"handles of a file", false, func(t *testing.T, n int) func() {
		m := newMany(t, n, true, true)
		return func() {
			m.attachAll()
			for range 10 {
				m.n.openHandles()
			}
			for _, h := range m.hs {
				m.openLocks.detach(h)
			}
		}
	}},
	{"open locks of a file", false, func(t *testing.T, n int) func() {
		m := newMany(t, n, true, true)
		m.attachAll()
		return func() {
			for _, s := range []openState{openWaiting, openHeld, openShared, openIdle, openWaiting, openNone} {
				for _, h := range m.hs {
					m.openLocks.setState(h, s)
				}
			}
		}
	}},
	{"ranges of an owner", false, func(t *testing.T, n int) func() {
		m := newMany(t, n, false, false)
		return func() {
			m.rememberAll()
			for _, r := range m.reqs {
				m.records.unremember(m.n, recordKey{locks.Posix, r.Owner}, r.Range)
			}
		}
	}},
	{"owners by one open file", false, func(t *testing.T, n int) func() {
		m := newMany(t, n, false, true)
		return func() {
			m.rememberAll()
			for _, r := range m.reqs {
				m.records.unremember(m.n, recordKey{locks.Posix, r.Owner}, r.Range)
			}
		}
	}},
	{"owners by open files of their own", false, func(t *testing.T, n int) func() {
		m := newMany(t, n, true, true)
		return func() {
			m.rememberAll()
			for _, h := range m.hs {
				m.records.forgetHandle(h)
			}
			if m.n.hasRecords() || m.p.held.Load() != 0 {
				panic("something is left")
			}
		}
	}},
	{"locks that are broken", false, func(t *testing.T, n int) func() {
		m := newMany(t, n, true, true)
		m.rememberAll()
		return func() {
			for _, h := range m.hs {
				m.fence.breakRecords(h, locks.Posix)
			}
		}
	}},
}

// closeFiles closes the descriptors of all files, which those of some tries would be too
// many of.
func closeFiles(tr *tree) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for len(tr.anchors.nodes) > 0 {
		tr.dropAnchor(tr.anchors.nodes[0], closeFD)
	}
}

// What a mount knows of its files, open files, open locks and explicit locks does
// not cost more for each where there is more of it.
func TestCostOfManyInTheTables(t *testing.T) {
	for _, c := range costs {
		t.Run(c.name, func(t *testing.T) {
			few := locktest.Few()
			if c.files {
				few = min(few, 100) // each takes a descriptor, in each of some tries
			}
			locktest.Growth(t, few, func(n int) func() { return c.make(t, n) })
		})
	}
}
