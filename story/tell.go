package story

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/dmxfs/dmxfs/journal"
	"github.com/dmxfs/dmxfs/locks"
)

// Sentence is a step of the story of a file.
type Sentence struct {
	Time time.Time `json:"time"`
	Host string    `json:"host"`
	// Event is the one of the record; for several together it is granted.
	Event string `json:"event"`
	Text  string `json:"text"`
}

// teller makes sentences of entries.
type teller struct {
	out   []Sentence
	hosts map[string]string // by peer ID
	skip  map[request]bool
	open  map[request]*held
	said  map[string]bool // what several journals have
	run   *run
}

type request struct {
	member string
	id     uint64
}

// held is a request as far as it has come.
type held struct {
	waited  bool
	asked   time.Time
	granted time.Time
}

// run are locks of one program that it had without waiting, one after the other.
type run struct {
	who         string
	what        string
	member      string
	count       int
	first, last time.Time
	sum         time.Duration
	open        request // not released yet
	isOpen      bool
}

// Tell tells the story of a file: the entries about it, in the order of [Merge], and
// those of views among them. hosts are the host names of members by peer ID.
func Tell(entries []Entry, hosts map[string]string) []Sentence {
	t := &teller{hosts: hosts, skip: passing(entries), open: map[request]*held{}, said: map[string]bool{}}
	first, last := len(entries), -1
	for i := range entries {
		if entries[i].Request != 0 || entries[i].Path != "" {
			first, last = min(first, i), i
		}
	}
	for i := range entries {
		// Who came and went before the file's first lock, or after its last one, is
		// no part of its story.
		if i >= first && i <= last {
			t.entry(&entries[i])
		}
	}
	t.endRun()
	if t.out == nil {
		return []Sentence{}
	}
	return t.out
}

// forItself is why a program gives up the open lock that it got with the file, when it
// locks it by a call. Without these the story is half as long.
const forItself = "its program locks for itself"

// passing are the requests for such locks that did not wait.
func passing(entries []Entry) map[request]bool {
	waited, out := map[request]bool{}, map[request]bool{}
	for i := range entries {
		e := &entries[i]
		id := request{e.Member, e.Request}
		switch {
		case e.Event == journal.Waiting:
			waited[id] = true
		case e.Event == journal.Released && e.Final && e.Reason == forItself && !waited[id]:
			out[id] = true
		}
	}
	return out
}

// named is a text with host names in place of peer IDs, and without incarnations
// behind those.
func (t *teller) named(s string) string {
	for id, host := range t.hosts {
		if id == "" {
			continue
		}
		var b strings.Builder
		for {
			before, behind, ok := strings.Cut(s, id)
			if !ok {
				break
			}
			if rest, ok := strings.CutPrefix(behind, "."); ok {
				if short := strings.TrimLeft(rest, "0123456789abcdef"); len(rest)-len(short) == 16 {
					behind = short
				}
			}
			if bare, ok := strings.CutSuffix(before, "node "); ok {
				before = bare + "host "
			}
			b.WriteString(before + host) // which may have an ID in it
			s = behind
		}
		s = b.String() + s
	}
	return s
}

func (t *teller) say(e *Entry, format string, args ...any) {
	t.endRun()
	t.out = append(t.out, Sentence{e.Time, e.Host, e.Event.String(), t.named(fmt.Sprintf(format, args...))})
}

// once says what each member's journal has for itself, the first time.
func (t *teller) once(e *Entry, key, format string, args ...any) {
	if !t.said[key] {
		t.said[key] = true
		t.say(e, format, args...)
	}
}

func (t *teller) entry(e *Entry) {
	switch e.Event {
	case journal.View:
		t.once(e, fmt.Sprint("view ", e.Epoch), "epoch %d began: %s", e.Epoch, e.Reason)
	case journal.Join:
		t.once(e, fmt.Sprint("join ", e.Epoch, e.Peer), "%s", cmp.Or(e.Reason, "a member joined"))
	case journal.Leave:
		t.once(e, fmt.Sprint("leave ", e.Epoch, e.Peer), "%s", cmp.Or(e.Reason, "a member left"))
	case journal.Fenced:
		t.say(e, "host %s was expelled, and its locks were lost: %s", e.Host, e.Reason)
	case journal.Recovered:
		t.say(e, "the daemon of host %s was started again: %s", e.Host, e.Reason)
	case journal.Upgraded:
		t.say(e, "the daemon of host %s was replaced: %s", e.Host, e.Reason)
	case journal.TakenOver:
		t.say(e, "the daemon of host %s was killed, and another one went on: %s", e.Host, e.Reason)
	case journal.LateWrite:
		t.say(e, "%s may have changed bytes %s after its lock was lost: %s", who(e), span(e.Range), e.Reason)
	case journal.Note:
		t.once(e, "note "+e.Reason+fmt.Sprint(e.Epoch), "host %s notes: %s", e.Host, e.Reason)
	default:
		if e.Request != 0 {
			t.request(e)
		}
	}
}

func (t *teller) request(e *Entry) {
	id := request{e.Member, e.Request}
	if t.skip[id] {
		return
	}
	h := t.open[id]
	if h == nil {
		h = &held{asked: e.Time}
		t.open[id] = h
	}
	switch e.Event {
	case journal.Waiting:
		h.waited = true
		t.say(e, "%s waits since %s for %s%s", who(e), h.asked.UTC().Format(clock), lock(e), because(e.Reason))
	case journal.Granted:
		h.granted = e.Time
		if !h.waited {
			t.startRun(e, id)
			return
		}
		t.say(e, "%s gets %s after %s%s", who(e), lock(e), round(e.Wait), token(e))
	case journal.Denied:
		t.say(e, "%s asks for %s, and is denied it%s%s", who(e), lock(e), after(e.Wait), because(e.Reason))
	case journal.Withdrawn:
		t.say(e, "%s does not wait any more for %s%s%s", who(e), lock(e), after(e.Wait), because(e.Reason))
	case journal.Lost:
		if h.granted.IsZero() && !strings.HasPrefix(e.Reason, atEnd) && h.waited {
			t.say(e, "the wait of %s for %s is lost%s", who(e), lock(e), because(e.Reason))
		} else {
			t.say(e, "%s loses %s%s", who(e), lock(e), because(e.Reason))
		}
	case journal.Released:
		t.released(e, id, h)
		return
	}
	switch e.Event {
	case journal.Denied, journal.Withdrawn, journal.Lost:
		delete(t.open, id)
	}
}

func (t *teller) released(e *Entry, id request, h *held) {
	if e.Final {
		delete(t.open, id)
	}
	if r := t.run; r != nil && r.isOpen && r.open == id {
		if e.Final {
			r.isOpen, r.last = false, e.Time
			r.sum += e.Time.Sub(h.granted)
		}
		return
	}
	if !e.Final {
		t.say(e, "%s gives up a part of its lock, bytes %s", who(e), span(e.Range))
		return
	}
	held := ""
	if !h.granted.IsZero() {
		held = " after " + round(e.Time.Sub(h.granted))
	}
	t.say(e, "%s gives %s up%s%s", who(e), lock(e), held, because(e.Reason))
}

// startRun adds a lock that was had without waiting to those before it, if those were
// the same program's.
func (t *teller) startRun(e *Entry, id request) {
	w, l := who(e), lock(e)
	if r := t.run; r == nil || r.isOpen || r.who != w || r.what != l || r.member != e.Member {
		t.endRun()
		t.run = &run{who: w, what: l, member: e.Member, first: e.Time}
	}
	r := t.run
	r.count++
	r.open, r.isOpen, r.last = id, true, e.Time
}

// endRun says what the run was.
func (t *teller) endRun() {
	r := t.run
	if r == nil {
		return
	}
	t.run = nil
	text := fmt.Sprintf("%s gets %s at once", r.who, r.what)
	switch {
	case r.count > 1 && r.isOpen:
		text += fmt.Sprintf(", %d times until %s, and has it", r.count, r.last.UTC().Format(clock))
	case r.count > 1:
		text += fmt.Sprintf(", %d times until %s, for %s in all", r.count, r.last.UTC().Format(clock), round(r.sum))
	case !r.isOpen:
		text += fmt.Sprintf(", and gives it up after %s", round(r.sum))
	}
	t.out = append(t.out, Sentence{r.first, t.hosts[r.member], journal.Granted.String(), t.named(text)})
}

const clock = "15:04:05.000Z"

func who(e *Entry) string {
	switch {
	case e.PID == 0:
		return fmt.Sprintf("a program on host %s that its daemon cannot see", e.Host)
	case e.Command == "":
		return fmt.Sprintf("process %d on host %s", e.PID, e.Host)
	}
	return fmt.Sprintf("process %d (%s) on host %s", e.PID, e.Command, e.Host)
}

// lock is what a record is about.
func lock(e *Entry) string {
	what := "a write lock"
	if e.Mode == locks.Read {
		what = "a read lock"
	}
	if e.Range == locks.Whole {
		return fmt.Sprintf("%s (%s)", what, e.Key.Class)
	}
	return fmt.Sprintf("%s (%s, bytes %s)", what, e.Key.Class, span(e.Range))
}

func span(r locks.Range) string {
	switch {
	case r.End >= locks.MaxOffset:
		return fmt.Sprintf("from %d on", r.Start)
	case r.End == 0:
		return "unknown"
	}
	return fmt.Sprintf("%d-%d", r.Start, r.End-1)
}

func token(e *Entry) string {
	if e.Token == 0 {
		return ""
	}
	return fmt.Sprintf(" (token %d)", e.Token)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func after(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return " after " + round(d)
}

// round is a duration for people.
func round(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= 10*time.Millisecond:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Microsecond).String()
}
