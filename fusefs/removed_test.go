package fusefs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// deletedFiles are names that are gone from the storage, of files that the
// daemon has a descriptor of.
func (m *testMount) deletedFiles() (names []string) {
	m.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", m.cmd.Process.Pid)
	es, err := os.ReadDir(dir)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, e := range es {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		if name, ok := strings.CutSuffix(to, " (deleted)"); err == nil && ok && strings.HasPrefix(name, m.back) {
			names = append(names, filepath.Base(name))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// What another host has removed takes no place any more, unless it is in use.
func TestRemovedFilesAreForgotten(t *testing.T) {
	m := mount(t, func(c *childConfig) { c.RemovedRound = time.Millisecond })
	const many = 3 * removedBatch
	for i := range many {
		writeFile(t, m.path(fmt.Sprint("spool", i)), "text")
	}
	for _, name := range []string{"open", "referred-to", "linked", "replaced", "stays"} {
		writeFile(t, m.path(name), "text of "+name)
	}
	must(t, unix.Link(m.path("linked"), m.path("other-name")))
	open, err := os.Open(m.path("open"))
	must(t, err)
	defer open.Close()
	ref, err := unix.Open(m.path("referred-to"), unix.O_PATH|unix.O_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(ref)

	for i := range many {
		must(t, os.Remove(m.backing(fmt.Sprint("spool", i))))
	}
	for _, name := range []string{"open", "referred-to", "linked", "replaced"} {
		must(t, os.Remove(m.backing(name)))
	}
	writeFile(t, m.backing("replaced"), "the new one")

	await(t, "only files that are in use, or have another name, are held", func() bool {
		return slices.Equal(m.deletedFiles(), []string{"linked", "open", "referred-to"})
	})
	b := make([]byte, 100)
	if n, err := open.Read(b); err != nil || string(b[:n]) != "text of open" {
		t.Errorf("the open file: %q, %v", b[:n], err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(ref, &st); err != nil || st.Nlink != 0 || st.Size != int64(len("text of referred-to")) {
		t.Errorf("the file that is referred to: %d names, %d bytes, %v", st.Nlink, st.Size, err)
	}
	for name, want := range map[string]string{"other-name": "text of linked", "replaced": "the new one", "stays": "text of stays"} {
		if got, err := os.ReadFile(m.path(name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	open.Close()
	unix.Close(ref)
	await(t, "nothing else is held", func() bool { return slices.Equal(m.deletedFiles(), []string{"linked"}) })
}

func TestIdleFiles(t *testing.T) {
	tr := newTestTree(t, false)
	d := tr.put(tr.root, "d", 1, 50, unix.S_IFDIR)
	var want []string
	for i := range uint64(10) {
		n := tr.put(d, fmt.Sprint(i), 1, 100+i, unix.S_IFREG)
		switch i {
		case 3:
			tr.pin(n)
		case 6:
			tr.gone(d, "6")
		default:
			want = append(want, fmt.Sprint(i))
		}
	}
	var got []string
	for hand, rounds := 0, 0; ; rounds++ {
		if rounds > 10 {
			t.Fatal("it has no end")
		}
		var files []*node
		files, hand = tr.idleFiles(hand, 3)
		for _, n := range files {
			got = append(got, n.names[0].name)
			if n.pins != 1 {
				t.Errorf("%s is not pinned", n.names[0].name)
			}
			tr.unpin(n)
		}
		if len(files) < 3 {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
