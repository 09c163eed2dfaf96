package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountpoint"
	"github.com/dmxfs/dmxfs/internal/nodestate"
	"github.com/dmxfs/dmxfs/internal/printing"
	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/p2p"
	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/p2p/register"
)

// restoredJSON is the answer to `dmxfs cluster restore`.
type restoredJSON struct {
	Cluster string `json:"cluster"`
	Source  string `json:"source"`
	Epoch   uint64 `json:"epoch"`
}

func newClusterCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "cluster", Short: "Make the directory of a cluster anew that somebody has removed",
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newRestoreCommand(s))
	return c
}

func newRestoreCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "restore [MOUNTPOINT]", Short: "Make .dmxfs anew, for all hosts",
		Long: `Make .dmxfs on the shared directory anew, when somebody has removed it, or all of
the shared directory, and there is no backup. It is the same cluster as before,
by what this host knows of it. Run it on one host, best on the one that was the
last to use the directory; the mounts of all hosts go on by themselves.

It waits for the time after which no daemon can have anything of it any more, 100 s
by default, and looks whether .dmxfs stays away for so long.`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
	}
	moved := c.Flags().Bool("new-directory", false, "the shared directory is another one than before: it was removed as well, or moved")
	yes := c.Flags().Bool("yes", false, "do not ask")
	asJSON := c.Flags().Bool("json", false, "print JSON for programs")
	timeout := c.Flags().Duration("timeout", 10*time.Minute, "how long to wait in all")
	c.RunE = func(c *cobra.Command, args []string) error {
		point, err := mountpoint.Which(args)
		if err != nil {
			return err
		}
		r, err := statedir.Registered(point)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeoutCause(c.Context(), *timeout, fmt.Errorf("not done after %v (--timeout)", *timeout))
		defer cancel()
		x := &restoration{r: r, moved: *moved, messages: s.err}
		v, err := x.run(ctx, func() error {
			return confirm(c.Context(), s, *yes, fmt.Sprintf("Make .dmxfs in %s anew? Is this the shared directory, with the storage mounted?", r.Source))
		})
		if err != nil {
			return err
		}
		if *asJSON {
			return printing.JSON(s.out, v)
		}
		fmt.Fprintf(s.out, "the cluster %s is in %s again: mounts go on within some seconds\n", v.Cluster, v.Source)
		return nil
	}
	return c
}

// restoration makes the directory of a cluster anew.
type restoration struct {
	r        statedir.Registration
	moved    bool
	messages io.Writer
}

func (x *restoration) run(ctx context.Context, confirm func() error) (restoredJSON, error) {
	lost, k, err := x.lost()
	if err != nil {
		return restoredJSON{}, err
	}
	out := restoredJSON{lost.Cluster, x.r.Source, uint64(lost.View.Epoch)}
	// What hangs in the storage is left behind, when ctx ends.
	done := make(chan error, 1)
	go func() {
		done <- func() error {
			root, err := x.open(k)
			if err != nil {
				return err
			}
			defer root.Close()
			d := register.NewDir(root, x.r.Source, lost.View.By.Peer)
			if err := gone(d); err != nil {
				return err
			}
			if err := confirm(); err != nil {
				return err
			}
			lock, err := x.await(ctx, d, time.Duration(lost.View.GivenUp())*time.Millisecond)
			if err != nil {
				return err
			}
			defer lock.Close()
			return d.Restore(lost)
		}()
	}()
	select {
	case err = <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if errors.Is(err, register.ErrThere) {
		err = exitcode.With(exitcode.Refused, fmt.Errorf("%w: nothing was changed", err))
	}
	return out, err
}

// lost is the cluster as this host knows it.
func (x *restoration) lost() (register.Lost, nodestate.View, error) {
	k, v, err := nodestate.ReadView(x.r.State)
	if err != nil {
		return register.Lost{}, k, err
	}
	kept, err := nodestate.ReadSecrets(x.r.State)
	if err == nil && kept.Current.Secret == "" {
		err = errors.New("the secret is not known here")
	}
	if err != nil {
		return register.Lost{}, k, err
	}
	id, err := p2p.LoadIdentity(x.r.State)
	if err != nil {
		return register.Lost{}, k, err
	}
	w, err := v.Again(id.ID().String(), member.Inc(rand.Uint64()|1), time.Now().UTC().Format(time.RFC3339))
	if err != nil {
		return register.Lost{}, k, err
	}
	return register.Lost{
		Cluster: k.Cluster, Secret: []byte(kept.Current.Secret), Generation: kept.Current.Generation, Stored: k.Stored, View: w,
	}, k, nil
}

// open opens the shared directory, which is not the bare one on which the storage
// is not mounted.
func (x *restoration) open(k nodestate.View) (*os.File, error) {
	root, err := mountpoint.OpenAgain(x.r.Source, x.r.Mountpoint)
	if err != nil {
		return nil, fmt.Errorf("the shared directory %s: %w", x.r.Source, err)
	}
	marks, err := nodestate.MarksOf(root)
	if err == nil && marks != k.Root && !x.moved {
		err = exitcode.With(exitcode.Refused, fmt.Errorf("%s is not the directory that it was: is the storage mounted? If the directory was removed and made anew, give --new-directory; nothing was changed", x.r.Source))
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
}

// gone is an error if something of a cluster is there.
func gone(d *register.Dir) error {
	switch ok, err := d.Gone(); {
	case err != nil:
		return err
	case !ok:
		return exitcode.With(exitcode.Refused, fmt.Errorf("%w: there is nothing to restore; \"dmxfs status\" tells what a mount waits for", register.ErrThere))
	}
	return nil
}

// await waits for a time in which nothing of the cluster may turn up, and until no
// daemon of this mount is left; the result keeps it so.
func (x *restoration) await(ctx context.Context, d *register.Dir, needed time.Duration) (*os.File, error) {
	fmt.Fprintf(x.messages, "waiting %v, until no daemon can hold a lock by what was there\n", needed.Round(time.Second))
	lock, err := os.Open(filepath.Join(x.r.State, "lock"))
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; {
		if err := gone(d); err != nil {
			lock.Close()
			return nil, err
		}
		if time.Since(began) >= needed {
			if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
				return lock, nil
			}
		}
		select {
		case <-ctx.Done():
			lock.Close()
			return nil, context.Cause(ctx)
		case <-tick.C:
		}
	}
}
