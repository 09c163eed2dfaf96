package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/admin"
)

// A daemon that does not answer is waited for, and whoever waits is told.
func TestADaemonThatDoesNotAnswer(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, admin.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan string, 1)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		told <- <-told // until the message is there
		_, _ = io.WriteString(w, "done")
	})}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	c := admin.NewClient(dir)
	c.Patience, c.Messages = time.Millisecond, writerFunc(func(b []byte) { told <- string(b) })
	resp, err := c.Do(context.Background(), http.MethodPost, "/unmount")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if m := <-told; !strings.Contains(m, "has not answered for 1ms") || !strings.Contains(m, "Ctrl-C") {
		t.Errorf("%q", m)
	}
}

// A daemon that ends while it has a request is told as that, and what is to be done: whoever
// only asks may ask again, and of an order it is not known whether it was carried out.
func TestADaemonThatEndsMeanwhile(t *testing.T) {
	for how, end := range map[string]func(c *net.UnixConn){
		"end": func(c *net.UnixConn) {
			_, _ = c.Read(make([]byte, 4096))
			c.Close()
		},
		"reset": func(c *net.UnixConn) { c.Close() },
		"half of it": func(c *net.UnixConn) {
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
			c.Close()
		},
	} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			l, err := net.Listen("unix", filepath.Join(dir, admin.SocketName))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					end(c.(*net.UnixConn))
				}
			}()
			cl := admin.NewClient(dir)
			var v any
			if err := cl.Get(t.Context(), "/status", &v); !errors.Is(err, admin.ErrEnded) || !strings.HasSuffix(err.Error(), "ask again") {
				t.Errorf("a question: %v", err)
			}
			resp, err := cl.Do(t.Context(), http.MethodPost, "/unmount")
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			if !errors.Is(err, admin.ErrEnded) || !strings.Contains(err.Error(), "dmxfs status") {
				t.Errorf("an order: %v", err)
			}
		})
	}
}

// Who has less patience than the client is told the same: what the matter may be.
func TestNoAnswerInTime(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, admin.SocketName)) // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := admin.NewClient(dir)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err = c.Do(ctx, http.MethodGet, "/status")
	if err == nil || !strings.Contains(err.Error(), "s (--timeout): is the daemon stopped") {
		t.Errorf("with a deadline: %v", err)
	}
	c.Timeout = time.Millisecond
	if err := c.Get(context.Background(), "/status", new(any)); err == nil || !strings.Contains(err.Error(), "no answer for 1ms (--timeout)") {
		t.Errorf("with a time-out: %v", err)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}

// Whatever the umask is, only its owner can use the socket.
func TestTheSocketIsItsOwners(t *testing.T) {
	old := unix.Umask(0)
	defer unix.Umask(old)
	dir := t.TempDir()
	for range 2 { // also where there was one
		l, err := admin.Listen(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if st, err := os.Stat(filepath.Join(dir, admin.SocketName)); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%v %v", st.Mode(), err)
		}
	}
}

// The answer that is sent row after row is the one that it would be in one piece.
func TestLocksAreSentRowAfterRow(t *testing.T) {
	t.Parallel()
	for n := range 4 {
		a := admin.Locks{}
		for i := range n {
			a.Locks = append(a.Locks, admin.Lock{Path: "<a>\n", Start: uint64(i), WaitsFor: []admin.Blocker{{PID: i}}})
		}
		if n > 2 {
			a.Missing = []string{"b", "c"}
		}
		w := httptest.NewRecorder()
		a.Send(w)
		want, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := json.Compact(&got, w.Body.Bytes()); err != nil || got.String() != string(want) {
			t.Errorf("%d rows: %v, %s, want %s", n, err, &got, want)
		}
		if h := w.Header().Get("Content-Type"); h != "application/json" {
			t.Errorf("%d rows: Content-Type %q", n, h)
		}
	}
}
