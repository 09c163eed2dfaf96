package fusefs

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func newTestTree(t *testing.T, paths bool) *tree {
	st := unix.Stat_t{Dev: 1, Ino: 2, Mode: unix.S_IFDIR}
	tr := newTree(anything(), &st, fileIDs{paths: paths, devices: newDevices(1, slog.New(slog.DiscardHandler))}, 1<<20)
	t.Cleanup(tr.close)
	return tr
}

// anything is a descriptor of anything.
func anything() int {
	fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		panic(err)
	}
	return fd
}

// put adds a file.
func (t *tree) put(dir *node, name string, dev, ino uint64, kind uint32) *node {
	st := unix.Stat_t{Dev: dev, Ino: ino, Mode: kind}
	if n := t.seen(dir, name, &st); n != nil {
		return n
	}
	return t.add(dir, name, anything(), &st, nil)
}

func TestPathsFollowNames(t *testing.T) {
	tr := newTestTree(t, false)
	const file, dir = unix.S_IFREG, unix.S_IFDIR
	a := tr.put(tr.root, "a", 1, 10, dir)
	b := tr.put(a, "b", 1, 11, dir)
	f := tr.put(b, "f", 1, 12, file)
	want := func(n *node, path string) {
		t.Helper()
		if got := tr.pathTo(n); got != path {
			t.Errorf("path %q, want %q", got, path)
		}
	}
	want(tr.root, ".")
	want(f, "a/b/f")
	tr.renamed(tr.root, "a", tr.root, "z", false)
	want(f, "z/b/f")
	tr.renamed(a, "b", tr.root, "b", false)
	want(f, "b/f")
	want(b, "b")

	g := tr.put(b, "g", 1, 13, file)
	tr.renamed(b, "f", b, "g", true)
	want(f, "b/g")
	want(g, "b/f")
	tr.renamed(b, "f", b, "g", false) // over f, which loses its name
	want(g, "b/g")
	want(f, "b/g") // the last one it had
	if len(f.names) != 0 {
		t.Errorf("f has %v", f.names)
	}

	tr.linked(g, a, "link")
	want(g, "z/link")
	tr.gone(a, "link")
	want(g, "b/g")
	// Another host has put another file there.
	h := tr.put(b, "g", 1, 14, file)
	want(h, "b/g")
	if len(g.names) != 0 {
		t.Errorf("g has %v", g.names)
	}
	// Another host has moved the directory; the file is found by its new name.
	c := tr.put(tr.root, "c", 1, 15, dir)
	if got := tr.put(c, "moved", 1, 11, dir); got != b {
		t.Error("not the same node")
	}
	want(h, "c/moved/g")
	if got := tr.join(b, "x"); got != "c/moved/x" {
		t.Error(got)
	}
}

func TestNodesAreForgotten(t *testing.T) {
	tr := newTestTree(t, false)
	d := tr.put(tr.root, "d", 1, 10, unix.S_IFDIR)
	f := tr.put(d, "f", 1, 11, unix.S_IFREG)
	tr.put(d, "f", 1, 11, unix.S_IFREG) // twice
	tr.forget(f.id, 1)
	if tr.get(f.id) != f {
		t.Fatal("forgotten too early")
	}
	tr.pin(f)
	tr.forget(f.id, 1)
	if tr.get(f.id) != f {
		t.Fatal("forgotten while pinned")
	}
	tr.forget(d.id, 1) // the directory before the file
	if tr.get(d.id) != nil || len(f.names) != 0 {
		t.Errorf("the directory is known still; the file has %v", f.names)
	}
	tr.unpin(f)
	if tr.get(f.id) != nil || tr.size() != 1 {
		t.Errorf("%d nodes are left", tr.size())
	}
	tr.forget(f.id, 1) // once too often
	tr.forget(rootID, 1)
	if tr.get(rootID) == nil {
		t.Error("the root is gone")
	}
}

func TestANumberThatIsUsedAgain(t *testing.T) {
	tr := newTestTree(t, false)
	f := tr.put(tr.root, "f", 1, 10, unix.S_IFREG)
	d := tr.put(tr.root, "f", 1, 10, unix.S_IFDIR)
	if d == f || tr.get(f.id) != f || tr.get(d.id) != d {
		t.Error("a file and a directory are one node")
	}
	st := unix.Stat_t{Dev: 1, Ino: 10, Mode: unix.S_IFDIR}
	e := tr.add(tr.root, "f", anything(), &st, d)
	if e == d || tr.pathTo(e) != "f" {
		t.Error("a new file is an old node")
	}
	if tr.add(tr.root, "f", anything(), &st, d) != e {
		t.Error("two who find out make two nodes of one file")
	}
	tr.forget(d.id, 1)
	if tr.byKey[e.key] != e {
		t.Error("forgetting the old node took the new one away")
	}
}

func TestFileIDs(t *testing.T) {
	tr := newTestTree(t, false)
	tr.ids.devices.crossed(7, "mnt/sub")
	tr.ids.devices.crossed(8, "mnt/sub2")
	mnt := tr.put(tr.root, "mnt", 1, 10, unix.S_IFDIR)
	sub := tr.put(mnt, "sub", 7, 2, unix.S_IFDIR)
	sub2 := tr.put(mnt, "sub2", 8, 2, unix.S_IFDIR)
	seen := make(map[string]bool)
	for _, c := range []struct {
		n    *node
		want string
	}{
		{tr.root, "i2"}, {mnt, "i10"}, {sub, "dmnt/sub:i2"}, {sub2, "dmnt/sub2:i2"},
		{tr.put(sub, "f", 7, 10, unix.S_IFREG), "dmnt/sub:i10"},
		{tr.put(sub2, "f", 8, 10, unix.S_IFREG), "dmnt/sub2:i10"},
	} {
		got, _ := tr.identify(c.n)
		if got != c.want || seen[got] {
			t.Errorf("%q, want %q", got, c.want)
		}
		seen[got] = true
	}
	numbers := []uint64{tr.ids.devices.ino(1, 10), tr.ids.devices.ino(7, 10), tr.ids.devices.ino(8, 10)}
	if slices.Sort(numbers); len(slices.Compact(numbers)) != 3 || tr.ids.devices.ino(1, 10) != 10 {
		t.Errorf("numbers to show: %v", numbers)
	}
}

func TestFileIDsByPath(t *testing.T) {
	tr := newTestTree(t, true)
	d := tr.put(tr.root, "d", 1, 10, unix.S_IFDIR)
	f := tr.put(d, "f", 1, 11, unix.S_IFREG)
	want := func(n *node, file string) {
		t.Helper()
		if got, _ := tr.identify(n); got != file {
			t.Errorf("%q, want %q", got, file)
		}
	}
	want(f, "pd/f")
	tr.renamed(d, "f", d, "g", false)
	want(f, "pd/f") // as long as it is open
	if ns := tr.ofFile("pd/f"); len(ns) != 1 || ns[0] != f {
		t.Error("not found by its name")
	}
	tr.closed(f)
	want(f, "pd/g")
	if ns := tr.ofFile("pd/f"); len(ns) != 0 {
		t.Error("found by its old name")
	}
}

// The tree must agree with a plain map of paths, whatever happens in whatever
// order, as long as everything comes through this mount.
func TestTreeAgainstAModel(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		tr := newTestTree(t, false)
		model := map[string]modelEntry{".": {tr.root, 2, unix.S_IFDIR}} // by path
		dirs := func() []string {
			var ds []string
			for p, e := range model {
				if e.kind == unix.S_IFDIR {
					ds = append(ds, p)
				}
			}
			slices.Sort(ds)
			return ds
		}
		join := func(d, n string) string {
			if d == "." {
				return n
			}
			return d + "/" + n
		}
		ino := uint64(100)
		for step := range 100 {
			ds := dirs()
			d := ds[rnd.IntN(len(ds))]
			name := string(rune('a' + rnd.IntN(4)))
			path := join(d, name)
			e, ok := model[path]
			switch op := rnd.IntN(6); {
			case op == 0 && !ok:
				ino++
				kind := uint32(unix.S_IFREG)
				if rnd.IntN(2) == 0 && len(ds) < 8 {
					kind = unix.S_IFDIR
				}
				model[path] = modelEntry{tr.put(model[d].n, name, 1, ino, kind), ino, kind}
			case op == 1 && ok: // looked up again
				if got := tr.put(model[d].n, name, 1, e.ino, e.kind); got != e.n {
					t.Fatalf("seed %d step %d: another node", seed, step)
				}
			case op == 2 && ok && e.kind == unix.S_IFREG:
				tr.gone(model[d].n, name)
				delete(model, path)
			case op == 3 && ok && e.kind == unix.S_IFREG: // a hard link
				d2 := ds[rnd.IntN(len(ds))]
				p2 := join(d2, "l")
				if _, ok := model[p2]; !ok {
					tr.linked(e.n, model[d2].n, "l")
					model[p2] = e
				}
			case op >= 4 && ok: // rename, not into itself
				d2 := ds[rnd.IntN(len(ds))]
				p2 := join(d2, string(rune('a'+rnd.IntN(4))))
				if p2 == path || d2 == path || len(d2) > len(path) && d2[:len(path)+1] == path+"/" {
					continue
				}
				if to, ok := model[p2]; ok && (to.kind == unix.S_IFDIR || e.kind == unix.S_IFDIR) || ok && to.n == e.n {
					continue
				}
				tr.renamed(model[d].n, name, model[d2].n, p2[len(p2)-1:], false)
				moved := make(map[string]modelEntry)
				for p, x := range model {
					if p == path || len(p) > len(path) && p[:len(path)+1] == path+"/" {
						delete(model, p)
						moved[p2+p[len(path):]] = x
					}
				}
				for p, x := range moved {
					model[p] = x
				}
			}
			if wrong := tr.differsFrom(model); wrong != "" {
				t.Fatalf("seed %d step %d: %s", seed, step, wrong)
			}
		}
	}
}

// modelEntry is what a path leads to.
type modelEntry struct {
	n    *node
	ino  uint64
	kind uint32
}

// differsFrom says in what the tree is not as a map of paths; "" if it agrees.
func (t *tree) differsFrom(model map[string]modelEntry) string {
	names := make(map[*node]int)
	for p, x := range model {
		names[x.n]++
		if x.n == t.root {
			continue
		}
		found := false
		for _, l := range x.n.names {
			found = found || t.join(l.dir, l.name) == p
		}
		if !found {
			return p + " is not among the names of its node"
		}
		if e := model[t.pathTo(x.n)]; e.n != x.n {
			return fmt.Sprintf("%s is said to be %s", p, t.pathTo(x.n))
		}
	}
	for n, k := range names {
		if n != t.root && len(n.names) != k {
			return fmt.Sprintf("a node has %d names, want %d", len(n.names), k)
		}
	}
	return ""
}

func TestEntriesThatTheKernelWasTold(t *testing.T) {
	var e entries
	if valid, more := e.take(5); len(valid) != 0 || more != 0 {
		t.Errorf("%v %d", valid, more)
	}
	e.told(1, "old", 10, 20)
	e.told(1, "a", 15, 25)
	e.told(2, "b", 16, 26)
	valid, more := e.take(21)
	if fmt.Sprint(valid) != "[{2 b 26} {1 a 25}]" || more != 0 {
		t.Errorf("%v %d", valid, more)
	}
	if valid, _ := e.take(21); len(valid) != 0 {
		t.Errorf("taken twice: %v", valid)
	}
	// More than fit: then the rest has to be waited for.
	for i := range len(e.ring) + 3 {
		e.told(uint64(i), "n", int64(30+i), int64(1000+i))
	}
	valid, more = e.take(900)
	if len(valid) != len(e.ring) || more != 1002 {
		t.Errorf("%d, more until %d", len(valid), more)
	}
	if _, more := e.take(1003); more != 0 {
		t.Errorf("more until %d", more)
	}
	for i := range fewNames {
		if !e.few(2000) {
			t.Errorf("%d are not few", i)
		}
		e.told(1, "n", 2000, 2100)
	}
	if e.few(2099) || !e.few(2100) {
		t.Error("there are as many as may be, until they expire")
	}
}

// All requests wait while anchors are dropped.
func TestFewAnchorsAreWeighedAtOnce(t *testing.T) {
	tr := newTestTree(t, false)
	tr.anchors.most = 600
	for i := range uint64(900) {
		before := tr.anchors.done
		tr.put(tr.root, fmt.Sprint(i), 1, 100+i, unix.S_IFREG)
		if n := tr.anchors.done - before; n > weighBatch {
			t.Fatalf("%d anchors were dropped with one look-up", n)
		}
	}
	if tr.anchors.done == 0 || len(tr.anchors.nodes) > 600 {
		t.Errorf("%d anchors, %d were weighed", len(tr.anchors.nodes), tr.anchors.done)
	}
}

func TestAnchorsAreWeighed(t *testing.T) {
	before := countDescriptors(t)
	tr := newTestTree(t, false)
	tr.anchors.most = 10
	d := tr.put(tr.root, "d", 1, 50, unix.S_IFDIR)
	tr.pin(d)
	nameless := tr.put(tr.root, "x", 1, 51, unix.S_IFREG)
	tr.gone(tr.root, "x")
	var all []*node
	for i := range uint64(100) {
		all = append(all, tr.put(d, fmt.Sprint(i), 1, 100+i, unix.S_IFREG))
	}
	anchored := 0
	for _, n := range all {
		if tr.anchorOf(n) >= 0 {
			anchored++
			if tr.anchors.nodes[n.slot] != n {
				t.Fatal("an anchor is not where it should be")
			}
		}
	}
	if got := len(tr.anchors.nodes); got > 10 || got != anchored+2 || countDescriptors(t)-before != got+1 {
		t.Errorf("%d anchors, %d of files, %d descriptors", got, anchored, countDescriptors(t)-before)
	}
	if tr.anchorOf(d) < 0 || tr.anchorOf(nameless) < 0 {
		t.Error("the anchor of a node was weighed that is pinned, or has no name")
	}
	if tr.size() != 103 || all[0].forgotten {
		t.Errorf("%d nodes", tr.size())
	}
	tr.put(d, "0", 1, 100, unix.S_IFREG) // looked up again: no anchor is needed for that
	tr.forget(all[0].id, 2)
	if tr.get(all[0].id) != nil {
		t.Error("not forgotten")
	}
}
