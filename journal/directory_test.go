package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestADirectoryBelongsToOneMount(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	o := testOptions()
	j := openDir(t, dir, o)
	j.Append(Record{Event: Note, Reason: "hello"})
	closeNow(t, j)
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", st.Mode(), err)
	}

	expect := func(o Options, target error, words ...string) {
		t.Helper()
		for _, open := range []func(string, Options) (*Journal, error){Open, OpenReadOnly} {
			j, err := open(dir, o)
			if err == nil {
				j.Close()
				t.Errorf("%+v: opened", o)
				continue
			}
			if !errors.Is(err, target) {
				t.Error(err)
			}
			for _, w := range append(words, dir) {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not tell %q", err, w)
				}
			}
		}
	}
	expect(Options{Cluster: "c2", Mount: "/shared"}, ErrOther, "c1", "c2", "another directory", "mv "+dir)
	expect(Options{Cluster: "c1", Mount: "/other"}, ErrOther, "/shared", "/other")

	name := filepath.Join(dir, identityFile)
	old, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	write := func(s string) {
		if err := os.WriteFile(name, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"format":2,"cluster":"c1","mount":"/shared","and":"more"}`)
	expect(o, ErrNewer, "version 2", "newer dmxfs")
	write(`{"format":`)
	expect(o, ErrDamaged, "mv "+dir)
	write(string(old))

	// An empty mount is not compared, and reading asks for nothing.
	j = openDir(t, dir, Options{Cluster: "c1"})
	closeNow(t, j)
	j, err = OpenReadOnly(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if got := find(t, j, Filter{}); len(got) != 1 || got[0].Reason != "hello" {
		t.Errorf("%+v", got)
	}
}

func TestWhatIsNoJournalIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis.tex"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, testOptions()); !errors.Is(err, ErrOther) || !strings.Contains(err.Error(), "thesis.tex") {
		t.Error(err)
	}
	if _, err := OpenReadOnly(dir, testOptions()); !errors.Is(err, ErrNotExist) {
		t.Error(err)
	}
	if _, err := OpenReadOnly(filepath.Join(dir, "none"), testOptions()); !errors.Is(err, ErrNotExist) {
		t.Error(err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 1 {
		t.Errorf("%v", files)
	}
	if _, err := Open(t.TempDir(), Options{}); err == nil {
		t.Error("opened without a cluster")
	}
	for _, o := range []Options{{Cluster: "c", MaxBytes: 1}, {Cluster: "c", MaxBytes: -1}, {Cluster: "c", MaxAge: -1}} {
		if _, err := Open(t.TempDir(), o); err == nil {
			t.Errorf("opened with %+v", o)
		}
	}
}

// childHold holds a journal open.
func childHold(args []string) error {
	j, err := Open(args[0], testOptions())
	if err != nil {
		return err
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return j.Close()
}

func TestASecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	c := startChild(t, nil, "hold", dir)
	c.line(t)
	for _, open := range []func(string, Options) (*Journal, error){Open, OpenReadOnly} {
		_, err := open(dir, testOptions())
		if !errors.Is(err, ErrInUse) || !strings.Contains(fmt.Sprint(err), fmt.Sprint("process ", c.Process.Pid)) {
			t.Errorf("%v (the process is %d)", err, c.Process.Pid)
		}
	}
	// When it is killed, the directory is free at once.
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	c.Wait()
	closeNow(t, openDir(t, dir, testOptions()))
}
