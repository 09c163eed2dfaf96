package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/ask"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountpoint"
	"github.com/dmxfs/dmxfs/internal/printing"
	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/internal/succession"
)

func newUpgradeCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "upgrade [MOUNTPOINT]", Short: "Go on with another version of dmxfs, while programs use the mount",
		Long: `Go on with another version of dmxfs, while programs use the mount: files stay
open, locks stay held, who waits for one goes on waiting. Calls of programs take a
moment longer. First the new program is asked whether it can go on; if it cannot,
nothing has happened, and the reason is told. The same way leads back to the
version before. It is done when the command returns with 0.

Without --program it is the file that the daemon was started from, as it is now:
install the new version in its place, then call this.`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
	}
	var o admin.UpgradeOrder
	all := c.Flags().Bool("all", false, "all mounts of this user on this host, one after the other")
	c.Flags().BoolVar(&o.Check, "check", false, "only ask whether it could be done")
	c.Flags().StringVar(&o.Program, "program", "", "execute this `FILE`")
	file := c.Flags().String("config", "", "the mount of this TOML `FILE`, as for dmxfs mount")
	c.Flags().DurationVar(&o.Timeout, "timeout", admin.OrderTime, "how long to try; a daemon that could not begin with it by then goes on as it is")
	asJSON := c.Flags().Bool("json", false, "print JSON for programs")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *file != "" {
			point, err := pointOf(*file)
			if err != nil {
				return err
			}
			args = append(args, point)
		}
		points, err := upgradePoints(args, *all)
		if err != nil {
			return err
		}
		if o.Program != "" {
			if o.Program, err = filepath.Abs(o.Program); err != nil {
				return err
			}
		}
		done := []admin.Upgrade{}
		var errs []error
		for _, point := range points {
			x, err := upgradeMount(c.Context(), point, o)
			if err != nil {
				if len(points) > 1 {
					err = exitcode.With(exitcode.Of(err), fmt.Errorf("%s: %w", point, err))
				}
				errs = append(errs, err)
				continue
			}
			done = append(done, x)
			if !*asJSON {
				fmt.Fprintln(s.out, upgradeText(&x))
			}
		}
		if *asJSON {
			errs = append(errs, printing.JSON(s.out, done))
		}
		return errors.Join(errs...)
	}
	return c
}

// upgradeText says for people what came of an upgrade.
func upgradeText(x *admin.Upgrade) string {
	if x.State == admin.UpgradeChecked {
		return fmt.Sprintf("%s: %s could go on with %s", x.Mount, x.Program, x.To)
	}
	return fmt.Sprintf("%s: upgraded from %s to %s; no call was answered for %d ms, and no lock granted for %d ms", x.Mount, x.From, x.To, x.PauseMS, x.LocksMS)
}

// pointOf is the mount point in a file of settings.
func pointOf(file string) (string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return "", exitcode.With(exitcode.Usage, fmt.Errorf("--config: %w", err))
	}
	var x struct {
		Mountpoint string `toml:"mountpoint"`
	}
	if err := toml.Unmarshal(b, &x); err != nil {
		return "", exitcode.With(exitcode.Usage, fmt.Errorf("--config %s: %w", file, err))
	}
	if x.Mountpoint == "" {
		return "", exitcode.With(exitcode.Usage, fmt.Errorf("--config %s names no mountpoint", file))
	}
	return x.Mountpoint, nil
}

// upgradePoints are the mount points that are meant.
func upgradePoints(args []string, all bool) (points []string, err error) {
	if len(args) > 1 {
		return nil, exitcode.With(exitcode.Usage, errors.New("with --config no mount point is given"))
	}
	if !all {
		point, err := mountpoint.Which(args)
		return []string{point}, err
	}
	if len(args) > 0 {
		return nil, exitcode.With(exitcode.Usage, errors.New("--all is all mounts: no mount point goes with it"))
	}
	list, err := mountpoint.All()
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		if _, err := statedir.Registered(p); err == nil {
			points = append(points, p)
		}
	}
	if len(points) == 0 {
		return nil, exitcode.With(exitcode.NoMount, errors.New("this user has no dmxfs mount on this host"))
	}
	return points, nil
}

// upgradePatience is how much longer than the daemon tries the command waits for what
// comes of it: the new program may have to wait for the others.
const upgradePatience = 30 * time.Second

// upgradeMount upgrades one mount, and waits for the end of that.
func upgradeMount(ctx context.Context, point string, o admin.UpgradeOrder) (x admin.Upgrade, err error) {
	r, err := statedir.Registered(point)
	if err != nil {
		return x, err
	}
	cl := ask.NewClient(r.State)
	cl.Timeout = max(o.Timeout, succession.CheckTime+time.Second)
	b, err := json.Marshal(o)
	if err != nil {
		return x, err
	}
	resp, err := cl.Send(ctx, http.MethodPost, "/upgrade", bytes.NewReader(b))
	if err != nil {
		return x, ask.NoDaemon(err, r)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&x); err != nil {
		return x, fmt.Errorf("the daemon's answer cannot be read: %w", err)
	}
	if x.State == admin.UpgradeChecked {
		return x, nil
	}
	return awaitUpgrade(ctx, cl, r, x, o.Timeout+upgradePatience)
}

// afterKill is what has come of the order x where the daemon was killed, and another one
// says now of itself.
func afterKill(x, now admin.Upgrade) (admin.Upgrade, error) {
	switch is := now.File == x.File && x.File != ""; {
	case now.Mounted != x.Mounted:
		return now, errors.New("the daemon has died of the upgrade, and was started anew: the locks of this host were lost, see its log and dmxfs journal")
	case now.State != admin.UpgradeTakenOver: // another order was given since
		return now, fmt.Errorf("the daemon was killed during the upgrade, and another one goes on, of version %s (%s): dmxfs status tells how the mount is", now.To, now.Program)
	case is && now.Error == "":
		now.Order, now.State, now.From = x.Order, admin.UpgradeDone, x.From
		return now, nil
	case is:
		return now, fmt.Errorf("%s is upgraded from %s to %s, but the daemon was killed meanwhile, and %s", x.Mount, x.From, now.To, now.Error)
	case now.Error != "":
		return now, fmt.Errorf("%s is not upgraded: the daemon was killed before that, and version %s goes on, but %s", x.Mount, now.To, now.Error)
	}
	return now, fmt.Errorf("%s is not upgraded: the daemon was killed before that, and version %s goes on with all that it held. Nothing was lost: try again", x.Mount, now.To)
}

// awaitUpgrade waits until the order x is carried out.
func awaitUpgrade(ctx context.Context, cl *admin.Client, r statedir.Registration, x admin.Upgrade, limit time.Duration) (admin.Upgrade, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cl.Timeout = limit
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		now := x
		switch err := cl.Get(ctx, "/upgrade", &now); {
		case err != nil && ctx.Err() != nil:
			return x, fmt.Errorf("the upgrade has begun, and nothing was heard of its end for %v: %w (dmxfs status tells how the mount is)", limit, err)
		case err != nil: // the daemon that was asked is just no more
		case now.Order != x.Order && now.Mounted == x.Mounted && now.State == "": // just taking over
		case now.Order != x.Order:
			return afterKill(x, now)
		case now.State == admin.UpgradeDone && now.Error != "":
			return now, fmt.Errorf("%s is upgraded from %s to %s, but %s", r.Mountpoint, now.From, now.To, now.Error)
		case now.State == admin.UpgradeDone:
			return now, nil
		case now.State == admin.UpgradeFailed:
			return now, fmt.Errorf("%s is not upgraded: %s", r.Mountpoint, now.Error)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}
