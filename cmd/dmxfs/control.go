package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// The control socket: HTTP on a unix socket in the state directory, which
// only its owner can enter.

const socketName = "control.sock"

// socketPath is a path to a socket of the state directory dir that fits into a
// socket address (108 bytes), whatever the length of dir. done ends its use.
func socketPath(dir, name string) (path string, done func(), err error) {
	path = filepath.Join(dir, name)
	if len(path) < 100 {
		return path, func() {}, nil
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, fmt.Errorf("open %s: %w", dir, err)
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", fd, name), func() { unix.Close(fd) }, nil
}

// listenControl opens the socket. The caller holds the lock of dir, so a
// socket that is there is a former daemon's.
func listenControl(dir string) (net.Listener, error) { return listenOn(dir, socketName) }

func listenOn(dir, name string) (net.Listener, error) {
	path, done, err := socketPath(dir, name)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove an old control socket: %w", err)
	}
	// The mode that a socket has when it gets its name is that of the file,
	// whatever the umask, which is that of the mount.
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, failed)
	}}
	l, err := private.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // the path may be gone; the next daemon removes it
	return l, nil
}

// serveControl answers on l until ctx ends.
func serveControl(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger) error {
	s := &http.Server{
		Handler:           ordersOfThePresent(h, log),
		ConnContext:       withConn,
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		// Who asked for the end still gets its answer.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if s.Shutdown(ctx) != nil {
			_ = s.Close()
		}
	})
	err := s.Serve(l)
	if !stop() {
		<-done
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("control socket: %w", err)
	}
	return nil
}

// problem is how a failure is told over the socket.
type problem struct {
	Error string `json:"error"`
	Code  int    `json:"code"` // the exit number
}

// reply writes v, or err if it is not nil, as JSON.
func reply(w http.ResponseWriter, v any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(http.StatusUnprocessableEntity)
		v = problem{err.Error(), exitCode(err)}
	}
	_ = json.NewEncoder(w).Encode(v) // a client that went away needs no answer
}

// client speaks to the daemon of a state directory.
type client struct {
	state string
	http  http.Client
	// messages is told when there is no answer for as long as patience.
	messages io.Writer
	patience time.Duration
	// timeout is how long an exchange may take until the answer begins.
	timeout time.Duration
}

func newClient(state string) *client {
	c := &client{state: state, messages: os.Stderr, patience: 5 * time.Second, timeout: orderTime}
	c.http.Transport = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			path, done, err := socketPath(state, socketName)
			if err != nil {
				return nil, err
			}
			defer done()
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
		DisableKeepAlives: true,
	}
	return c
}

// errNoDaemon: nobody answers on the socket.
var errNoDaemon = errors.New("no dmxfs daemon answers")

// do sends a request and returns the open answer.
func (c *client) do(ctx context.Context, method, path string) (*http.Response, error) {
	return c.send(ctx, method, path, nil)
}

// send is do with a body.
func (c *client) send(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(c.timeout, func() {
		cancel(fmt.Errorf("no answer for %v (--timeout): is the daemon stopped, or does the storage hang?", c.timeout))
	})
	defer late.Stop()
	req, err := http.NewRequestWithContext(ctx, method, "http://dmxfs"+path, body)
	if err != nil {
		return nil, err
	}
	impatient := time.AfterFunc(c.patience, func() {
		fmt.Fprintf(c.messages, "dmxfs: the daemon has not answered for %v: it is busy, or stopped, or the storage hangs; still waiting (Ctrl-C ends that)\n",
			c.patience)
	})
	defer impatient.Stop()
	resp, err := c.http.Do(req)
	if err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
			return nil, withCode(exitNoMount, errNoDaemon)
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("ask the daemon: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	var p problem
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || p.Error == "" {
		return nil, fmt.Errorf("the daemon answers: %s", resp.Status)
	}
	return nil, withCode(p.Code, errors.New(p.Error))
}

// get asks for path and decodes the answer.
func (c *client) get(ctx context.Context, path string, v any) error {
	ctx, cancel := context.WithTimeout(ctx, 2*c.timeout) // an answer that stops in its middle
	defer cancel()
	resp, err := c.do(ctx, http.MethodGet, path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(v); err != nil {
		return fmt.Errorf("the daemon's answer cannot be read: %w", err)
	}
	return nil
}

// clientFor is the client for the daemon of a mount point.
func clientFor(args []string) (*client, registration, error) {
	point, err := whichMount(args)
	if err != nil {
		return nil, registration{}, err
	}
	r, err := registered(point)
	if err != nil {
		return nil, r, err
	}
	return newClient(r.State), r, nil
}

// askTimeoutFlag gives a command, a time after which each of
// its questions and orders is given up.
func askTimeoutFlag(c *cobra.Command, byDefault time.Duration) (clientWithin func(args []string) (*client, registration, error)) {
	d := c.Flags().Duration("timeout", byDefault, "how long to wait for the daemon; what it has not begun with by then it does not do")
	return func(args []string) (*client, registration, error) {
		cl, r, err := clientFor(args)
		if err == nil {
			cl.timeout = *d
		}
		return cl, r, err
	}
}
