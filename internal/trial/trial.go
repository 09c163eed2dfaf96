package trial

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/mountpoint"
	"github.com/dmxfs/dmxfs/internal/privileges"
	"github.com/dmxfs/dmxfs/internal/process"
	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/internal/trouble"
	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/p2p/register"
)

const (
	// Command is the hidden command that runs [Serve].
	Command = "try-storage"
	// patience is how long the storage may take for all of the trial.
	patience = 10 * time.Second
)

// message is how far the trial has come, or, with End, what came out.
type message struct {
	Doing string `json:"doing,omitempty"`
	End   bool   `json:"end,omitempty"`
	Error string `json:"error,omitempty"`
	Code  int    `json:"code,omitempty"`
}

// Try is the reason why the storage of a first mount cannot be used, or
// nil. Who was a member of its cluster knows that it can, and waits for storage
// that does not answer.
func Try(ctx context.Context, cfg config.Config) error {
	if known, err := journal.ClusterOf(filepath.Join(cfg.State, "journal")); err != nil || known != "" {
		return nil // what is wrong with the state directory is told by who opens it
	}
	in, err := json.Marshal(cfg)
	if err != nil {
		return err
	}
	r, tell, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/exe", Command, cfg.Source)
	cmd.Args[0] = process.Name
	cmd.Dir = "/"
	cmd.Stdin = bytes.NewReader(in)
	cmd.ExtraFiles = []*os.File{tell}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = privileges.Start(cmd, cfg.FenceCommand != "")
	tell.Close()
	if err != nil {
		return fmt.Errorf("start the trial of the storage: %w", err)
	}
	go func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }() // it ends when the storage answers, if not now
	return awaitTrial(ctx, cfg, messages(r))
}

// messages are those that come from r, until it ends.
func messages(r *os.File) <-chan message {
	c := make(chan message, 64) // more than a trial has steps
	go func() {
		defer close(c)
		for in := json.NewDecoder(r); ; {
			var m message
			if in.Decode(&m) != nil {
				return
			}
			c <- m
		}
	}()
	return c
}

// awaitTrial returns with what came out, or when it takes too long. The time
// counts from the first message: until then it is this host that is slow.
func awaitTrial(ctx context.Context, cfg config.Config, said <-chan message) error {
	var late <-chan time.Time
	doing := ""
	for {
		select {
		case m, ok := <-said:
			switch {
			case !ok:
				return errors.New("the trial of the storage has ended without a word")
			case m.End && m.Error == "":
				return nil // it has closed the directory: an unmount is not busy
			case m.End:
				return exitcode.With(m.Code, errors.New(m.Error))
			}
			if doing = m.Doing; late == nil {
				late = time.After(patience)
			}
		case <-late:
			return fmt.Errorf("%s: the storage does not answer: %s takes more than %v; see whether its server can be reached, and the log of its client. Nothing was mounted", cfg.Source, doing, patience)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tellFD is where the process that tries the storage tells how far it is.
const tellFD = 3

// Serve is the process that tries the storage, with the settings of the mount from in.
func Serve(in io.Reader) error {
	process.TakeName()
	var cfg config.Config
	if err := json.NewDecoder(in).Decode(&cfg); err != nil {
		return exitcode.With(exitcode.Usage, fmt.Errorf("configuration on standard input: %w", err))
	}
	tell := json.NewEncoder(os.NewFile(tellFD, "trial"))
	m := message{End: true}
	if err := trial(cfg, func(step string) { _ = tell.Encode(message{Doing: step}) }); err != nil {
		m.Error, m.Code = err.Error(), exitcode.Of(err)
	}
	return tell.Encode(m)
}

// trial opens the shared directory as the daemon will, and tries what it needs
// there.
func trial(cfg config.Config, doing func(step string)) error {
	doing("opening it")
	dead := mountpoint.IsDead(cfg.Mountpoint)
	root, err := mountpoint.OpenSource(cfg)
	if err != nil {
		return err
	}
	defer root.Close()
	if dead {
		return nil // there was a mount already
	}
	doing("finding out what it is")
	if err := statedir.Outside(cfg.State, int(root.Fd())); err != nil {
		return err
	}
	storage, err := fusefs.StorageOf(int(root.Fd()))
	if err != nil {
		return err
	}
	d := register.NewDir(root, cfg.Source, "trial")
	if cfg.Join && !d.HasCluster() {
		return nil // the daemon says so, and nothing is made there
	}
	err = d.Trial(storage.Type, doing)
	return exitcode.With(trouble.StorageCode(err), err)
}
