package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/internal/succession"
	"github.com/dmxfs/dmxfs/internal/supervise"
)

// Serve is a [supervise.Daemon]: it joins the cluster or founds it, mounts, and serves until
// the mount is gone, ctx ends, or the daemon has to end. The error says with which number
// the process ends, and whether it makes sense to try again (package trouble).
func Serve(ctx context.Context, cfg config.Config, m *supervise.Minder, root *os.File, log *slog.Logger, ready func(warnings []string)) error {
	return serve(ctx, cfg, m, root, log, nil, ready)
}

// serve runs a daemon until its mount is gone; with left it goes on with that of the
// program before this one.
func serve(ctx context.Context, cfg config.Config, m *supervise.Minder, root *os.File, log *slog.Logger, left *succession.Heir, ready func(warnings []string)) error {
	d, err := open(cfg, m, root, log, left)
	if err != nil {
		return left.Back(ctx, err)
	}
	reg := statedir.Registration{Mountpoint: cfg.Mountpoint, Source: cfg.Source, State: cfg.State}
	if err := statedir.Remember(reg); err != nil {
		if left != nil {
			return left.Back(ctx, err)
		}
		return errors.Join(fmt.Errorf("remember the mount for other commands: %w", err), d.close())
	}
	run := d.run
	switch {
	case left != nil:
		run = successor{goer{d}}.run
	case d.takeover.left != nil:
		run = taker{goer{d}}.run
	}
	err = run(ctx, func() { ready(d.warnings) })
	if err := d.takeover.own.End(); err != nil {
		log.Error("the end of this process may not be the end of all that it has open", "err", err)
	}
	if err != nil {
		log.Error("the daemon ends", "err", err)
	}
	d.unfinished(err, d.close())
	return err
}
