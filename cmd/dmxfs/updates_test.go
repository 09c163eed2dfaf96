package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// runAppends lets procs programs on each mount append to one file, n times
// each, at the end that they find under the lock: no line may be lost, be
// written over, or come after a hole.
func runAppends(t *testing.T, c *testCluster, procs, n int) {
	for _, how := range []string{"fstat flock kept self", "fstat flock anew self", "fstat fcntl kept lockfile", "fstat ofd anew lockfile",
		"stat flock kept lockfile", "seek fcntl anew self", "seek ofd kept self", "append flock kept self", "append fcntl anew lockfile"} {
		part(t, how, func(t *testing.T) {
			name := strings.ReplaceAll(how, " ", "-")
			write(t, c.mounts[0].path(name), "")
			runUpdates(t, c, procs, func(tag string) []string {
				return append(strings.Fields(how), name, tag, strconv.Itoa(n))
			})
			for _, m := range c.mounts {
				if err := checkAppended(read(t, m.path(name)), len(c.mounts)*procs, n); err != nil {
					t.Errorf("%s: %v", m.dir, err)
				}
			}
		})
	}
}

// runReplacements lets procs programs on each mount count in a file that each
// of them replaces by a new one, n times, under a lock file.
func runReplacements(t *testing.T, c *testCluster, procs, n int) {
	for _, how := range []string{"rename flock kept lockfile", "rename fcntl anew lockfile", "rename ofd kept lockfile"} {
		part(t, how, func(t *testing.T) {
			name := strings.ReplaceAll(how, " ", "-")
			write(t, c.mounts[0].path(name), "0")
			runUpdates(t, c, procs, func(tag string) []string {
				return append(strings.Fields(how), name, tag, strconv.Itoa(n))
			})
			want := strconv.Itoa(len(c.mounts) * procs * n)
			for _, m := range c.mounts {
				if got := strings.TrimRight(read(t, m.path(name)), "."); got != want {
					t.Errorf("%s says %s, want %s", m.dir, got, want)
				}
			}
		})
	}
}

// runUpdates runs the helper update procs times on each mount, each with a tag
// of its own.
func runUpdates(t *testing.T, c *testCluster, procs int, args func(tag string) []string) {
	t.Helper()
	var ps []*proc
	for i, m := range c.mounts {
		for k := range procs {
			ps = append(ps, m.helper("update", args(fmt.Sprintf("%c%d", 'a'+i, k))...))
		}
	}
	for _, p := range ps {
		if out, code := p.wait(); code != 0 {
			t.Errorf("exit code %d: %s", code, out)
		}
	}
}

// checkAppended looks for n lines of each of procs programs, in their order.
func checkAppended(text string, procs, n int) error {
	next := map[string]int{}
	for line := range strings.Lines(text) {
		var tag string
		var i int
		if k, _ := fmt.Sscanf(line, "%s %d\n", &tag, &i); k != 2 || line != appended(tag, i) {
			return fmt.Errorf("a line is %q", line)
		}
		if i != next[tag] {
			return fmt.Errorf("line %d of %s comes where %d should be", i, tag, next[tag])
		}
		next[tag]++
	}
	for tag, k := range next {
		if k != n {
			return fmt.Errorf("%d lines of %s, want %d", k, tag, n)
		}
	}
	if len(next) != procs {
		return fmt.Errorf("lines of %d programs, want %d", len(next), procs)
	}
	return nil
}

func appended(tag string, i int) string { return fmt.Sprintf("%s %05d\n", tag, i) }

// update changes a file again and again, each time under a lock:
// update fstat|stat|seek|append|rename flock|fcntl|ofd kept|anew self|lockfile NAME TAG TIMES.
func update(args []string) error {
	how, name, tag := args[0], args[4], args[5]
	n, err := strconv.Atoi(args[6])
	if err != nil {
		return err
	}
	l := &lockedFile{kind: args[1], kept: args[2] == "kept", own: args[3] == "self", dir: ".", lock: -1, fd: -1}
	if how != "rename" {
		l.file = name
	}
	for i := range n {
		err := l.with(func() error {
			if how == "rename" {
				return countByRename(name, tag)
			}
			return appendAtEnd(how, l.fd, name, appended(tag, i))
		})
		if err != nil {
			return fmt.Errorf("%s %d: %w", tag, i, err)
		}
	}
	return nil
}

// appendAtEnd writes a line to where the file ends: as fstat(2), stat(2) of its
// name or lseek(2) says, or as the kernel knows.
func appendAtEnd(how string, fd int, name, line string) (err error) {
	var st unix.Stat_t
	switch how {
	case "fstat":
		err = unix.Fstat(fd, &st)
	case "stat":
		err = unix.Stat(name, &st)
	case "seek":
		st.Size, err = unix.Seek(fd, 0, unix.SEEK_END)
	case "append":
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_APPEND); err != nil {
			return err
		}
		return retry(func() error { _, err := unix.Write(fd, []byte(line)); return err })
	}
	if err != nil {
		return fmt.Errorf("the size: %w", err)
	}
	return retry(func() error { _, err := unix.Pwrite(fd, []byte(line), st.Size); return err })
}

// countByRename puts a file in the place of the one of this name, with a number
// that is greater by one.
func countByRename(name, tag string) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	v, err := strconv.Atoi(strings.TrimRight(string(b), "."))
	if err != nil {
		return fmt.Errorf("the file says %q: %w", b, err)
	}
	if st, err := os.Stat(name); err != nil || st.Size() != int64(len(b)) {
		return fmt.Errorf("of the file that says %q, but stat: %v, %v", b, st, err)
	}
	// Each file has another size than the one before it.
	text := strconv.Itoa(v+1) + strings.Repeat(".", (v+1)%7)
	if err := os.WriteFile(name+"-"+tag, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(name+"-"+tag, name)
}

// part is t.Run, and says when the part is done and how long it took: with -v
// that is the progress of a long test. (The lines of go test itself come when
// all parts are over.)
func part(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		began := time.Now()
		t.Cleanup(func() {
			verdict := "right"
			if t.Failed() {
				verdict = "FAILED"
			}
			t.Logf("%s: %s after %v", t.Name(), verdict, time.Since(began).Round(time.Millisecond))
		})
		f(t)
	})
}
