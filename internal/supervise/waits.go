package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/config"
	"github.com/dmxfs/dmxfs/internal/version"
)

// While a mount has no daemon, its watcher answers `dmxfs status`, on a socket
// of its own: a full disk does not keep it from that.

const watcherSocket = "watcher.sock"

// waits is what a watcher tells while there is no daemon.
type waits struct {
	mu    sync.Mutex
	why   error // nil: there is a daemon
	since time.Time
	tries int
}

// begin says that there is no daemon, and why.
func (w *waits) begin(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.why == nil {
		w.since, w.tries = time.Now(), 0
	}
	w.why = why
	w.tries++
}

// end says that there is one.
func (w *waits) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.why = nil
}

func (w *waits) status(cfg config.Config) admin.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	j := admin.Status{
		Mount: cfg.Mountpoint, Source: cfg.Source, StateDir: cfg.State, FileID: cfg.FileID, Version: version.String(),
		PID: os.Getpid(), State: "waiting", Problems: []string{"the daemon is being started"},
	}
	if w.why != nil {
		j.Problems = []string{fmt.Sprintf("no daemon has served the mount for %v; it was started in vain %d times, and is started again in some seconds: %v",
			time.Since(w.since).Round(time.Second), w.tries, w.why)}
	}
	return j
}

// answer tells who asks what is waited for, until stop is called.
func (w *waits) answer(cfg config.Config) (stop func(), err error) {
	l, err := admin.ListenOn(cfg.State, watcherSocket)
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // too many open files, say
				time.Sleep(time.Second)
				continue
			}
			_ = c.SetDeadline(time.Now().Add(time.Second))
			_ = json.NewEncoder(c).Encode(w.status(cfg)) // who has gone needs no answer
			c.Close()
		}
	}()
	return func() { l.Close(); <-done }, nil
}

// AskWatcher is the status of a mount that has no daemon, but a watcher.
func AskWatcher(state string, v *admin.Status) error {
	path, done, err := admin.SocketPath(state, watcherSocket)
	if err != nil {
		return err
	}
	defer done()
	c, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	return json.NewDecoder(c).Decode(v)
}
