package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/metrics"
	"github.com/dmxfs/dmxfs/internal/waitgraph"
)

// TestLooksAgree: with three hosts, one of which stands still, all that shows who
// waits for whom and since when says the same, answers in time, and names the one that
// is silent.
func TestLooksAgree(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, "--tenure", "60s", "--metrics", "127.0.0.1:0", "--fence-command", "power off --password hunter2-of-test")
	a, b, still := c.mounts[0], c.mounts[1], c.mounts[2]
	if out, code := a.sh("head -c 100000 /dev/zero >bytes"); code != 0 {
		t.Fatal(out)
	}
	if n := value(t, a, "dmxfs_fuse_written_bytes_total", nil); n != 100_000 {
		t.Errorf("metrics say that %v bytes were written, want 100000", n)
	}
	overHTTP(t, a)
	holder := a.start("exec flock x sleep 600")
	b.held("x", 1)
	waiter := b.start("exec flock x sleep 600")
	b.blocked("x", 1)
	// The journal has it a tenth of a second later.
	await(t, "the wait is in the journal", func() bool { return len(b.journal("--event", "waiting", "--path", "x")) == 1 })
	ids := map[*testMount]string{}
	for _, m := range c.mounts {
		s, err := m.status()
		if err != nil {
			t.Fatal(err)
		}
		ids[m] = s.Self
	}
	still.signal(unix.SIGSTOP)
	t.Cleanup(func() { still.signal(unix.SIGCONT) })
	await(t, "the others know it as silent", func() bool { return members(t, b, "silent") == 1 })

	// The commands end with an error if they get no answer within 3 s.
	if out, err := c.try("--state", still.state, c.src, still.dir); code(err) != exitcode.Busy || !strings.Contains(fmt.Sprint(out, err), "has not answered for 3s") {
		t.Errorf("a mount over one that hangs: %v\n%s", err, out)
	}
	if _, err := c.try("journal", "--explain", "x", still.dir); err == nil || strings.Count(err.Error(), "no answer for 3s") != 1 {
		t.Errorf("the story of a daemon that is stopped: %v", err)
	}
	var why waitgraph.Story
	if err := b.getJSON(&why, "why", fmt.Sprint(waiter.cmd.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	w := agree(t, "why", &why, ids[a], ids[still], holder.cmd.Process.Pid, waiter.cmd.Process.Pid)
	explained(t, b, b.path("x"), w, ids[a], ids[still], holder.cmd.Process.Pid)
	explained(t, a, "x", w, ids[a], ids[still], holder.cmd.Process.Pid) // and on the other host
	viewsAgree(t, b, w, holder.cmd.Process.Pid, ids[still])
	if n := value(t, b, "dmxfs_lock_requests_waiting", nil); n != 1 {
		t.Errorf("metrics say that %v requests wait, want 1", n)
	}
	if n := value(t, b, "dmxfs_lock_requests_waiting_for_peer", map[string]string{"peer": ids[a]}); n != 1 {
		t.Errorf("metrics say that %v requests wait for the holder, want 1", n)
	}
	before := time.Since(w.Since).Seconds()
	if age := value(t, b, "dmxfs_lock_oldest_wait_seconds", nil); age < before-0.1 || age > time.Since(w.Since).Seconds()+0.1 {
		t.Errorf("metrics say that it waits for %v s, why for more than %v", age, before)
	}
	for _, x := range []struct{ want, args string }{
		{"x", "why "}, {fmt.Sprint(waiter.cmd.Process.Pid), "why "}, {"x", "journal --explain "}, {ids[still], "peers remove "}, {b.dir, "locks "}, {b.dir, "why x "},
	} {
		// It offers what it has after a moment, which may be nothing on a busy machine.
		await(t, fmt.Sprintf("completion of %q offers %s", x.args, x.want), func() bool {
			out := c.run(append([]string{"__complete"}, strings.Split(x.args, " ")...)...)
			return strings.Contains("\n"+out, "\n"+x.want+"\n")
		})
	}
	out, err := c.try("support", "-o", filepath.Join(c.dir, "s.tar.gz"), b.dir)
	if err != nil || !strings.Contains(out, "waits.json") || !strings.Contains(out, "has not run dmxfs doctor") {
		t.Fatalf("support: %v\n%s", err, out)
	}
	noSecrets(t, c, b, filepath.Join(c.dir, "s.tar.gz"))
}

// explained has a mount tell the story of a file, which must be that of the wait w.
func explained(t *testing.T, m *testMount, path string, w *waitgraph.Wait, holderNode, silent string, holder int) {
	t.Helper()
	var told fileStory
	if err := m.getJSON(&told, "journal", "--explain", path); err != nil {
		t.Fatal(err)
	}
	x := agree(t, "explain", told.Now, holderNode, silent, holder, w.PID)
	if !x.Since.Equal(w.Since) {
		t.Errorf("explain says that it waits since %v, why since %v", x.Since, w.Since)
	}
	sentence := fmt.Sprintf("process %d (flock) on host %s waits since ", w.PID, w.Host)
	for _, s := range told.Sentences {
		if rest, ok := strings.CutPrefix(s.Text, sentence); ok {
			clock, _, _ := strings.Cut(rest, " ")
			at, err := time.Parse("2006-01-02 15:04:05.000Z", w.Since.UTC().Format("2006-01-02 ")+clock)
			if late := at.Sub(w.Since); err != nil || late < -time.Millisecond && late > -23*time.Hour || late > 10*time.Second {
				t.Errorf("the story says that it waits since %s, why since %v (error %v)", clock, w.Since, err)
			}
			if len(told.Silent) != 1 || told.Silent[0].ID != silent {
				t.Errorf("the story does not say that %s is silent, but %+v", silent, told.Silent)
			}
			return
		}
	}
	t.Errorf("no sentence %q: %+v", sentence, told.Sentences)
}

// agree looks at the first wait of a story, and returns it.
func agree(t *testing.T, what string, s *waitgraph.Story, holderNode, silent string, holder, waiter int) *waitgraph.Wait {
	t.Helper()
	if len(s.Steps) == 0 || s.Steps[0].Wait == nil || s.Steps[0].Wait.PID != waiter {
		t.Fatalf("%s: the first step is not the wait of process %d: %+v", what, waiter, s)
	}
	w := s.Steps[0].Wait
	if len(w.For) == 0 || w.For[0].Kind != waitgraph.Holds || w.For[0].PID != holder || w.For[0].Node != holderNode {
		t.Errorf("%s: process %d waits for %+v, want process %d of %s", what, waiter, w.For, holder, holderNode)
	}
	if len(s.Ends) == 0 || s.Ends[0].PID != holder {
		t.Errorf("%s: the chain ends with %+v, want process %d", what, s.Ends, holder)
	}
	if len(s.Silent) != 1 || s.Silent[0].ID != silent {
		t.Errorf("%s: silent are %+v, want %s", what, s.Silent, silent)
	}
	return w
}

// value is a metric of a mount, of the sample with these labels.
func value(t *testing.T, m *testMount, name string, labels map[string]string) float64 {
	t.Helper()
	var all []metrics.Family
	if err := m.getJSON(&all, "metrics"); err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		for _, s := range f.Samples {
			match := f.Name == name
			for k, v := range labels {
				match = match && s.Labels[k] == v
			}
			if match && s.Value != nil {
				return *s.Value
			}
		}
	}
	return 0
}

// overHTTP reads the metrics of a mount as Prometheus does, at the address of its log.
func overHTTP(t *testing.T, m *testMount) {
	t.Helper()
	_, log, _ := strings.Cut(m.log(), "url=")
	url, _, _ := strings.Cut(log, "\n")
	for path, want := range map[string]int{url: http.StatusOK, url + "?paths=5": http.StatusBadRequest} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != want || want == http.StatusOK && !bytes.Contains(b, []byte("\ndmxfs_granting 1\n")) {
			t.Errorf("%s: %d, want %d (error %v)", path, resp.StatusCode, want, err)
		}
	}
}

func members(t *testing.T, m *testMount, state string) float64 {
	return value(t, m, "dmxfs_members", map[string]string{"state": state})
}

// noSecrets looks for what is secret in each file of an archive.
func noSecrets(t *testing.T, c *testCluster, m *testMount, archive string) {
	t.Helper()
	secret, err := os.ReadFile(filepath.Join(c.src, ".dmxfs", "secret"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(m.state, "identity.key"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		for what, s := range map[string][]byte{"secret": bytes.TrimSpace(secret), "key": bytes.TrimSpace(key), "password": []byte("hunter2-of-test")} {
			if bytes.Contains(b, s) {
				t.Errorf("%s has the %s", h.Name, what)
			}
		}
		got[filepath.Base(h.Name)] = string(b)
	}
	for name, has := range map[string]string{
		"README": "journal.jsonl", "status.json": m.state, "waits.json": `"kind":"holds"`, "journal.jsonl": `"event":"waiting"`, "options.json": `"FenceCommand":"[left out]"`,
		"metrics.txt": "dmxfs_epoch", "mounts.txt": m.dir, "storage.txt": ".dmxfs/secret", "versions.json": `"kernel"`, "dmxfs.log": "mounted", "state.txt": "identity.key",
	} {
		if !strings.Contains(got[name], has) {
			t.Errorf("%s has no %s: %.200s", name, has, got[name])
		}
	}
}
