package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A daemon that does not answer is waited for, and whoever waits is told.
func TestADaemonThatDoesNotAnswer(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, socketName))
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
	c := newClient(dir)
	c.patience, c.messages = time.Millisecond, writerFunc(func(b []byte) { told <- string(b) })
	resp, err := c.do(context.Background(), http.MethodPost, "/unmount")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if m := <-told; !strings.Contains(m, "has not answered for 1ms") || !strings.Contains(m, "Ctrl-C") {
		t.Errorf("%q", m)
	}
}

type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}
