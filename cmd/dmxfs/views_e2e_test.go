package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/top"
	"github.com/dmxfs/dmxfs/internal/waitgraph"
)

// viewsAgree: the page and the terminal view of a mount show the wait w, for a
// process holder, and that a member is silent.
func viewsAgree(t *testing.T, m *testMount, w *waitgraph.Wait, holder int, silent string) {
	t.Helper()
	var o top.Once
	if err := m.getJSON(&o, "top", "--interval", "100ms"); err != nil {
		t.Fatal(err)
	}
	if len(o.Waits) != 1 || o.Waits[0].PID != w.PID || !o.Waits[0].Since.Equal(w.Since) || len(o.Waits[0].For) == 0 || o.Waits[0].For[0].PID != holder {
		t.Errorf("top says %+v, why %+v", o.Waits, w)
	}
	if len(o.Silent) != 1 || o.Silent[0].ID != silent {
		t.Errorf("top: silent are %+v, want %s", o.Silent, silent)
	}
	began := time.Now()
	page := onThePage(t, m)
	t.Logf("the page is there after %v (goal: 3 s)", time.Since(began).Round(time.Millisecond))
	for _, want := range []string{fmt.Sprintf(">flock %d</text>", w.PID), fmt.Sprintf(">flock %d</text>", holder), "is silent", fmt.Sprintf(`data-since="%d"`, w.Since.UnixMilli())} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
}

// onThePage is the first page of a mount's cluster.
func onThePage(t *testing.T, m *testMount) string {
	t.Helper()
	cmd := m.c.cmd("web", m.dir)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("dmxfs web ends with: %v", err)
		}
	}()
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, Timeout: time.Minute}
	get := func(url string) string {
		t.Helper()
		r, err := browser.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %s %v", url, r.Status, b, err)
		}
		return string(b)
	}
	url = strings.TrimSpace(url)
	next := regexp.MustCompile(`url=(/[^"]+)`).FindStringSubmatch(get(url))
	if next == nil {
		t.Fatal("the token leads nowhere")
	}
	host, _, _ := strings.Cut(url, "/?")
	return get(host + next[1])
}
