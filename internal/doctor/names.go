package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Checks of names: who may make them, and what files are called.

// links: views are decided by link(2).
func (d *doctor) links() error {
	if err := d.write("linked", "x"); err != nil {
		return err
	}
	r, err := d.do(d.here, order{Op: "link", Name: "linked", To: "linked-too"})
	if err != nil {
		return err
	}
	if err := r.err(); err != nil {
		d.found(ResultBad, "link", "the storage has no hard links (link(2): %v): dmxfs decides by link(2) who is a member, and cannot be used", err)
		return nil
	}
	twice, made, err := d.race("race-link", "link")
	var failed *raceError
	switch {
	case errors.As(err, &failed):
		d.found(ResultBad, "link", "making links at the same time failed: %v", err)
	case err != nil:
		return err
	case len(twice) > 0:
		d.found(ResultBad, "link", "of 100 names that both linked, both were told that they made %d: link(2) is not atomic, and dmxfs cannot be used: two hosts could both believe to have a lock", len(twice))
	default:
		d.found(ResultOK, "link", "of 100 names, each was linked by one side only (%s)", made)
	}
	return nil
}

func (d *doctor) excl() error {
	twice, made, err := d.race("race-excl", "excl")
	var failed *raceError
	switch {
	case errors.As(err, &failed):
		d.found(ResultBad, "O_EXCL", "making files at the same time failed: %v", err)
	case err != nil:
		return err
	case len(twice) > 0:
		d.found(ResultNote, "O_EXCL", "of 100 names that both made with O_EXCL, both were told that they made %d: lock files (dotfiles, git's index.lock) do not keep hosts apart on this storage, and dmxfs cannot change that", len(twice))
	default:
		d.found(ResultOK, "O_EXCL", "of 100 names, each was made by one side only (%s)", made)
	}
	return nil
}

// raceError is that of the storage in a race.
type raceError struct{ error }

// race has both sides try to make the same names at the same time: which both
// believe to have made, and how many each has, in words.
func (d *doctor) race(op, name string) (twice []string, made string, err error) {
	const names = 100
	if err := d.there.give(&order{Op: op, Name: name, To: name + "-there", Count: names}); err != nil {
		return nil, "", err
	}
	r, err := d.do(d.here, order{Op: op, Name: name, To: name + "-here", Count: names})
	if err != nil {
		return nil, "", err
	}
	p, err := d.there.report(d.ctx)
	if err != nil {
		return nil, "", err
	}
	if err := cmp.Or(r.err(), p.err()); err != nil {
		return nil, "", &raceError{err}
	}
	if len(r.Names)+len(p.Names) < names {
		return nil, "", &raceError{fmt.Errorf("%d of %d names were made by nobody", names-len(r.Names)-len(p.Names), names)}
	}
	made = fmt.Sprintf("%d here, %d there", len(r.Names), len(p.Names))
	if odd := cmp.Or(r.Data, p.Data); odd != "" {
		made += fmt.Sprintf("; what exists is refused with %q instead of EEXIST, which can confuse programs", odd)
	}
	return both(r.Names, p.Names), made, nil
}

// both is what is in a and in b.
func both(a, b []string) (out []string) {
	for _, n := range a {
		if slices.Contains(b, n) {
			out = append(out, n)
		}
	}
	return out
}

func (d *doctor) renames() error {
	const rounds = 50
	if err := d.write("renamed", "version 000"); err != nil {
		return err
	}
	if err := d.shown(order{Op: "read", Name: "renamed"}); err != nil {
		return err
	}
	if err := d.there.give(&order{Op: "read-often", Name: "renamed", Count: 10 * rounds}); err != nil {
		return err
	}
	failed := func() error {
		for i := range rounds {
			if err := d.write("renaming", fmt.Sprintf("version %03d", i+1)); err != nil {
				return err
			}
			if _, err := d.must(d.here, order{Op: "rename", Name: "renaming", To: "renamed"}); err != nil {
				return err
			}
		}
		return nil
	}()
	r, err := d.there.report(d.ctx)
	switch {
	case err != nil:
		return err
	case failed != nil:
		return failed
	case r.Count > 0:
		d.found(ResultNote, "rename", "while a file was replaced by rename here, %d of %d reads there failed or saw neither the old nor the new one (the last: %s): programs that replace files so need a lock around it", r.Count, r.Size, r.Data)
	default:
		d.found(ResultOK, "rename", "while a file was replaced by rename %d times here, %d reads there always saw the old or the new one", rounds, r.Size)
	}
	return nil
}

func (d *doctor) inodes() error {
	same := true
	for i := range 10 {
		name := fmt.Sprintf("inode-%d", i)
		if err := d.write(name, "x"); err != nil {
			return err
		}
		r, err := d.must(d.here, order{Op: "stat", Name: name})
		if err != nil {
			return err
		}
		if err := d.shown(order{Op: "stat", Name: name}); err != nil {
			return err
		}
		there, err := d.must(d.there, order{Op: "stat", Name: name})
		if err != nil {
			return err
		}
		same = same && r.Ino == there.Ino
	}
	switch {
	case same && d.storage.StableInodes:
		d.found(ResultOK, "inode numbers", "the same here and there: locks name files by them")
	case same:
		d.found(ResultNote, "inode numbers", "the same here and there, but %s is not known to promise it: locks name files by their paths. If it does promise that, --file-id=inode lets locks follow renames and hard links", d.storage.Type)
	case d.storage.StableInodes:
		d.found(ResultBad, "inode numbers", "different here and there, although %s should have the same: two hosts would lock different files", d.storage.Type)
		d.options = append(d.options, "--file-id=path")
	default:
		d.found(ResultOK, "inode numbers", "different here and there: locks name files by their paths (two hard links are two files to them)")
	}
	return nil
}

func (d *doctor) locksBelow() error {
	var has []string
	for _, kind := range []string{"flock", "fcntl"} {
		name := "locked-" + kind
		if err := d.write(name, "x"); err != nil {
			return err
		}
		if _, err := d.must(d.here, order{Op: "keep", Name: name}); err != nil {
			return err
		}
		if err := d.shown(order{Op: "keep", Name: name}); err != nil {
			return err
		}
		r, err := d.do(d.here, order{Op: kind, Name: name})
		if err != nil {
			return err
		}
		if err := r.err(); err != nil {
			has = append(has, fmt.Sprintf("%s fails (%v)", kind, err))
			continue
		}
		if r, err = d.do(d.there, order{Op: kind, Name: name}); err != nil {
			return err
		}
		if r.err() == nil {
			has = append(has, kind+" is granted to both at once")
		} else {
			has = append(has, kind+" keeps them apart")
		}
	}
	d.found(ResultNote, "locks below", "without dmxfs, %s; dmxfs does not use them", strings.Join(has, " and "))
	return nil
}
