package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"dmxfs/fusefs"
)

// doctor is one examination.
type doctor struct {
	ctx      context.Context
	here     *hands
	partner  partner
	patience time.Duration
	storage  fusefs.Storage
	host     string // of the partner

	findings []findingJSON
	options  []string
}

const (
	resultOK   = "ok"
	resultNote = "note"
	resultBad  = "bad"
)

func (d *doctor) found(result, check, format string, args ...any) {
	d.findings = append(d.findings, findingJSON{check, result, fmt.Sprintf(format, args...)})
}

// there has the partner do something.
func (d *doctor) there(op, name string) (doctorReport, error) {
	return d.thereOrder(doctorOrder{Op: op, Name: name})
}

func (d *doctor) thereOrder(o doctorOrder) (doctorReport, error) {
	r, ok := <-d.partner.ask(o)
	if !ok {
		if err := context.Cause(d.ctx); err != nil {
			return r, err
		}
		return r, errPartnerGone
	}
	return r, nil
}

var errPartnerGone = errors.New("the other side does not answer: run dmxfs doctor --join on the other host, over the same storage; if it runs there, then what is written on one host is not seen by the other in time, and dmxfs cannot be used")

// local does something here.
func (d *doctor) local(o doctorOrder) error { return d.here.do(o).err() }

func (d *doctor) write(name, data string) error {
	return d.local(doctorOrder{Op: "write", Name: name, Data: data})
}

// sameStorage makes sure that a second mount on this host shows the directory
// that the doctor has made.
func (d *doctor) sameStorage(other string) error {
	if err := d.write("here", "the first mount"); err != nil {
		return err
	}
	path := doctorDir(other)
	var a, b unix.Stat_t
	if unix.Stat(d.here.dir, &a) == nil && unix.Stat(other, &b) == nil && a.Dev == b.Dev {
		d.found(resultNote, "two sides", "both directories are of one mount on this host: what follows says nothing about other hosts")
	}
	tick := time.NewTicker(mailEvery)
	defer tick.Stop()
	for end := time.Now().Add(d.patience); ; {
		if _, err := os.Stat(path); err == nil {
			return nil
		} else if time.Now().After(end) {
			return fmt.Errorf("%s does not show what was made in %s for %v (%w): are they the same storage?", other, d.here.dir, d.patience, err)
		}
		select {
		case <-tick.C:
		case <-d.ctx.Done():
			return context.Cause(d.ctx)
		}
	}
}

// examine makes all checks. An error is of the examination, not of the storage.
func (d *doctor) examine() error {
	for _, check := range []func() error{
		d.greet, d.reopen, d.keptOpen, d.sizes, d.names, d.excl, d.links, d.renames, d.inodes, d.locksBelow,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// greet waits for the partner, and compares the clocks.
func (d *doctor) greet() error {
	if _, err := d.there("hello", ""); err != nil {
		return err
	}
	// The best of some: the way there and back is what can't be told from skew.
	skew, within := time.Duration(0), time.Duration(math.MaxInt64)
	for range 3 {
		began := time.Now()
		r, err := d.there("hello", "")
		if err != nil {
			return err
		}
		d.host = r.Host
		if took := time.Since(began); took < within {
			skew, within = time.Unix(0, r.Time).Sub(began.Add(took/2)), took/2
		}
	}
	if err := d.write("clock", "x"); err != nil {
		return err
	}
	now := time.Now()
	storage := time.Unix(0, d.here.do(doctorOrder{Op: "stat", Name: "clock"}).Time).Sub(now)
	result, text := resultOK, fmt.Sprintf("the other side's clock differs by %v (±%v), the storage's by %v", skew.Round(time.Millisecond), within.Round(time.Millisecond), storage.Round(10*time.Millisecond))
	if skew.Abs() > within+time.Second || storage.Abs() > 3*time.Second {
		result, text = resultNote, text+": dmxfs does not depend on it, but make and the like do; run an NTP client on all hosts"
	}
	d.found(result, "clock", "%s", text)
	return nil
}

// until asks the partner again and again until ok; late is how long it took, 0
// if the first answer was ok.
func (d *doctor) until(o doctorOrder, most time.Duration, ok func(doctorReport) bool) (late time.Duration, seen bool, err error) {
	tick := time.NewTicker(mailEvery)
	defer tick.Stop()
	began := time.Now()
	for first := true; ; first = false {
		asked := time.Since(began)
		if first {
			asked = 0
		}
		r, err := d.thereOrder(o)
		if err != nil {
			return 0, false, err
		}
		if ok(r) {
			return asked, true, nil
		}
		if time.Since(began) > most {
			return asked, false, nil
		}
		select {
		case <-tick.C:
		case <-d.ctx.Done():
			return 0, false, context.Cause(d.ctx)
		}
	}
}

// reopen: the one thing that dmxfs cannot do without.
func (d *doctor) reopen() error {
	const rounds = 20
	if err := d.write("reopen", "version 000"); err != nil {
		return err
	}
	worst := time.Duration(0)
	for i := range rounds {
		want := fmt.Sprintf("version %03d", i+1)
		if err := d.local(doctorOrder{Op: "overwrite", Name: "reopen", Data: want}); err != nil {
			return err
		}
		late, seen, err := d.until(doctorOrder{Op: "read", Name: "reopen"}, min(d.patience, 10*time.Second), func(r doctorReport) bool { return r.Data == want })
		if err != nil {
			return err
		}
		if !seen {
			d.found(resultBad, "data after reopen", "what was written and synced here was not seen there within %v by opening the file anew: the storage's client keeps old data; mount it so that it looks when a file is opened (close-to-open)", late.Round(time.Millisecond))
			return nil
		}
		worst = max(worst, late)
	}
	if worst > 0 {
		d.found(resultNote, "data after reopen", "a change of the same length was seen up to %v late by opening the file anew; dmxfs also makes the client drop its pages, which may help or not: mount the storage with less caching", worst.Round(time.Millisecond))
		return nil
	}
	d.found(resultOK, "data after reopen", "in %d of %d rounds, what was written and synced here was seen there at once by opening the file anew", rounds, rounds)
	return nil
}

func (d *doctor) keptOpen() error {
	if err := d.write("kept", "version 000"); err != nil {
		return err
	}
	if _, _, err := d.until(doctorOrder{Op: "keep", Name: "kept"}, d.patience, func(r doctorReport) bool { return r.err() == nil }); err != nil {
		return err
	}
	if _, err := d.there("read-kept", "kept"); err != nil {
		return err
	}
	if err := d.local(doctorOrder{Op: "overwrite", Name: "kept", Data: "version 001"}); err != nil {
		return err
	}
	late, seen, err := d.until(doctorOrder{Op: "read-kept", Name: "kept"}, 2*time.Second, func(r doctorReport) bool { return r.Data == "version 001" })
	switch {
	case err != nil:
		return err
	case seen && late == 0:
		d.found(resultOK, "data without reopen", "a file that was open there showed the change at once")
	case seen:
		d.found(resultNote, "data without reopen", "a file that was open there showed the change after %v; dmxfs opens it anew when a lock changes hands", late.Round(time.Millisecond))
	default:
		d.found(resultNote, "data without reopen", "a file that was open there did not show the change; dmxfs opens it anew when a lock changes hands")
	}
	return nil
}

func (d *doctor) sizes() error {
	if err := d.write("size", "1"); err != nil {
		return err
	}
	if _, _, err := d.until(doctorOrder{Op: "stat", Name: "size"}, d.patience, func(r doctorReport) bool { return r.err() == nil }); err != nil {
		return err
	}
	if err := d.write("size", "12345"); err != nil {
		return err
	}
	late, seen, err := d.until(doctorOrder{Op: "stat", Name: "size"}, d.listingPatience(), func(r doctorReport) bool { return r.Size == 5 })
	switch {
	case err != nil:
		return err
	case seen && late == 0:
		d.found(resultOK, "attributes", "stat there showed the new size at once")
	case seen:
		d.found(resultNote, "attributes", "stat there showed the new size after %v; under a lock dmxfs asks anew", late.Round(time.Millisecond))
	default:
		d.found(resultNote, "attributes", "stat there did not show the new size within %v; under a lock dmxfs opens the file, which fetches it", late.Round(time.Millisecond))
	}
	return nil
}

// listingPatience is how long to wait for what is seen late: past what is
// assumed of the storage, and what dmxfs bears.
func (d *doctor) listingPatience() time.Duration { return min(d.patience, 70*time.Second) }

// names: how old listings are.
func (d *doctor) names() error {
	// Make the partner cache the listing first.
	if _, err := d.there("list", "name-"); err != nil {
		return err
	}
	worst := time.Duration(0)
	for i, o := range []doctorOrder{{Op: "write", Name: "name-made"}, {Op: "rename", Name: "name-made", To: "name-renamed"}, {Op: "remove", Name: "name-renamed"}} {
		if err := d.local(o); err != nil {
			return err
		}
		want := [][]string{{"name-made"}, {"name-renamed"}, nil}[i]
		late, seen, err := d.until(doctorOrder{Op: "list", Name: "name-"}, d.listingPatience(), func(r doctorReport) bool { return slices.Equal(r.Names, want) })
		if err != nil {
			return err
		}
		if !seen {
			d.found(resultBad, "listings", "a listing of the directory there did not show what was done here (%s) within %v: hosts cannot find out about each other", o.Op, late.Round(time.Millisecond))
			return nil
		}
		worst = max(worst, late)
	}
	assumed := d.storage.ListingAge
	age := (worst + time.Second).Truncate(time.Second)
	switch {
	case worst == 0 && assumed == 0:
		d.found(resultOK, "listings", "names that were made, renamed and removed here were seen there at once")
	case worst == 0:
		d.found(resultNote, "listings", "names were seen there at once; dmxfs assumes up to %v of %s, and waits for that when hosts join or go on without another one. If the storage promises fresh listings to all hosts, --listing-age=0s makes that faster", assumed, d.storage.Type)
	case worst > assumed:
		d.found(resultNote, "listings", "names were seen there up to %v late, more than the %v that dmxfs assumes of %s", worst.Round(time.Millisecond), assumed, d.storage.Type)
		d.options = append(d.options, fmt.Sprintf("--listing-age=%v", max(2*age, age+2*time.Second)))
	default:
		d.found(resultNote, "listings", "names were seen there up to %v late; dmxfs assumes up to %v of %s", worst.Round(time.Millisecond), assumed, d.storage.Type)
	}
	return nil
}

// race has both sides try to make the same names at the same time: which both
// believe to have made, and how many each has, in words.
func (d *doctor) race(op, name string) (twice []string, made string, err error) {
	const names = 100
	c := d.partner.ask(doctorOrder{Op: op, Name: name, To: name + "-there", Count: names})
	r := d.here.do(doctorOrder{Op: op, Name: name, To: name + "-here", Count: names})
	if err := r.err(); err != nil {
		<-c
		return nil, "", err
	}
	p, ok := <-c
	if !ok {
		return nil, "", errPartnerGone
	}
	if err := p.err(); err != nil {
		return nil, "", err
	}
	if len(r.Names)+len(p.Names) < names {
		return nil, "", fmt.Errorf("%d of %d names were made by nobody", names-len(r.Names)-len(p.Names), names)
	}
	made = fmt.Sprintf("%d here, %d there", len(r.Names), len(p.Names))
	if odd := cmp.Or(r.Data, p.Data); odd != "" {
		made += fmt.Sprintf("; what exists is refused with %q instead of EEXIST, which can confuse programs", odd)
	}
	return both(r.Names, p.Names), made, nil
}

func (d *doctor) excl() error {
	twice, made, err := d.race("race-excl", "excl")
	switch {
	case errors.Is(err, errPartnerGone):
		return err
	case err != nil:
		d.found(resultBad, "O_EXCL", "making files at the same time failed: %v", err)
	case len(twice) > 0:
		d.found(resultNote, "O_EXCL", "of 100 names that both made with O_EXCL, both were told that they made %d: lock files (dotfiles, git's index.lock) do not keep hosts apart on this storage, and dmxfs cannot change that", len(twice))
	default:
		d.found(resultOK, "O_EXCL", "of 100 names, each was made by one side only (%s)", made)
	}
	return nil
}

// links: views are decided by link(2).
func (d *doctor) links() error {
	twice, made, err := d.race("race-link", "link")
	switch {
	case errors.Is(err, errPartnerGone):
		return err
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EMLINK):
		d.found(resultBad, "link", "the storage has no hard links (%v): dmxfs decides by link(2) who is a member, and cannot be used", err)
	case err != nil:
		d.found(resultBad, "link", "making links at the same time failed: %v", err)
	case len(twice) > 0:
		d.found(resultBad, "link", "of 100 names that both linked, both were told that they made %d: link(2) is not atomic, and dmxfs cannot be used: two hosts could both believe to have a lock", len(twice))
	default:
		d.found(resultOK, "link", "of 100 names, each was linked by one side only (%s)", made)
	}
	return nil
}

func (d *doctor) renames() error {
	const rounds = 50
	if err := d.write("renamed", "version 000"); err != nil {
		return err
	}
	if _, _, err := d.until(doctorOrder{Op: "read", Name: "renamed"}, d.patience, func(r doctorReport) bool { return r.err() == nil }); err != nil {
		return err
	}
	c := d.partner.ask(doctorOrder{Op: "read-often", Name: "renamed", Count: 10 * rounds})
	for i := range rounds {
		err := d.write("renaming", fmt.Sprintf("version %03d", i+1))
		if err == nil {
			err = d.local(doctorOrder{Op: "rename", Name: "renaming", To: "renamed"})
		}
		if err != nil {
			<-c
			d.found(resultBad, "rename", "replacing a file by rename failed: %v", err)
			return nil
		}
	}
	r, ok := <-c
	if !ok {
		return errPartnerGone
	}
	if r.Count > 0 {
		d.found(resultNote, "rename", "while a file was replaced by rename here, %d of %d reads there failed or saw neither the old nor the new one (the last: %s): programs that replace files so need a lock around it", r.Count, 10*rounds, r.Data)
	} else {
		d.found(resultOK, "rename", "while a file was replaced by rename %d times here, %d reads there always saw the old or the new one", rounds, 10*rounds)
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
		var there doctorReport
		if _, _, err := d.until(doctorOrder{Op: "stat", Name: name}, d.patience, func(r doctorReport) bool { there = r; return r.err() == nil }); err != nil {
			return err
		}
		same = same && there.Ino == d.here.do(doctorOrder{Op: "stat", Name: name}).Ino
	}
	switch {
	case same && d.storage.StableInodes:
		d.found(resultOK, "inode numbers", "the same here and there: locks name files by them")
	case same:
		d.found(resultNote, "inode numbers", "the same here and there, but %s is not known to promise it: locks name files by their paths. If it does promise that, --file-id=inode lets locks follow renames and hard links", d.storage.Type)
	case d.storage.StableInodes:
		d.found(resultBad, "inode numbers", "different here and there, although %s should have the same: two hosts would lock different files", d.storage.Type)
		d.options = append(d.options, "--file-id=path")
	default:
		d.found(resultOK, "inode numbers", "different here and there: locks name files by their paths (two hard links are two files to them)")
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
		if err := d.local(doctorOrder{Op: "keep", Name: name}); err != nil {
			return err
		}
		if _, _, err := d.until(doctorOrder{Op: "keep", Name: name}, d.patience, func(r doctorReport) bool { return r.err() == nil }); err != nil {
			return err
		}
		if err := d.local(doctorOrder{Op: kind, Name: name}); err != nil {
			has = append(has, fmt.Sprintf("%s fails (%v)", kind, err))
			continue
		}
		r, err := d.there(kind, name)
		if err != nil {
			return err
		}
		if r.err() == nil {
			has = append(has, kind+" is granted to both at once")
		} else {
			has = append(has, kind+" keeps them apart")
		}
	}
	d.found(resultNote, "locks below", "without dmxfs, %s and %s; dmxfs does not use them", has[0], has[1])
	return nil
}

// verdict says in words what may be relied on.
func (d *doctor) verdict() (fit bool, text string) {
	worst := resultOK
	fit = true
	for _, f := range d.findings {
		switch {
		case f.Result == resultBad && f.Check == "inode numbers":
			worst = resultNote // there is an option for it
		case f.Result == resultBad:
			fit = false
		case f.Result == resultNote && f.Check != "locks below":
			worst = resultNote
		}
	}
	switch {
	case !fit:
		return false, "This storage is not fit for dmxfs: see what is bad above."
	case worst == resultNote:
		return true, "This storage is fit for dmxfs. Under a lock all data and attributes are fresh; without one, what the notes say."
	}
	return true, "This storage is fit for dmxfs, and each side sees at once what the other does."
}
