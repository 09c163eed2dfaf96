package top

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/snapshot"
	"github.com/dmxfs/dmxfs/internal/waitgraph"
)

// cluster is a source with two hosts: a holder, one that waits for it since
// long, and a silent one.
type cluster struct {
	mu     sync.Mutex
	asked  int
	broken []string
}

const hostile = "\x1b[31m\u202e\n</b>"

func (c *cluster) answers() []waitgraph.Answer {
	row := func(state, path string, pid int, age time.Duration) waitgraph.Row {
		return waitgraph.Row{Path: path, Class: "flock", Mode: "W", End: -1, State: state, PID: pid, Command: "prog" + hostile, Since: time.Now().Add(-age), File: "i" + path,
			Request: uint64(pid), Owner: uint64(pid), Shared: true}
	}
	wait := row("waiting", "db", 22, time.Minute)
	wait.Remote = []string{"A"}
	return []waitgraph.Answer{
		{Member: waitgraph.Member{ID: "A", Host: "one", State: "live", Answered: true}, Rows: []waitgraph.Row{row("held", "db", 11, 2*time.Minute), row("held", "log", 12, time.Second)}},
		{Member: waitgraph.Member{ID: "B", Host: "two", State: "live", Answered: true}, Rows: []waitgraph.Row{wait}},
		{Member: waitgraph.Member{ID: "C", Host: "three", State: "silent", Error: "no answer within 700ms"}},
	}
}

func (c *cluster) Status(context.Context) (snapshot.Status, error) {
	return snapshot.Status{Mount: "/mnt/shared", State: "live", Epoch: 7, Members: 3, Self: "A"}, nil
}

func (c *cluster) Peers(context.Context) (snapshot.Peers, error) {
	return snapshot.Peers{Self: "A", Members: []snapshot.Peer{{ID: "A", Host: "one"}, {ID: "B", Host: "two"}, {ID: "C", Host: "three"}}}, nil
}

func (c *cluster) Locks(context.Context, time.Duration) (v snapshot.Locks, err error) {
	for _, a := range c.answers() {
		for _, r := range a.Rows {
			l := snapshot.Lock{Path: r.Path, Class: r.Class, Mode: r.Mode, End: r.End, State: r.State, Node: a.Member.ID, Host: a.Member.Host, PID: r.PID,
				Command: r.Command, Since: r.Since, File: r.File, Request: r.Request}
			if r.State == snapshot.Waiting {
				l.WaitsFor = []snapshot.Blocker{{Node: "A", Host: "one", PID: 11, Command: "prog"}}
			}
			v.Locks = append(v.Locks, l)
		}
	}
	v.Missing = []string{"three (C): no answer"}
	return v, nil
}

func (c *cluster) Waits(context.Context, time.Duration) (*waitgraph.Graph, error) {
	return waitgraph.Build(time.Now(), "A", c.answers()), nil
}

func (c *cluster) Policy(context.Context) (v snapshot.Policy, err error) { return v, nil }
func (c *cluster) Remove(context.Context, string, string) error          { return nil }
func (c *cluster) Journal(context.Context, url.Values, func(snapshot.Record) error) error {
	return nil
}

func (c *cluster) Break(_ context.Context, locks []snapshot.Lock, reason string) (snapshot.Broken, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range locks {
		c.broken = append(c.broken, fmt.Sprintf("%s %d: %s", l.Path, l.PID, reason))
	}
	return snapshot.Broken{Broken: locks}, nil
}

func (c *cluster) Counters(context.Context) (Counters, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	return ReadCounters(time.Unix(int64(c.asked), 0), strings.NewReader(fmt.Sprintf(
		"# TYPE dmxfs_lock_grants_total counter\ndmxfs_lock_grants_total{class=\"flock} 9\",algorithm=\"rw\"} %d\ndmxfs_lock_grants_total{class=\"open\"} 5 17\nother 3\n", 100*c.asked)))
}

func press(m Model, keys ...string) (Model, tea.Cmd) {
	var cmd tea.Cmd
	for _, k := range keys {
		msg := tea.KeyPressMsg{Code: []rune(k)[0], Text: k}
		switch k {
		case "enter":
			msg = tea.KeyPressMsg{Code: tea.KeyEnter}
		case "esc":
			msg = tea.KeyPressMsg{Code: tea.KeyEscape}
		case "down":
			msg = tea.KeyPressMsg{Code: tea.KeyDown}
		case "up":
			msg = tea.KeyPressMsg{Code: tea.KeyUp}
		case "pgdown":
			msg = tea.KeyPressMsg{Code: tea.KeyPgDown}
		case "backspace":
			msg = tea.KeyPressMsg{Code: tea.KeyBackspace}
		}
		var next tea.Model
		next, cmd = m.Update(msg)
		m = next.(Model)
	}
	return m, cmd
}

// started is a view with a snapshot of c.
func started(t *testing.T, c *cluster) Model {
	t.Helper()
	m := NewModel(10*time.Second, breaker(t.Context(), c, "user root on one"))
	next, _ := m.Update(tea.WindowSizeMsg{Width: 120, Height: 30})
	first, counters := look(t.Context(), c, nil, Counters{})
	second, _ := look(t.Context(), c, first.snap, counters)
	next, _ = next.Update(second)
	return next.(Model)
}

func screen(m Model) string { return ansi.Strip(strings.Join(m.lines(), "\n")) }

func typed(text string) []string { return strings.Split(text, "") }

func TestWhatIsShown(t *testing.T) {
	t.Parallel()
	m := started(t, &cluster{})
	s := screen(m)
	for _, want := range []string{"/mnt/shared", "1 waits, 2 held", "100 grants", "host three is silent", "waiting  1 min 0 s", "db ← one 11 (prog)"} {
		if !strings.Contains(s, want) {
			t.Errorf("%q is not on the screen:\n%s", want, s)
		}
	}
	if w, h := strings.Index(s, "waiting  "), strings.Index(s, "held  "); w > h {
		t.Error("locks that are held come before those that wait")
	}
	m, _ = press(m, "enter")
	if s := screen(m); !strings.Contains(s, "what frees it") || !strings.Contains(s, "11") {
		t.Errorf("no story:\n%s", s)
	}
	m, _ = press(m, "esc", "down", "enter")
	if s := screen(m); !strings.Contains(s, "Who waits for it:") {
		t.Errorf("no story of the lock that is held:\n%s", s)
	}
}

func TestSortSearchAndStates(t *testing.T) {
	t.Parallel()
	m := started(t, &cluster{})
	m, _ = press(m, "/", "l", "o", "g")
	if len(m.rows) != 1 || m.rows[0].Path != "log" {
		t.Errorf("the search finds %v", m.rows)
	}
	m, _ = press(m, "backspace", "enter", "esc")
	if len(m.rows) != 3 || m.query.Words != "" {
		t.Errorf("after Esc there are %d rows for %q", len(m.rows), m.query.Words)
	}
	m, _ = press(m, "s", "s") // by path
	if m.query.Sort != "path" || m.rows[2].Path != "log" {
		t.Errorf("sorted by %q: %v", m.query.Sort, m.rows)
	}
	m, _ = press(m, "r")
	if m.rows[0].Path != "log" {
		t.Error("the order is not reversed")
	}
	m, _ = press(m, "h")
	if len(m.rows) != 1 || m.rows[0].State != snapshot.Waiting {
		t.Errorf("of those that wait: %v", m.rows)
	}
}

func TestBreakAsksForAReason(t *testing.T) {
	t.Parallel()
	c := &cluster{}
	m := started(t, c)
	m, cmd := press(m, "b") // the first row waits
	if cmd != nil || m.mode != listing || !strings.Contains(m.message, "only a lock that a program holds") {
		t.Errorf("a wait is to be broken: %q", m.message)
	}
	m, cmd = press(m, "down", "b", "enter")
	if cmd != nil || m.mode != reasoning {
		t.Error("without a reason it goes on")
	}
	m, cmd = press(m, append(typed("it hangs"), "enter", "n")...)
	if cmd != nil || m.mode != listing || m.message != "nothing was broken" {
		t.Errorf("n breaks it: %q", m.message)
	}
	m, cmd = press(m, append(append([]string{"b"}, typed(" it hangs")...), "enter", "y")...)
	if cmd == nil || !m.busy {
		t.Fatal("y breaks nothing")
	}
	next, _ := m.Update(cmd())
	m = next.(Model)
	if len(c.broken) != 1 || c.broken[0] != "db 11: it hangs (asked for in dmxfs top by user root on one)" {
		t.Errorf("broken: %q", c.broken)
	}
	if m.busy || !strings.Contains(screen(m), "broken: db, held by prog") {
		t.Errorf("it is not told:\n%s", screen(m))
	}
	next, _ = m.Update(done{err: errors.New("no")})
	if s := screen(next.(Model)); !strings.Contains(s, "that failed: no") {
		t.Error("a failure is not told")
	}
}

// TestAnyKeys: whatever is typed, on a screen of whatever size, the screen has
// its size, nothing that terminals obey but our styles is on it, and no lock is
// broken but by b, a reason, Enter and y.
func TestAnyKeys(t *testing.T) {
	t.Parallel()
	keys := []string{"up", "down", "pgdown", "enter", "esc", "backspace", "s", "r", "h", "/", "b", "x", "g", "G", "j", "k", "n", " "}
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := &cluster{}
		m := started(t, c)
		for i := range 150 {
			switch rng.IntN(12) {
			case 0:
				next, _ := m.Update(tea.WindowSizeMsg{Width: rng.IntN(150), Height: rng.IntN(40)})
				m = next.(Model)
			case 1:
				s, _ := look(t.Context(), c, nil, Counters{})
				if rng.IntN(2) == 0 {
					s.snap.Locks = s.snap.Locks[:rng.IntN(len(s.snap.Locks))]
				}
				next, _ := m.Update(s)
				m = next.(Model)
			default:
				var cmd tea.Cmd
				if m, cmd = press(m, keys[rng.IntN(len(keys))]); cmd != nil {
					t.Fatalf("seed %d, key %d: an order without y", seed, i)
				}
			}
			lines := m.lines()
			if len(lines) > m.height {
				t.Fatalf("seed %d, key %d: %d lines on a screen of %d", seed, i, len(lines), m.height)
			}
			for _, l := range lines {
				if ansi.StringWidth(l) > m.width {
					t.Fatalf("seed %d, key %d: %q is wider than %d", seed, i, l, m.width)
				}
				if strings.ContainsFunc(ansi.Strip(l), func(r rune) bool { return r < ' ' || r == '\u202e' }) || strings.Contains(l, "\x1b[31m\u202e") {
					t.Fatalf("seed %d, key %d: %q has what terminals obey", seed, i, l)
				}
			}
		}
	}
}

func TestOnce(t *testing.T) {
	t.Parallel()
	o, err := TakeOnce(t.Context(), &cluster{}, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := o.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"100 grants", "host three is silent", "one", "1 min 0 s", " db ← "} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in the table:\n%s", want, b.String())
		}
	}
	if strings.ContainsAny(b.String(), "\x1b\u202e") {
		t.Errorf("the table has what terminals obey: %q", b.String())
	}
	b.Reset()
	for i := range o.Hosts { // now all three are mounts of one host
		o.Hosts[i].Host = "vm"
	}
	o.Silent[0].Host = "vm"
	if err := o.WriteTable(&b); err != nil || !strings.Contains(b.String(), "host vm (…C) is silent") || !strings.Contains(b.String(), "\nvm (…A) ") {
		t.Errorf("the table does not tell hosts of one name apart (error %v):\n%s", err, b.String())
	}
	b.Reset()
	if err := o.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var v Once
	if err := json.Unmarshal(b.Bytes(), &v); err != nil || len(v.Waits) != 1 || len(v.Silent) != 1 || v.Rates.Grants != 100 {
		t.Errorf("JSON: %v %s", err, b.String())
	}
}

// TestOnATerminal shows the view on a pseudo-terminal, and quits.
func TestOnATerminal(t *testing.T) {
	t.Parallel()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	defer master.Close()
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 120}); err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	defer terminal.Close()
	ended := make(chan error, 1)
	go func() {
		ended <- Run(t.Context(), &cluster{}, terminal, terminal, 100*time.Millisecond, time.Second, "somebody")
	}()
	var seen strings.Builder
	for b := make([]byte, 4096); !strings.Contains(seen.String(), "is silent"); {
		n, err := master.Read(b)
		if err != nil {
			t.Fatalf("%v after %q", err, seen.String())
		}
		seen.Write(b[:n])
	}
	if _, err := master.WriteString("q"); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, master) }() // it does not wait for who reads
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
