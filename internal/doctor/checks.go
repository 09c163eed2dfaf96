package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/exitcode"
)

// doctor is one examination.
type doctor struct {
	ctx         context.Context // ends when patience is over
	began       time.Time
	patience    time.Duration
	here, there *side
	storage     fusefs.Storage
	host        string      // of the other side
	oneMount    bool        // both sides have one mount on this host
	made        bool        // the doctor's directory
	taken       *turnsTaken // what they have shown, until it is told
	proven      bool        // the data comes with the lock

	findings []Finding
	options  []string
}

func (d *doctor) found(result, check, format string, args ...any) {
	d.findings = append(d.findings, Finding{check, result, fmt.Sprintf(format, args...)})
}

// open has a side look at its directory.
func (d *doctor) open(ctx context.Context, side *side, name string) error {
	r, err := side.do(ctx, order{Op: "open"})
	if errors.Is(err, errTooLong) {
		return fmt.Errorf("%s does not answer: the storage hangs, or is not there", name)
	}
	if err == nil {
		err = r.err()
	}
	if err != nil {
		return err
	}
	if side == d.here {
		d.storage = *r.Storage
	}
	side.dev, side.real = r.Dev, string(r.Real)
	return nil
}

// do has a side do something. The error is of the examination; what became of
// the order is in the report.
func (d *doctor) do(side *side, o order) (*report, error) { return side.do(d.ctx, o) }

// must is do of something that has to succeed.
func (d *doctor) must(side *side, o order) (*report, error) {
	r, err := d.do(side, o)
	if err == nil {
		if err = r.err(); err != nil {
			err = fmt.Errorf("%s %q %s: %w", o.Op, o.Name, side.where, err)
		}
	}
	return r, err
}

func (d *doctor) write(name, data string) error {
	_, err := d.must(d.here, order{Op: "write", Name: name, Data: data})
	return err
}

// upTo is a part of patience, and at most most: so all checks have their turn
// before it is over.
func (d *doctor) upTo(part float64, most time.Duration) time.Duration {
	return min(most, time.Duration(part*float64(d.patience)))
}

// lookEvery is how often the other side looks for what is not there yet.
const lookEvery = 50 * time.Millisecond

// until asks a side again and again until ok; late is how long it took, 0 if
// the first answer was ok.
func (d *doctor) until(side *side, o order, most time.Duration, ok func(*report) bool) (late time.Duration, seen bool, err error) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	began := time.Now()
	for first := true; ; first = false {
		if !first {
			late = time.Since(began)
		}
		r, err := d.do(side, o)
		if err != nil {
			return 0, false, err
		}
		if ok(r) {
			return late, true, nil
		}
		if time.Since(began) > most {
			return late, false, nil
		}
		select {
		case <-tick.C:
		case <-d.ctx.Done():
			return 0, false, context.Cause(d.ctx)
		}
	}
}

// shown waits until the other side sees a file, and does something with it.
func (d *doctor) shown(o order) error {
	var last error
	_, seen, err := d.until(d.there, o, d.upTo(0.5, time.Minute), func(r *report) bool { last = r.err(); return last == nil })
	if err == nil && !seen {
		err = fmt.Errorf("%s %q there: %w", o.Op, o.Name, last)
	}
	return err
}

// examine makes all checks. An error is of the examination, not of the storage.
func (d *doctor) examine() error {
	err := d.allChecks()
	if e := d.tidy(); e != nil && err == nil {
		d.found(ResultNote, "tidying up", "remove .dmxfs/doctor by hand: %v", e)
	}
	return err
}

func (d *doctor) allChecks() error {
	defer d.tellTurns()
	for _, c := range []struct {
		name string // in the findings
		run  func() error
	}{
		{"files", d.meet}, {"clock", d.greet}, {"link", d.links}, {"inode numbers", d.inodes},
		{"data under a lock", d.turns}, {"data after reopen", d.reopen}, {"data without reopen", d.keptOpen}, {"O_EXCL", d.excl},
		{"rename", d.renames}, {"locks below", d.locksBelow}, {"attributes", d.late}, {"data under a lock", d.moreTurns},
	} {
		err := c.run()
		_, final := exitcode.Given(err)
		switch {
		case err == nil:
		case errors.Is(err, errTooLong):
			d.found(ResultBad, c.name, "not done when --patience (%v) was over: the storage does not answer, or takes too long", d.patience)
			return nil
		case d.ctx.Err() != nil, errors.Is(err, errPartnerGone), final:
			return err
		default:
			d.found(ResultBad, c.name, "%v", err)
		}
		if n := len(d.findings); n > 0 && d.findings[n-1].Result == ResultBad && (c.name == "files" || c.name == "link") {
			return nil // all else is of no use without
		}
	}
	return nil
}

// tidy removes what was made, but does not wait for storage that hangs.
func (d *doctor) tidy() error {
	if !d.made {
		return nil
	}
	limit := 5 * time.Second
	if d.ctx.Err() == nil && !d.here.pending && !d.there.pending { // slow storage, as on a busy machine, may take longer
		limit = max(limit, min(30*time.Second, d.patience-time.Since(d.began)))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.ctx), limit)
	defer cancel()
	if d.here.pending {
		if _, err := d.here.report(ctx); err != nil {
			return errors.New("the storage does not answer")
		}
	}
	if !d.there.pending {
		_, _ = d.there.do(ctx, order{Op: "sweep"}) // if it is there
	}
	r, err := d.here.do(ctx, order{Op: "tidy"})
	if err == nil {
		err = r.err()
	}
	return err
}

// meet makes the doctor's directory, and has the other side find it.
func (d *doctor) meet() error {
	if d.oneMount {
		d.found(ResultNote, "two sides", "both directories are of one mount on this host: what follows says nothing about other hosts")
	}
	session := rand.Text()
	r, err := d.do(d.here, order{Op: "make", Data: session})
	if err == nil {
		err = r.err()
	}
	if err != nil {
		return err
	}
	d.made = true
	late, seen, err := d.until(d.there, order{Op: "find", Data: session}, d.upTo(0.5, 70*time.Second), func(x *report) bool {
		r = x
		return !x.Missing
	})
	if err != nil {
		return err
	}
	if !seen {
		return exitcode.With(exitcode.Failure, fmt.Errorf("the other side does not show what was made here for %v (%w): are they the same storage?", late.Round(time.Second/10), r.err()))
	}
	return r.err()
}

// greet compares the clocks.
func (d *doctor) greet() error {
	// The best of some: the way there and back is what can't be told from skew.
	skew, within := time.Duration(0), time.Duration(math.MaxInt64)
	for range 3 {
		began := time.Now()
		r, err := d.must(d.there, order{Op: "hello"})
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
	r, err := d.must(d.here, order{Op: "stat", Name: "clock"})
	if err != nil {
		return err
	}
	storage := time.Unix(0, r.Time).Sub(now)
	result, text := ResultOK, fmt.Sprintf("the other side's clock differs by %v (±%v), the storage's by %v", skew.Round(time.Millisecond), within.Round(time.Millisecond), storage.Round(10*time.Millisecond))
	if skew.Abs() > within+time.Second || storage.Abs() > 3*time.Second {
		result, text = ResultNote, text+": dmxfs does not depend on it, but make and the like do; run an NTP client on all hosts"
	}
	d.found(result, "clock", "%s", text)
	return nil
}

// verdict says in words what may be relied on.
func (d *doctor) verdict() (fit bool, text string) {
	worst := ResultOK
	fit = true
	for _, f := range d.findings {
		switch {
		case f.Result == ResultBad && f.Check == "inode numbers":
			worst = ResultNote // there is an option for it
		case f.Result == ResultBad:
			fit = false
		case f.Result == ResultNote && f.Check != "locks below":
			worst = ResultNote
		}
	}
	switch {
	case !fit:
		return false, "This storage is not fit for dmxfs: see what is bad above."
	case worst == ResultNote:
		return true, "This storage is fit for dmxfs. Under a lock all data and attributes are fresh; without one, what the notes say."
	}
	return true, "This storage is fit for dmxfs, and each side sees at once what the other does."
}
