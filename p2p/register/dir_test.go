package register

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

var testLook = member.LookOp{}

func TestLinkDecidesOnce(t *testing.T) {
	dir := t.TempDir()
	a, b := founded(t, dir, "a"), founded(t, dir, "b")
	mustLink(t, a, 1)
	v, file := testView(b, 1, "b")
	if err := b.Link(v, file); !errors.Is(err, member.ErrExists) {
		t.Fatalf("second link: %v, want %v", err, member.ErrExists)
	}
	l := mustLook(t, b, testLook)
	if l.Newest != 1 || l.View == nil || l.View.By.Peer != "a" {
		t.Errorf("look %v, want the view of a", l)
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("left behind once the outcome is known: %v", left)
	}
}

func TestLinkRace(t *testing.T) {
	dir := t.TempDir()
	const n, epochs = 8, 20
	var nodes []*Dir
	for i := range n {
		nodes = append(nodes, founded(t, dir, "peer"+string(rune('a'+i))))
	}
	for e := locks.Epoch(1); e <= epochs; e++ {
		won := make([]bool, n)
		var wg sync.WaitGroup
		for i, d := range nodes {
			wg.Go(func() {
				v, file := testView(d, e, d.peer)
				err := d.Link(v, file)
				won[i] = err == nil
				if err != nil && !errors.Is(err, member.ErrExists) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		winner := slices.Index(won, true)
		if winner < 0 || slices.Contains(won[winner+1:], true) {
			t.Fatalf("epoch %d: winners %v, want one", e, won)
		}
		for _, d := range nodes {
			if l := mustLook(t, d, member.LookOp{Known: e - 1}); l.View == nil || l.View.By.Peer != nodes[winner].peer {
				t.Fatalf("epoch %d: %s sees %v, the winner is %s", e, d.peer, l, nodes[winner].peer)
			}
		}
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A reply is lost, or comes as an error: the same link, tried again, must not
// write to what may be the view by now.
func TestLinkAgainAfterAnError(t *testing.T) {
	dir := t.TempDir()
	d := founded(t, dir, "a")
	d.link = func(dirf *os.File, from, to string) error {
		if err := linkIn(dirf, from, to); err != nil {
			return err
		}
		return unix.EIO // it was done all the same
	}
	v, file := testView(d, 1, "a")
	if err := d.Link(v, file); err == nil || errors.Is(err, member.ErrExists) {
		t.Fatalf("error %v, want an input/output error", err)
	}
	path := filepath.Join(dir, viewsDir, member.ViewName(1))
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Link(v, file); !errors.Is(err, member.ErrExists) {
		t.Fatalf("error %v, want %v", err, member.ErrExists)
	}
	after, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(before, after) || before.ModTime() != after.ModTime() {
		t.Error("the view was written again")
	}
	if l := mustLook(t, d, testLook); l.View == nil || l.View.Nonce != v.Nonce {
		t.Errorf("look %v, want the view", l)
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestLinkWhoseSourceWasRemoved(t *testing.T) {
	dir := t.TempDir()
	d := founded(t, dir, "a")
	fails := true
	d.link = func(dirf *os.File, from, to string) error {
		if fails {
			return unix.EIO
		}
		return linkIn(dirf, from, to)
	}
	v, file := testView(d, 1, "a")
	if err := d.Link(v, file); err == nil {
		t.Fatal("no error")
	}
	for _, path := range leftovers(t, dir) {
		os.Remove(path)
	}
	fails = false
	if err := d.Link(v, file); err == nil {
		t.Fatal("linked what is not there")
	}
	if err := d.Link(v, file); err != nil {
		t.Errorf("after the source was written again: %v", err)
	}
}

func TestLookReadsOnlyWhatIsNew(t *testing.T) {
	dir := t.TempDir()
	d := founded(t, dir, "a")
	for e := locks.Epoch(1); e <= 3; e++ {
		mustLink(t, d, e)
	}
	for _, c := range []struct {
		known, view locks.Epoch
		listed      bool
	}{{0, 3, false}, {2, 3, true}, {3, 0, true}, {7, 0, false}} {
		l := mustLook(t, d, member.LookOp{Known: c.known})
		got := locks.Epoch(0)
		if l.View != nil {
			got = l.View.Epoch
		}
		if l.Newest != 3 || got != c.view || l.Known != c.listed || l.Bad != nil {
			t.Errorf("known %d: look %v; want newest 3, view %d, listed %v", c.known, l, c.view, c.listed)
		}
	}
}

func TestLookTellsWhyAViewIsBad(t *testing.T) {
	for _, c := range []struct {
		name    string
		content func(file []byte) []byte
		want    error
	}{
		{"empty", func([]byte) []byte { return nil }, member.ErrUnreadable},
		{"cut short", func(f []byte) []byte { return f[:len(f)-5] }, member.ErrUnreadable},
		{"one bit", func(f []byte) []byte { f[len(f)/2] ^= 1; return f }, member.ErrUnreadable},
		{"zeros", func(f []byte) []byte { return make([]byte, len(f)) }, member.ErrUnreadable},
		{"too long", func(f []byte) []byte { return make([]byte, member.MaxViewSize+1) }, member.ErrUnreadable},
		{"newer", func([]byte) []byte { return []byte("dmxfs-view 2 something\n") }, member.ErrNewer},
		{"foreign", func(f []byte) []byte {
			other := &Dir{views: &views{}}
			other.ofCluster(strings.Repeat("f", 32))
			v, _ := testView(other, 2, "x")
			b, _ := member.EncodeView(v)
			return b
		}, member.ErrForeign},
		{"another epoch", func(f []byte) []byte { return nil }, member.ErrUnreadable},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			d := founded(t, dir, "a")
			mustLink(t, d, 1)
			_, file := testView(d, 2, "a")
			if c.name == "another epoch" {
				_, file = testView(d, 5, "a")
			} else {
				file = c.content(file)
			}
			os.WriteFile(filepath.Join(dir, viewsDir, member.ViewName(2)), file, 0o600)
			l := mustLook(t, d, testLook)
			if l.Newest != 2 || !errors.Is(l.Bad, c.want) {
				t.Errorf("look %v, want newest 2 and %v", l, c.want)
			}
			if l.View == nil || l.View.Epoch != 1 {
				t.Errorf("look %v, want view 1 with it", l)
			}
		})
	}
}

func TestLookIsNotHeldUpByOddFiles(t *testing.T) {
	dir := t.TempDir()
	d := founded(t, dir, "a")
	mustLink(t, d, 1)
	views := filepath.Join(dir, viewsDir)
	for _, name := range []string{"ask-pipe", "answer-me-pipe"} {
		if err := unix.Mkfifo(filepath.Join(views, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	os.Symlink("/etc/passwd", filepath.Join(views, "ask-link"))
	os.WriteFile(filepath.Join(views, "ask-junk"), []byte("{"), 0o600)
	os.WriteFile(filepath.Join(views, "99999999999999999999"), []byte("junk"), 0o600)
	os.WriteFile(filepath.Join(views, member.ViewName(member.MaxEpoch+1)), []byte("junk"), 0o600)
	l := mustLook(t, d, member.LookOp{Asks: true, For: member.Node{Peer: "me", Inc: 1}})
	if l.Newest != 1 || len(l.Asks) != 0 || len(l.Answers) != 0 {
		t.Errorf("look %v, want view 1 and nothing else", l)
	}
	os.Remove(filepath.Join(views, member.ViewName(1)))
	if err := unix.Mkfifo(filepath.Join(views, member.ViewName(1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := d.Look(testLook); err == nil {
		t.Errorf("look %v at a pipe as a view, want an error", l)
	}
}

func TestLookWhereEverythingIsGone(t *testing.T) {
	dir := t.TempDir()
	d := founded(t, dir, "a")
	mustLink(t, d, 1)
	os.RemoveAll(filepath.Join(dir, Name))
	if l := mustLook(t, d, member.LookOp{Known: 1}); l.Newest != 0 || l.Known {
		t.Errorf("look %v, want nothing", l)
	}
}

func TestAskAndAnswer(t *testing.T) {
	dir := t.TempDir()
	a, b := founded(t, dir, "a"), founded(t, dir, "b")
	me, you := member.Node{Peer: "b", Inc: 5}, member.Node{Peer: "a", Inc: 7}
	ask := member.Challenge{Node: me, Host: "hb", Addrs: []string{"/x"}, Base: 3, Nonce: 99}
	if err := b.Ask(ask); err != nil {
		t.Fatal(err)
	}
	l := mustLook(t, a, member.LookOp{Asks: true})
	if len(l.Asks) != 1 || l.Asks[0].Node != me || l.Asks[0].Nonce != 99 || l.Asks[0].Base != 3 {
		t.Fatalf("look %v, want the ask", l)
	}
	if l := mustLook(t, a, testLook); len(l.Asks) != 0 {
		t.Errorf("look %v, asks were not asked for", l)
	}
	answer := member.Answer{To: me, Nonce: 99, Node: you, Host: "ha", Epoch: 3,
		Tried: []member.Tried{{Addr: "/x", Error: strings.Repeat("no route to host ", 100)}}}
	if err := a.Answer(answer); err != nil {
		t.Fatal(err)
	}
	l = mustLook(t, b, member.LookOp{For: me})
	if len(l.Answers) != 1 || l.Answers[0].Node != you || len(l.Answers[0].Tried) != 1 {
		t.Fatalf("look %v, want the answer", l)
	}
	if l := mustLook(t, b, member.LookOp{For: member.Node{Peer: "b", Inc: 6}}); len(l.Answers) != 0 {
		t.Errorf("look %v: an answer to another incarnation", l)
	}
	if err := b.Unask(member.UnaskOp{Node: me}); err != nil {
		t.Fatal(err)
	}
	// One who answers too late leaves nothing behind.
	if err := a.Answer(answer); err != nil {
		t.Fatal(err)
	}
	for _, name := range list(t, filepath.Join(dir, viewsDir)) {
		t.Errorf("%s is left", name)
	}
}

func TestPrune(t *testing.T) {
	dir := t.TempDir()
	d := founded(t, dir, "a")
	for e := locks.Epoch(1); e <= 6; e++ {
		mustLink(t, d, e)
	}
	views, peers := filepath.Join(dir, viewsDir), filepath.Join(dir, peersDir)
	old := map[string]time.Duration{
		views + "/ask-x":             askAge,
		views + "/answer-x-y":        askAge,
		views + "/new-x-1":           newAge,
		views + "/README":            1000 * time.Hour,
		peers + "/x":                 recordAge,
		peers + "/new-x-1":           newAge,
		views + "/000000000000000x1": 1000 * time.Hour,
	}
	write := func(path string, age time.Duration) {
		os.WriteFile(path, nil, 0o600)
		at := time.Now().Add(-age)
		os.Chtimes(path, at, at)
	}
	for path, age := range old {
		write(path+"fresh", age-time.Minute)
		write(path+"old", age+time.Minute)
	}
	write(peers+"/a", 2*recordAge) // this node's own
	if err := d.Prune(4); err != nil {
		t.Fatal(err)
	}
	exists := func(path string) bool { _, err := os.Lstat(path); return err == nil }
	for e := locks.Epoch(1); e <= 6; e++ {
		if got := exists(filepath.Join(views, member.ViewName(e))); got != (e >= 4) {
			t.Errorf("view %d is there: %v", e, got)
		}
	}
	for path, age := range old {
		if !exists(path + "fresh") {
			t.Errorf("%sfresh was removed", path)
		}
		if mine := age < 1000*time.Hour; exists(path+"old") == mine {
			t.Errorf("%sold: removed %v, want %v", path, !mine, mine)
		}
	}
	if !exists(peers + "/a") {
		t.Error("the own record was removed")
	}
	if err := d.Prune(100); err != nil {
		t.Fatal(err)
	}
	if l := mustLook(t, d, testLook); l.Newest != 6 {
		t.Errorf("newest %d, want 6: the newest view is never removed", l.Newest)
	}
}

// In a sticky directory everybody removes what is his own, and what is not his is
// no fault.
func TestPruneAmongUsers(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, os.ModeSticky|0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	d := founded(t, dir, "a")
	mustLink(t, d, 1)
	b := newDir(t, dir, "b")
	b.ofCluster(d.clusterID())
	asUser(t, 65534, func() {
		mustLink(t, b, 2)
		mustLink(t, b, 3)
		if err := b.Prune(3); err != nil {
			t.Errorf("prune by another user: %v", err)
		}
	})
	left, err := filepath.Glob(filepath.Join(dir, viewsDir, "0*"))
	if err != nil || len(left) != 2 {
		t.Errorf("%q are left, %v: want the view of the other user, and the last", left, err)
	}
	if err := d.Prune(3); err != nil {
		t.Fatal(err)
	}
	// Where no other user is the reason it is one.
	if err := os.Chmod(filepath.Join(dir, viewsDir), 0o755); err != nil {
		t.Fatal(err)
	}
	mustLink(t, d, 4)
	asUser(t, 65534, func() {
		if err := b.Prune(4); !errors.Is(err, ErrPermission) {
			t.Errorf("prune of a directory that cannot be written: %v", err)
		}
	})
}

func TestRecords(t *testing.T) {
	dir := t.TempDir()
	a, b := founded(t, dir, "a"), founded(t, dir, "b")
	for _, x := range []struct {
		d    *Dir
		data string
	}{{a, "one"}, {a, "two"}, {b, "three"}} {
		if err := x.d.WriteRecord([]byte(x.data)); err != nil {
			t.Fatal(err)
		}
	}
	os.WriteFile(filepath.Join(dir, peersDir, "big"), make([]byte, maxRecord+1), 0o600)
	got, err := b.Records()
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || string(got["a"]) != "two" || string(got["b"]) != "three" {
		t.Errorf("records %q", got)
	}
	if err := a.WriteRecord(make([]byte, maxRecord+1)); err == nil {
		t.Error("a record that nobody would read was written")
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// The mount may cover the path: nothing may go by it.
func TestAccessIsByDescriptor(t *testing.T) {
	inNamespace(t, func() {
		dir := t.TempDir()
		d := founded(t, dir, "a")
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
			t.Error(err)
			return
		}
		mustLink(t, d, 1)
		if err := d.WriteRecord([]byte("x")); err != nil {
			t.Error(err)
		}
		if l := mustLook(t, d, testLook); l.Newest != 1 {
			t.Errorf("newest %d, want 1", l.Newest)
		}
		if names := list(t, dir); len(names) != 0 {
			t.Errorf("%v was written to what covers the path", names)
		}
	})
}

// A look must see what another client did, though this one has looked before.
func TestLookOpensTheDirectoryAnew(t *testing.T) {
	dir := t.TempDir()
	d := founded(t, dir, "a")
	mustLook(t, d, testLook)
	views := filepath.Join(dir, viewsDir)
	os.Rename(views, views+"-old")
	os.Mkdir(views, 0o700)
	_, file := testView(d, 9, "b")
	os.WriteFile(filepath.Join(views, member.ViewName(9)), file, 0o600)
	if l := mustLook(t, d, testLook); l.Newest != 9 {
		t.Errorf("newest %d, want 9: a kept descriptor was read", l.Newest)
	}
}

func TestDoReadsTheClockFirst(t *testing.T) {
	d := founded(t, t.TempDir(), "a")
	clock := int64(41)
	now := func() int64 { clock++; return clock }
	done := Do(d, member.LookOp{}, now)
	if done.Look.Began != 42 || done.Err != nil {
		t.Errorf("%v, want began 42", done)
	}
	v, file := testView(d, 1, "a")
	for _, want := range []error{nil, member.ErrExists} {
		if done := Do(d, member.LinkOp{View: v, File: file}, now); !errors.Is(done.Err, want) {
			t.Errorf("link: %v, want %v", done.Err, want)
		}
	}
}
