package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// modelledNames is a directory of which it is known what is in it: names and what they
// lead to, as entryOf has it.
type modelledNames struct {
	w   *outliver
	dir string
	is  map[string]string
	n   int
}

// changesNames makes, renames, links and removes names of a directory of which nobody else
// knows.
func (w *outliver) changesNames() func() error {
	m := &modelledNames{w: w, dir: filepath.Join(w.dir, w.who), is: map[string]string{}}
	begun := false
	return func() error {
		if !begun {
			begun = true
			for {
				err := os.Mkdir(m.dir, 0o755)
				if err == nil {
					break
				}
				if !w.doubts(err, "make", m.dir) {
					return err
				}
				if err := w.removes(m.dir); err != nil {
					return err
				}
			}
		}
		return m.step()
	}
}

// entryOf is what a name leads to.
func entryOf(path string) (string, error) {
	st, err := os.Lstat(path)
	switch {
	case err != nil:
		return "", err
	case st.IsDir():
		return "directory", nil
	case st.Mode()&os.ModeSymlink != 0:
		to, err := os.Readlink(path)
		return "link to " + to, err
	}
	b, err := os.ReadFile(path)
	return fmt.Sprintf("file %s, mode %o", b, st.Mode().Perm()), err
}

// looks is the directory as it is.
func (m *modelledNames) looks() (map[string]string, error) {
	list, err := os.ReadDir(m.dir)
	if err != nil {
		return nil, err
	}
	is := map[string]string{}
	for _, e := range list {
		if is[e.Name()], err = entryOf(filepath.Join(m.dir, e.Name())); err != nil {
			return nil, fmt.Errorf("%s, which is listed: %w", e.Name(), err)
		}
	}
	return is, nil
}

// step makes a call of which it is known what it should do.
func (m *modelledNames) step() error {
	m.n++
	a, b := fmt.Sprintf("n%d", m.w.r.IntN(7)), fmt.Sprintf("n%d", m.w.r.IntN(7))
	at := func(name string) string { return filepath.Join(m.dir, name) }
	ops := []func() error{
		func() error { return m.makesFile(a) },
		func() error {
			return m.call("mkdir", a, m.absent(a), func() error { return os.Mkdir(at(a), 0o755) }, map[string]string{a: "directory"})
		},
		func() error {
			to := fmt.Sprint("to-", m.n)
			return m.call("symlink", a, m.absent(a), func() error { return os.Symlink(to, at(a)) }, map[string]string{a: "link to " + to})
		},
		func() error {
			want := m.absent(b)
			switch old := m.is[a]; {
			case old == "":
				want = unix.ENOENT
			case old == "directory":
				want = errors.Join(want, unix.EPERM)
			}
			return m.call("link", b, want, func() error { return unix.Linkat(unix.AT_FDCWD, at(a), unix.AT_FDCWD, at(b), 0) }, map[string]string{b: m.is[a]})
		},
		func() error { return m.renames(a, b) },
		func() error {
			want := m.present(a)
			if m.is[a] == "directory" {
				want = unix.EISDIR
			}
			return m.call("unlink", a, want, func() error { return unix.Unlink(at(a)) }, map[string]string{a: ""})
		},
		func() error {
			want := m.present(a)
			if want == nil && m.is[a] != "directory" {
				want = unix.ENOTDIR
			}
			return m.call("rmdir", a, want, func() error { return unix.Rmdir(at(a)) }, map[string]string{a: ""})
		},
		func() error { return m.same(m.is) },
	}
	return ops[m.w.r.IntN(len(ops))]()
}

func (m *modelledNames) absent(name string) error {
	if m.is[name] != "" {
		return unix.EEXIST
	}
	return nil
}

func (m *modelledNames) present(name string) error {
	if m.is[name] == "" {
		return unix.ENOENT
	}
	return nil
}

// makesFile makes a file, and writes to it.
func (m *modelledNames) makesFile(a string) error {
	path, fd := filepath.Join(m.dir, a), -1
	make := func() (err error) {
		fd, err = unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644)
		return err
	}
	err := m.call("make", a, m.absent(a), make, map[string]string{a: "file , mode 644"})
	if err != nil || fd < 0 {
		return err
	}
	text, mode := fmt.Sprint(m.n), uint32(0o600+m.n%8)
	err = retry(func() error { _, err := unix.Write(fd, []byte(text)); return err })
	if err == nil {
		err = retry(func() error { return unix.Fchmod(fd, mode) })
	}
	m.is[a] = fmt.Sprintf("file %s, mode %o", text, mode)
	return errors.Join(err, unix.Close(fd))
}

func (m *modelledNames) renames(a, b string) error {
	want, after := m.present(a), map[string]string{a: "", b: m.is[a]}
	from, to := m.is[a] == "directory", m.is[b] == "directory"
	switch {
	case want != nil || a == b:
		after = nil
	case from && !to && m.is[b] != "":
		want = unix.ENOTDIR
	case !from && to:
		want = unix.EISDIR
	}
	// Two names of one file stay as they are.
	if want == nil && a != b && !from && m.is[b] != "" && m.sameFile(a, b) {
		after = nil
	}
	return m.call("rename", b, want, func() error {
		return unix.Rename(filepath.Join(m.dir, a), filepath.Join(m.dir, b))
	}, after)
}

func (m *modelledNames) sameFile(a, b string) bool {
	x, err := os.Lstat(filepath.Join(m.dir, a))
	y, err2 := os.Lstat(filepath.Join(m.dir, b))
	return err == nil && err2 == nil && os.SameFile(x, y)
}

// call makes a call that should fail with want, or else put after in its place.
func (m *modelledNames) call(what, name string, want error, f func() error, after map[string]string) error {
	err := retry(f)
	next := maps.Clone(m.is)
	for k, v := range after {
		if next[k] = v; v == "" {
			delete(next, k)
		}
	}
	switch {
	case err == nil && want == nil:
		m.is = next
		return nil
	case m.w.doubts(err, what, filepath.Join(m.dir, name)):
		if m.same(m.is) == nil {
			return nil
		}
		m.is = next
		return m.same(m.is)
	case err != nil && want != nil && errors.Is(want, firstErrno(err)):
		return nil
	}
	return fmt.Errorf("%s %s, where there is %v: WRONG OUTCOME: %v, want %v", what, name, m.is, err, want)
}

func firstErrno(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// same compares the directory with what should be there.
func (m *modelledNames) same(want map[string]string) error {
	is, err := m.looks()
	if err != nil {
		return err
	}
	for _, name := range append(slices.Sorted(maps.Keys(is)), slices.Sorted(maps.Keys(want))...) {
		if is[name] != want[name] {
			return fmt.Errorf("WRONG NAMES: %s is %q, want %q", name, is[name], want[name])
		}
	}
	return nil
}
