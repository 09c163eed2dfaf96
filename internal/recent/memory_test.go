package recent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func newMemory(tb testing.TB) *Memory {
	tb.Helper()
	m, err := Create()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { m.Close() })
	return m
}

// next is the memory of m as the process after it has it.
func next(tb testing.TB, m *Memory) *Memory {
	tb.Helper()
	fd, err := unix.FcntlInt(uintptr(m.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	n, err := Open(fd)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { n.Close() })
	return n
}

// asks is the answer about n, without waiting.
func (m *Memory) asks(tb testing.TB, n Name, except ...uint64) *Answer {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	cancel()
	a, err := m.Answer(ctx, &Question{Version: Version, Name: n, Back: 1e15}, except...)
	if err != nil {
		tb.Fatal(err)
	}
	if err := a.Check(); err != nil {
		tb.Error(err)
	}
	return a
}

// says is what an answer says of changes, in short.
func (a *Answer) says() string {
	var words []string
	for _, s := range a.Seen {
		w := fmt.Sprint(s.Kind)
		if s.Open {
			w += "open"
		} else if !s.Sure {
			w += "maybe"
		}
		words = append(words, w)
	}
	if a.Alias != 0 {
		words = append(words, "alias")
	}
	if a.Altered != 0 {
		words = append(words, "altered")
	}
	return strings.Join(words, " ")
}

func (m *Memory) did(n Name, k Kind, o Outcome) { m.End(m.Begin(&n, k), o) }

func TestMemory(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	a, b := NameOf(1, "a"), NameOf(1, "b")
	m.did(a, Gains, Changed)
	m.did(a, Loses, Unchanged)
	m.did(a, Loses, Unknown)
	u := m.Begin(&a, Gets)
	m.did(Content(5), Alters, Unchanged)
	for n, want := range map[Name]string{
		a: "1 2maybe 3open", b: "", NameOf(2, "a"): "", NameOf(1, "A"): "alias", NameOf(1, "ä"): "alias", NameOf(2, "ä"): "",
		Content(5): "", Content(6): "",
	} {
		if got := m.asks(t, n).says(); got != want {
			t.Errorf("%+v: %q, want %q", n, got, want)
		}
	}
	if got := m.asks(t, a, u.ID).says(); got != "1 2maybe" {
		t.Errorf("without what is under way: %q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if wide, _ := m.Answer(ctx, &Question{Version: Version, Name: b, Back: 1e15, Wide: true}); wide.says() != "alias" {
		t.Errorf("where all names may be the same: %q", wide.says())
	}
	m.End(u, Changed)
	m.did(Content(5), Alters, Changed)
	if got := m.asks(t, Content(5)).says(); got != "altered" {
		t.Errorf("of a file: %q", got)
	}
	u = m.Begin(&Name{Dir: 7}, Alters)
	if got := m.asks(t, Content(7)).says(); got != "altered" {
		t.Errorf("of a file that is being changed: %q", got)
	}
	m.End(u, Changed)
	late, _ := m.Answer(t.Context(), &Question{Version: Version, Name: a, Back: 0})
	if late.says() != "" {
		t.Errorf("since now: %q", late.says())
	}
	if _, err := m.Answer(t.Context(), &Question{Version: Version + 1, Name: a}); err == nil {
		t.Error("another version of questions is answered")
	}
}

// Who answers waits for what is under way.
func TestAnswerWaits(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	n := NameOf(1, "n")
	u := m.Begin(&n, Gains)
	got := make(chan *Answer)
	go func() {
		a, _ := m.Answer(t.Context(), &Question{Version: Version, Name: n, Back: 1e15})
		got <- a
	}()
	select {
	case a := <-got:
		t.Errorf("it has not waited: %q", a.says())
	case <-func() chan struct{} { // something else meanwhile
		c := make(chan struct{})
		go func() { defer close(c); o := NameOf(1, "other"); m.did(o, Gains, Changed) }()
		return c
	}():
	}
	m.End(u, Changed)
	if a := <-got; a.says() != "1" {
		t.Errorf("%q", a.says())
	}
}

// There is room for so much. Of what is before that it is not said that there is nothing.
func TestMemoryIsFull(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	n, other := NameOf(1, "n"), NameOf(1, "other")
	m.did(n, Gains, Changed)
	before := Now()
	for range entries {
		m.did(other, Gains, Changed)
	}
	if a := m.asks(t, n); a.says() != "" || a.Since > before || a.Since < m.s.since.Load() {
		t.Errorf("%q, complete since %d, want %d at the latest", a.says(), a.Since, before)
	}
	if a := m.asks(t, other); len(a.Seen) != MaxSeen || a.Since < before || a.Since > a.Seen[0].Begin {
		t.Errorf("%d changes, complete since %d", len(a.Seen), a.Since)
	}
	var under []Under
	for range cells + 1 {
		under = append(under, m.Begin(&n, Gains))
	}
	if a := m.asks(t, other); a.Since != a.Sent {
		t.Error("more is under way than there is room for, and it is complete")
	}
	for _, u := range under {
		m.End(u, Unchanged)
	}
	if a := m.asks(t, other); a.Since < before || a.Since == a.Sent {
		t.Errorf("complete since %d", a.Since)
	}
}

// The process after one that was killed goes on with what that has noted.
func TestNextMemory(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	n := NameOf(1, "n")
	m.did(n, Gains, Changed)
	since := m.asks(t, n).Since
	if err := m.SetNote([]byte("first")); err != nil {
		t.Fatal(err)
	}
	if err := m.SetNote([]byte("a note")); err != nil {
		t.Fatal(err)
	}
	if m.SetNote(make([]byte, noteSize+1)) == nil {
		t.Error("a note that has no room")
	}
	decided, again, lost := m.Begin(&n, Loses), m.Begin(&n, Gains), m.Begin(&n, Swaps)
	made := m.Begin(&n, Gets)
	m.append(&m.s.cells[made.cell], 1, Now(), true) // and is killed
	o := next(t, m)
	if string(o.Note()) != "a note" || o.asks(t, n).Since != since {
		t.Errorf("%q, %d", o.Note(), o.asks(t, n).Since)
	}
	dead := Now()
	if got := o.asks(t, n).says(); got != "3 1 2maybe 1maybe 4maybe" {
		t.Errorf("what was under way: %q", got)
	}
	if !o.WasMade(made.ID) || o.WasMade(lost.ID) || o.WasMade(0) {
		t.Error("which was made")
	}
	// Nobody waits for it.
	if a, err := o.Answer(t.Context(), &Question{Version: Version, Name: n, Back: 1e15}); err != nil || len(a.Seen) != 5 {
		t.Error(a, err)
	}
	o.Adopt([]uint64{decided.ID, again.ID})
	if got := o.asks(t, n).says(); got != "3 1 2maybe 1maybe 4maybe" {
		t.Errorf("what another one will decide: %q", got)
	}
	// It is killed when it has decided one, and is making the other one again.
	o.Decide(decided.ID, true)
	o.Decide(decided.ID, false) // nothing is decided twice
	anew := o.Begin(&n, Gains)
	p := next(t, o)
	p.Adopt([]uint64{decided.ID, again.ID})
	if a := p.asks(t, n, anew.ID); a.says() != "3 1 2 1maybe 4maybe" || !p.WasMade(decided.ID) {
		t.Errorf("the third process: %q", a.says())
	} else if end := a.Seen[3].End; end > dead {
		t.Errorf("what the first one had begun was over at %d, as the third one has it at %d", dead, end)
	}
	p.Decide(again.ID, false)
	if got := p.asks(t, n).says(); got != "3 1 2 1maybe 4maybe 1maybe" || len(p.free) != cells {
		t.Errorf("what was decided: %q, %d", got, len(p.free))
	}
	if u := p.Begin(&n, Gains); slices.Contains([]uint64{decided.ID, again.ID, lost.ID, made.ID}, u.ID) {
		t.Error("a number was given twice")
	}
}

// What is not noted, as there is no room, is not known to the next process either.
func TestNextMemoryOfOneThatWasFull(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	n, other := NameOf(1, "n"), NameOf(1, "other")
	for range cells + 1 {
		m.Begin(&n, Gains)
	}
	before := Now()
	for range 2 {
		m = next(t, m)
		if a := m.asks(t, other); a.Since < before || a.Since == a.Sent {
			t.Errorf("it is complete since %d, and the process was killed after %d", a.Since, before)
		}
		m.Adopt(nil)
		before = 0
	}
}

// A process is killed when a change is in the log, and before the log is longer.
func TestNextMemoryOfOneThatWrote(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	n := NameOf(1, "n")
	since := m.s.since.Load()
	u := m.Begin(&n, Gains)
	m.append(&m.s.cells[u.cell], 1, Now(), true)
	m.s.logged.Add(^uint64(0))
	o := next(t, m)
	o.did(n, Loses, Changed)
	if a := o.asks(t, n); a.says() != "1 2" || a.Since != since {
		t.Errorf("%q, complete since %d, want %d", a.says(), a.Since, since)
	}
}

func TestNoMemory(t *testing.T) {
	t.Parallel()
	fd, err := unix.MemfdCreate("other", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if _, err := Open(fd); err == nil {
		t.Error("other memory was taken")
	}
	m := newMemory(t)
	m.s.version++
	if _, err := Open(m.FD()); err == nil {
		t.Error("memory of another version was taken")
	}
}

const writerEnv = "DMXFS_TEST_RECENT_WRITER"

func TestMain(m *testing.M) {
	if os.Getenv(writerEnv) != "" {
		write()
	}
	os.Exit(m.Run())
}

// write makes and removes a name until it is killed.
func write() {
	m, err := Open(3)
	if err != nil {
		panic(err)
	}
	n := NameOf(1, "n")
	os.Stdout.WriteString("x")
	for {
		m.did(n, Gains, Changed)
		m.did(n, Loses, Changed)
	}
}

// Whenever a process is killed, what it has done is what the next one knows: the name was made
// and removed, in turn.
func TestKilled(t *testing.T) {
	t.Parallel()
	for i := range 40 {
		m := newMemory(t)
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
		cmd.Env = append(os.Environ(), writerEnv+"=1")
		fd, err := unix.FcntlInt(uintptr(m.FD()), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "memory")
		cmd.ExtraFiles = []*os.File{f}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		unix.Nanosleep(&unix.Timespec{Nsec: int64(i) * 50_000}, nil)
		cmd.Process.Kill()
		cmd.Wait()
		f.Close()
		n := next(t, m)
		a := n.asks(t, NameOf(1, "n"))
		open := 0
		for i, s := range a.Seen {
			if s.Open {
				open++
			} else if i > 0 && s.Kind == a.Seen[i-1].Kind {
				t.Fatalf("one is missing: %+v", a.Seen[i-1:i+1])
			}
		}
		if open > 1 {
			t.Errorf("%d are under way", open)
		}
		n.Adopt(nil)
		if last := n.asks(t, NameOf(1, "n")).Seen; open == 1 && last[len(last)-1].Sure {
			t.Error("what was under way is sure")
		}
	}
}

// Answers come while others change names.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	m := newMemory(t)
	n := NameOf(1, "n")
	done := make(chan struct{})
	for range 4 {
		go func() {
			defer func() { done <- struct{}{} }()
			for range 2000 {
				m.did(n, Gains, Changed)
			}
		}()
	}
	for range 100 {
		a, err := m.Answer(t.Context(), &Question{Version: Version, Name: n, Back: 1e15})
		if err != nil || a.Check() != nil {
			t.Error(err, a.Check())
		}
		seen := map[uint64]bool{}
		for _, s := range a.Seen {
			if seen[s.ID] {
				t.Errorf("%+v is there twice", s)
			}
			seen[s.ID] = true
		}
	}
	for range 4 {
		<-done
	}
}

// BenchmarkChange is what a change of a name costs that is noted.
func BenchmarkChange(b *testing.B) {
	m := newMemory(b)
	b.ReportAllocs()
	for b.Loop() {
		n := NameOf(123456, "a-name-of-some-length.lock")
		m.did(n, Gains, Changed)
	}
}

// BenchmarkWrite is what a write costs.
func BenchmarkWrite(b *testing.B) {
	m := newMemory(b)
	b.ReportAllocs()
	for b.Loop() {
		n := Content(123456)
		m.did(n, Alters, Changed)
	}
}

func BenchmarkAnswer(b *testing.B) {
	m := newMemory(b)
	for i := range entries {
		m.did(NameOf(1, fmt.Sprint(i)), Gains, Changed)
	}
	q := Question{Version: Version, Name: NameOf(1, "1"), Back: 1e15}
	for b.Loop() {
		if _, err := m.Answer(b.Context(), &q); err != nil {
			b.Fatal(err)
		}
	}
}
