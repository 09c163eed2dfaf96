package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Checks of what one side sees of what the other has written, and when.

// reopen: the one thing that dmxfs cannot do without, unless turns has proven
// that it can.
func (d *doctor) reopen() error {
	const rounds = 20
	if err := d.write("reopen", "version 000"); err != nil {
		return err
	}
	began, patience := time.Now(), d.upTo(0.1, 10*time.Second)
	worst := time.Duration(0)
	done := 0
	for ; done < rounds && time.Since(began) < patience; done++ {
		want := fmt.Sprintf("version %03d", done+1)
		if _, err := d.must(d.here, order{Op: "overwrite", Name: "reopen", Data: want}); err != nil {
			return err
		}
		late, seen, err := d.until(d.there, order{Op: "read", Name: "reopen"}, patience, func(r *report) bool { return r.Data == want })
		if err != nil {
			return err
		}
		if !seen && d.proven {
			d.found(ResultNote, "data after reopen", "what was written and synced here was not seen there within %v by opening the file anew; with the lock it is, as dmxfs also makes the client drop its pages", late.Round(time.Millisecond))
			return nil
		}
		if !seen {
			d.found(ResultBad, "data after reopen", "what was written and synced here was not seen there within %v by opening the file anew: the storage's client keeps old data; mount it so that it looks when a file is opened (close-to-open)", late.Round(time.Millisecond))
			return nil
		}
		worst = max(worst, late)
	}
	if worst > 0 {
		d.found(ResultNote, "data after reopen", "a change of the same length was seen up to %v late by opening the file anew; dmxfs also makes the client drop its pages, which may help or not: mount the storage with less caching", worst.Round(time.Millisecond))
		return nil
	}
	d.found(ResultOK, "data after reopen", "in %d rounds, what was written and synced here was seen there at once by opening the file anew", done)
	return nil
}

func (d *doctor) keptOpen() error {
	if err := d.write("kept", "version 000"); err != nil {
		return err
	}
	if err := d.shown(order{Op: "keep", Name: "kept"}); err != nil {
		return err
	}
	if _, err := d.must(d.there, order{Op: "read-kept", Name: "kept"}); err != nil {
		return err
	}
	if _, err := d.must(d.here, order{Op: "overwrite", Name: "kept", Data: "version 001"}); err != nil {
		return err
	}
	late, seen, err := d.until(d.there, order{Op: "read-kept", Name: "kept"}, d.upTo(0.05, 2*time.Second), func(r *report) bool { return r.Data == "version 001" })
	switch {
	case err != nil:
		return err
	case seen && late == 0:
		d.found(ResultOK, "data without reopen", "a file that was open there showed the change at once")
	case seen:
		d.found(ResultNote, "data without reopen", "a file that was open there showed the change after %v; dmxfs opens it anew when a lock changes hands", late.Round(time.Millisecond))
	default:
		d.found(ResultNote, "data without reopen", "a file that was open there did not show the change; dmxfs opens it anew when a lock changes hands")
	}
	return nil
}

// late: how old sizes and names are that the other side has asked for before.
func (d *doctor) late() error {
	for _, name := range []string{"name-old", "name-gone", "size"} {
		if err := d.write(name, "1"); err != nil {
			return err
		}
		if err := d.shown(order{Op: "stat", Name: name}); err != nil {
			return err
		}
	}
	look := order{Op: "list", Name: "name-", To: "size"}
	if _, err := d.must(d.there, look); err != nil { // it caches them now
		return err
	}
	for _, o := range []order{
		{Op: "write", Name: "name-made", Data: "1"}, {Op: "rename", Name: "name-old", To: "name-renamed"},
		{Op: "remove", Name: "name-gone"}, {Op: "write", Name: "size", Data: "12345"},
	} {
		if _, err := d.must(d.here, o); err != nil {
			return err
		}
	}
	// Both are waited for at the same time.
	size, names, last := time.Duration(-1), time.Duration(-1), []string(nil)
	left := d.patience - time.Since(d.began) - d.patience/20
	most := min(d.upTo(0.5, 70*time.Second), left)
	mostSize := min(d.upTo(0.25, 30*time.Second), left)
	began := time.Now()
	for late := time.Duration(0); names < 0 && late <= most || size < 0 && late <= mostSize; late = time.Since(began) {
		r, err := d.do(d.there, look)
		if err != nil {
			return err
		}
		last = r.Names
		if size < 0 && r.Size == 5 {
			size = late
		}
		if names < 0 && slices.Equal(last, []string{"name-made", "name-renamed"}) {
			names = late
		}
		if size >= 0 && names >= 0 {
			break
		}
		select {
		case <-time.After(max(lookEvery, late/50)): // a listing may be much work for the storage
		case <-d.ctx.Done():
			return context.Cause(d.ctx)
		}
	}
	switch {
	case size == 0:
		d.found(ResultOK, "attributes", "stat there showed the new size at once")
	case size > 0:
		d.found(ResultNote, "attributes", "stat there showed the new size after %v; under a lock dmxfs asks anew", size.Round(time.Millisecond))
	default:
		d.found(ResultNote, "attributes", "stat there did not show the new size within %v; under a lock dmxfs opens the file, which fetches it", mostSize.Round(time.Millisecond))
	}
	d.listings(names, most, last)
	return nil
}

// listings says what it means that names were seen so late; negative: not
// within most, but others.
func (d *doctor) listings(late, most time.Duration, last []string) {
	assumed := d.storage.ListingAge
	age := (late + time.Second).Truncate(time.Second)
	switch {
	case late < 0:
		d.found(ResultBad, "listings", "a listing of the directory there did not show within %v what was made, renamed and removed here, but %s: hosts cannot find out about each other", most.Round(time.Millisecond), strings.Join(last, ", "))
	case late == 0 && assumed == 0:
		d.found(ResultOK, "listings", "names that were made, renamed and removed here were seen there at once")
	case late == 0:
		d.found(ResultNote, "listings", "names were seen there at once; dmxfs assumes up to %v of %s, and waits for that when hosts join or go on without another one. If the storage promises fresh listings to all hosts, --listing-age=0s makes that faster", assumed, d.storage.Type)
	case late > assumed:
		d.found(ResultNote, "listings", "names were seen there up to %v late, more than the %v that dmxfs assumes of %s", late.Round(time.Millisecond), assumed, d.storage.Type)
		d.options = append(d.options, fmt.Sprintf("--listing-age=%v", max(2*age, age+2*time.Second)))
	default:
		d.found(ResultNote, "listings", "names were seen there up to %v late; dmxfs assumes up to %v of %s", late.Round(time.Millisecond), assumed, d.storage.Type)
	}
}
