package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// Nobody takes what is logged: who logs goes on, what there is no room for is
// counted, and the rest comes in its order.
func TestALogThatStandsStill(t *testing.T) {
	r, w := io.Pipe()
	q := newLogQueue(w)
	q.gap = func(n int) { fmt.Fprintf(q, "%d dropped\n", n) }
	line := strings.Repeat("x", 1000)
	const lines = 3 * maxLogQueue / 1000
	for i := range lines {
		if n, err := fmt.Fprintf(q, "%06d %s\n", i, line); err != nil || n != 1008 {
			t.Fatalf("%d %v", n, err)
		}
	}
	got := make(chan []string)
	go func() {
		b, _ := io.ReadAll(r)
		got <- strings.Split(strings.TrimSpace(string(b)), "\n")
	}()
	q.flush(time.Minute)
	fmt.Fprintf(q, "more\n")
	q.flush(time.Minute)
	w.Close()
	list := <-got
	kept, dropped := len(list)-2, 0
	if _, err := fmt.Sscanf(list[kept], "%d dropped", &dropped); err != nil || kept+dropped != lines || kept != maxLogQueue/1008 || list[kept+1] != "more" {
		t.Errorf("%d lines were kept of %d, then %q and %q: %v", kept, lines, list[kept], list[kept+1], err)
	}
	for i, l := range list[:kept] {
		if !strings.HasPrefix(l, fmt.Sprintf("%06d ", i)) {
			t.Fatalf("line %d is %.10s", i, l)
		}
	}
}

// A process that ends does not wait for ever until its log is taken.
func TestTheEndDoesNotWaitForTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		q := newLogQueue(w)
		fmt.Fprintln(q, "never taken")
		start := time.Now()
		q.flush(lastLogs)
		if d := time.Since(start); d != lastLogs {
			t.Errorf("it took %v", d)
		}
		r.Close()
	})
}

// The process that watches a daemon is stopped, and the pipe between them full. The
// daemon goes on, and what it logs meanwhile is not lost.
func TestAStoppedWatcher(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	m := c.mounts[0]
	if err := unix.Kill(m.watcher, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Kill(m.watcher, unix.SIGCONT) })
	pipe, err := unix.Open(fmt.Sprintf("/proc/%d/fd/2", m.daemon()), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe)
	for _, n := range []int{1 << 16, 1} { // a large write needs much room
		for err = nil; err == nil; {
			_, err = unix.Write(pipe, bytes.Repeat([]byte("\n"), n))
		}
	}
	if err != unix.EAGAIN {
		t.Fatal(err)
	}
	v := m.rotate(1) // logs
	if out, code := m.sh("echo x > f && cat f"); code != 0 || out != "x\n" {
		t.Errorf("%d %q", code, out)
	}
	if s, err := m.status(); err != nil || !s.Healthy {
		t.Errorf("%+v %v", s, err)
	}
	if err := unix.Kill(m.watcher, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	await(t, "the log is whole", func() bool { return strings.Contains(read(t, m.state+"/dmxfs.log"), v.Fingerprint) })
}
