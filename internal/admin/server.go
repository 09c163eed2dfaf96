package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/exitcode"
)

// SocketName is the control socket in a state directory, which only its owner can
// enter.
const SocketName = "control.sock"

// SocketPath is a path to a socket of the state directory dir that fits into a
// socket address (108 bytes), whatever the length of dir. done ends its use.
func SocketPath(dir, name string) (path string, done func(), err error) {
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

// Listen opens the control socket. The caller holds the lock of dir, so a socket
// that is there is a former daemon's.
func Listen(dir string) (net.Listener, error) { return ListenOn(dir, SocketName) }

// ListenOn opens a socket of the state directory dir that only its owner can use.
func ListenOn(dir, name string) (net.Listener, error) {
	path, done, err := SocketPath(dir, name)
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

// Serve answers on l until ctx ends. Orders whose giver has gone by the time
// that they are read are refused.
func Serve(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger) error {
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

// Reply writes v, or err if it is not nil, as JSON.
func Reply(w http.ResponseWriter, v any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(http.StatusUnprocessableEntity)
		v = problem{err.Error(), exitcode.Of(err)}
	}
	_ = json.NewEncoder(w).Encode(v) // a client that went away needs no answer
}

// Send answers with a, row after row. In one piece the text of very many would be
// copied again and again while it grows, which nothing interrupts; and who asks
// would hear nothing until all of it is there.
func (a *Locks) Send(w http.ResponseWriter) {
	if len(a.Locks) == 0 {
		Reply(w, a, nil)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	b := bufio.NewWriterSize(w, 1<<16)
	defer b.Flush()
	enc, between := json.NewEncoder(b), `{"locks":[`
	for i := range a.Locks {
		b.WriteString(between)
		if enc.Encode(&a.Locks[i]) != nil {
			return // a client that went away needs no answer
		}
		between = ","
	}
	b.WriteString(`],"missing":`)
	_ = enc.Encode(a.Missing)
	b.WriteString("}")
}
