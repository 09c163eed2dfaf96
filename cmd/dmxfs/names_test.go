package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// nameRounds lets two hosts change names in a directory in turns, under a lock
// file, and after each change the other one must see it, by name and in a
// listing: names N DIR1 DIR2. The hosts look without the lock, too, just
// before: what their clients of the storage keep of that is young then, and of
// the same time on the server as the change.
func nameRounds(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	var hosts [2]*lockedFile
	for i := range hosts {
		hosts[i] = &lockedFile{kind: "flock", kept: true, dir: args[1+i], lock: -1, fd: -1}
	}
	if err := os.Mkdir(filepath.Join(args[1], "names"), 0o755); err != nil {
		return err
	}
	want := map[string]bool{}
	var wrong []string
	for i := range n {
		step := nameSteps[i%len(nameSteps)]
		writer, reader := hosts[i%2], hosts[1-i%2]
		for _, l := range hosts {
			if _, err := namesOf(l.dir); err != nil {
				return err
			}
		}
		if err := writer.with(func() error { return step(filepath.Join(writer.dir, "names"), i, want) }); err != nil {
			return fmt.Errorf("round %d: %w", i, err)
		}
		err := reader.with(func() error {
			got, err := namesOf(reader.dir)
			if err == nil {
				err = sameNames(got, want)
			}
			return err
		})
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("round %d: %v", i, err))
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%d of %d rounds: %s", len(wrong), n, strings.Join(wrong[:min(len(wrong), 5)], "; "))
	}
	return nil
}

// seenNames is what a host sees of a directory: which of the names that there
// can be lead to something, and which are listed.
type seenNames struct{ found, listed []string }

var allNames = []string{"a", "b", "c", "d"}

func namesOf(root string) (s seenNames, err error) {
	dir := filepath.Join(root, "names")
	for _, name := range allNames {
		var st unix.Stat_t
		switch err := unix.Lstat(filepath.Join(dir, name), &st); err {
		case nil:
			s.found = append(s.found, name)
		case unix.ENOENT:
		default:
			return s, fmt.Errorf("lstat %s: %w", name, err)
		}
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		s.listed = append(s.listed, e.Name())
	}
	return s, err
}

func sameNames(got seenNames, want map[string]bool) error {
	var names []string
	for _, n := range allNames {
		if want[n] {
			names = append(names, n)
		}
	}
	if !slices.Equal(got.found, names) {
		return fmt.Errorf("found %v, want %v", got.found, names)
	}
	if !slices.Equal(got.listed, names) {
		return fmt.Errorf("listed %v, want %v", got.listed, names)
	}
	return nil
}

// nameSteps change names in dir, and in want, so that after the last of them
// all is as before the first.
var nameSteps = []func(dir string, i int, want map[string]bool) error{
	func(dir string, i int, want map[string]bool) error {
		want["a"] = true
		return os.WriteFile(filepath.Join(dir, "a"), nil, 0o600)
	},
	func(dir string, i int, want map[string]bool) error {
		want["b"] = true
		return os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "b"))
	},
	func(dir string, i int, want map[string]bool) error {
		want["a"], want["c"] = false, true
		return os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "c"))
	},
	func(dir string, i int, want map[string]bool) error {
		want["d"] = true
		return os.Mkdir(filepath.Join(dir, "d"), 0o700)
	},
	func(dir string, i int, want map[string]bool) error {
		want["b"] = false
		return os.Remove(filepath.Join(dir, "b"))
	},
	func(dir string, i int, want map[string]bool) error {
		want["c"] = false
		return os.Remove(filepath.Join(dir, "c"))
	},
	func(dir string, i int, want map[string]bool) error {
		want["d"] = false
		return os.Remove(filepath.Join(dir, "d"))
	},
}
