package journalview

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/journalquery"
	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/journal"
)

// ShowOwn prints this node's journal, by its daemon if one runs.
func ShowOwn(ctx context.Context, cl *admin.Client, r statedir.Registration, f journal.Filter, out *Printer) error {
	resp, err := cl.Do(ctx, http.MethodGet, "/journal?"+journalquery.Values(f).Encode())
	if errors.Is(err, admin.ErrNoDaemon) {
		if f.Follow {
			return exitcode.With(exitcode.NoMount, fmt.Errorf("no daemon runs for %s: there is nothing to follow", r.Mountpoint))
		}
		return Read(ctx, r, f, out)
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return copyAnswer(ctx, resp.Body, out, f.Follow)
}

// Read reads the journal of a mount that no daemon serves.
func Read(ctx context.Context, r statedir.Registration, f journal.Filter, out *Printer) error {
	j, err := journal.OpenReadOnly(r.State+"/journal", journal.Options{})
	if err != nil {
		return err
	}
	rec := j.Recovery()
	if rec.Rebuilt != "" {
		fmt.Fprintf(out.err, "dmxfs: the journal was damaged, and was made anew of what is left; the damaged one is in %s\n", rec.Rebuilt)
	}
	for _, x := range rec.Damaged {
		fmt.Fprintf(out.err, "dmxfs: a part of the journal cannot be read: %v\n", x)
	}
	err = j.Query(ctx, f, func(rec journal.Record) error {
		b, err := json.Marshal(rec)
		if err != nil {
			return err
		}
		return out.Line(b)
	})
	if err == nil {
		err = out.end()
	}
	return errors.Join(err, j.Close())
}

// copyAnswer prints what the daemon sends. With follow it prints each record
// when it is there, and otherwise many at once, which align better.
func copyAnswer(ctx context.Context, r io.Reader, out *Printer, follow bool) error {
	br := bufio.NewReaderSize(r, 1<<16)
	for {
		b, err := br.ReadBytes('\n')
		if b = bytes.TrimSuffix(b, []byte("\n")); len(b) > 0 && (err == nil || err == io.EOF) {
			if err := out.Line(b); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return out.end()
		case err != nil && ctx.Err() == nil:
			return errors.Join(out.flush(), fmt.Errorf("the daemon has stopped in the middle of its answer: %w", err))
		case err != nil:
			return out.flush()
		case follow && br.Buffered() == 0:
			if err := out.flush(); err != nil {
				return err
			}
		}
	}
}
