package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/dmxfs/dmxfs/internal/exitcode"
)

// Results of a check.
const (
	ResultOK   = "ok"
	ResultNote = "note"
	ResultBad  = "bad"
)

// A Finding is what one check has found.
type Finding struct {
	Check  string `json:"check"`
	Result string `json:"result"`
	Text   string `json:"text"`
}

// An Examination is what was found, as dmxfs doctor --json prints it.
type Examination struct {
	Source   string    `json:"source"`
	Partner  string    `json:"partner"` // the other mount, or the other host
	Storage  string    `json:"storage"` // type of the file system
	Fit      bool      `json:"fit"`
	Verdict  string    `json:"verdict"`
	Options  []string  `json:"options"` // to use on every host
	Findings []Finding `json:"findings"`

	// Real are the directories of this host that were examined, as absolute
	// paths without symbolic links. To find these out anew would be to ask
	// storage that may hang by now.
	Real []string `json:"-"`
}

// Options are what an examination needs.
type Options struct {
	// Sources are one directory, whose other side is on another host, or two.
	Sources []string
	// Listen is where the other host is waited for: ADDRESS:PORT.
	Listen string
	// Patience is how long to wait for the other host, and then how long the
	// examination may take.
	Patience time.Duration
	// Try tries a source as a first mount does. An error with
	// [exitcode.Refused] says that none would be made there.
	Try func(ctx context.Context, source string) error
	// Log is for people: what to do on the other host.
	Log io.Writer
}

// Examine examines the storage. An error is of the examination: what is wrong
// with the storage is a finding, but if no mount would be made there at all.
func Examine(ctx context.Context, o Options) (x Examination, err error) {
	x = Examination{Source: o.Sources[0], Options: []string{}, Findings: []Finding{}}
	if err := tryAll(ctx, o); err != nil {
		return x, err
	}
	d := &doctor{patience: o.Patience}
	if d.here, err = startHands("here", o.Sources[0]); err != nil {
		return x, err
	}
	defer d.here.end()
	opened, cancel := context.WithTimeoutCause(ctx, o.Patience, errTooLong)
	defer cancel()
	if err := d.open(opened, d.here, o.Sources[0]); err != nil {
		return x, err
	}
	if len(o.Sources) == 2 {
		x.Partner = o.Sources[1]
		if d.there, err = startHands("there", o.Sources[1]); err != nil {
			return x, err
		}
	} else {
		conn, err := awaitPartner(opened, o.Listen, o.Sources[0], o.Log)
		if err != nil {
			return x, err
		}
		d.there = newSide("there", conn, conn, func() { conn.Close() })
	}
	defer d.there.end()
	ctx, cancel = context.WithTimeoutCause(ctx, o.Patience, errTooLong)
	defer cancel()
	d.ctx, d.began = ctx, time.Now()
	if err := d.open(ctx, d.there, cmp.Or(x.Partner, "the directory on the other host")); err != nil {
		return x, err
	}
	d.oneMount = len(o.Sources) == 2 && d.here.dev == d.there.dev
	if err := d.examine(); err != nil {
		return x, err
	}
	if x.Partner == "" {
		x.Partner = "host " + d.host
	}
	x.Storage = d.storage.Type
	x.Findings, x.Options = append(x.Findings, d.findings...), append(x.Options, d.options...)
	x.Fit, x.Verdict = d.verdict()
	x.Real = []string{d.here.real}
	if len(o.Sources) == 2 {
		x.Real = append(x.Real, d.there.real)
	}
	return x, nil
}

// tryAll tries the storage as a first mount does: where that is refused nobody
// needs to wait for another host, or for its client's caches, to be told why.
func tryAll(ctx context.Context, o Options) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.Patience, errTooLong)
	defer cancel()
	for _, source := range o.Sources {
		err := o.Try(ctx, source)
		switch {
		case err == nil:
		case exitcode.Of(err) == exitcode.Refused:
			return exitcode.With(exitcode.Failure, fmt.Errorf("not fit for dmxfs: %w", err))
		case errors.Is(err, errTooLong):
			return fmt.Errorf("%s does not answer: %w", source, err)
		case exitcode.Of(err) == exitcode.Failure || ctx.Err() != nil:
			return err
		} // what is wrong with the directory is told by who opens it
	}
	return nil
}
