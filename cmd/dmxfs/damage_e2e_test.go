package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The storage cannot take what was written under a lock, and the client says so
// when the lock is handed over. The program that wrote is told by its next
// write, and the next holder instead of the lock, once each.
func TestDamagedDataIsNotHandedOverWithoutAWord(t *testing.T) {
	t.Parallel()
	c := newClientCluster(t, clientKinds[0], 2)
	a, b := c.mounts[0], c.mounts[1]
	gate, says := filepath.Join(c.dir, "gate"), filepath.Join(c.dir, "says")
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, says, "")
	told := a.helper("told", says, gate)
	await(t, "it has written", func() bool { return read(t, says) == "written\n" })
	write(t, c.src+".fails", "data")
	write(t, gate, "x\n")
	await(t, "it has unlocked", func() bool { return read(t, says) == "unlocked\n" })
	for i, want := range []bool{false, true, true} {
		out, code := b.start("exec 9>>lock; flock 9").wait()
		if (code == 0) != want || !want && !strings.Contains(out, "nput/output error") {
			t.Errorf("holder %d on the other host: %d %q", i, code, out)
		}
	}
	if err := os.Remove(c.src + ".fails"); err != nil {
		t.Fatal(err)
	}
	write(t, gate, "x\n")
	if out, code := told.wait(); code != 0 {
		t.Errorf("the program that wrote: %d %q", code, out)
	}
	for m, text := range map[*testMount]string{a: "no space left", b: "is told (EIO)"} {
		// Without the path, which b may not know yet when it is told.
		rows := m.journal("--event", "note")
		found := 0
		for _, r := range rows {
			if strings.Contains(r.Reason, text) {
				found++
			}
		}
		if found != 1 {
			t.Errorf("the journal of %s: %+v", m.dir, rows)
		}
		s, err := m.status()
		if err != nil || s.Healthy || !strings.Contains(strings.Join(s.Problems, " "), text) {
			t.Errorf("the status of %s: %+v %v", m.dir, s, err)
		}
	}
}

// toldLater writes data under a lock on another file, gives up the lock, and
// succeeds if it is told then, once, that the data is lost. A shell could not do
// that: it closes copies of its descriptors all the time.
func toldLater(says, gate string) error {
	step := func(what string) error {
		if err := os.WriteFile(says, []byte(what+"\n"), 0o644); err != nil {
			return err
		}
		_, err := os.ReadFile(gate)
		return err
	}
	lock, err := os.OpenFile("lock", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	if err := retry(func() error { return unix.Flock(int(lock.Fd()), unix.LOCK_EX) }); err != nil {
		return err
	}
	data, err := os.OpenFile("data", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	if _, err := data.WriteString("one"); err != nil {
		return err
	}
	if err := step("written"); err != nil {
		return err
	}
	if err := retry(func() error { return unix.Flock(int(lock.Fd()), unix.LOCK_UN) }); err != nil {
		return err
	}
	if err := step("unlocked"); err != nil {
		return err
	}
	if _, err := data.WriteString("two"); !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("the next write: %v", err)
	}
	if _, err := data.WriteString("three"); err != nil {
		return fmt.Errorf("the one after it: %w", err)
	}
	return data.Close()
}
