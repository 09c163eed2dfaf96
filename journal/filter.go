package journal

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/dmxfs/dmxfs/locks"
)

// Filter says which records a query is for. A zero field lets all pass.
type Filter struct {
	// Path is the path of the records: exactly, or by a pattern in which *
	// stands for any part of a name, ** for any directories, ? for a
	// character, [a-z] for one of a class and {a,b} for one of some.
	Path string
	// Since and Until bound the wall clock: Since <= time < Until.
	Since, Until time.Time
	Events       []Event
	Class        locks.Class
	PID          int
	Node         locks.NodeID
	// Request is one of a run of the daemon; see Node to tell runs apart.
	Request uint64
	// After leaves out the records up to this number.
	After uint64
	// Last, if positive, leaves out all but the last ones of those that are
	// there when the query begins.
	Last int
	// Follow goes on with new records as they come, until the context ends.
	Follow bool
}

// matcher is a filter in use.
type matcher struct {
	Filter
	since, until int64 // Unix nanoseconds
	glob         bool
	events       [256]bool
	// The last path that was matched with the pattern.
	path   string
	pathOK bool
}

// Check says what is wrong with f: [Journal.Query] would fail with it.
func (f Filter) Check() error {
	_, err := newMatcher(f)
	return err
}

func newMatcher(f Filter) (*matcher, error) {
	m := &matcher{Filter: f, since: -1 << 63, until: 1<<63 - 1}
	if !f.Since.IsZero() {
		m.since = f.Since.UnixNano()
	}
	if !f.Until.IsZero() {
		m.until = f.Until.UnixNano()
	}
	for _, e := range f.Events {
		m.events[e] = true
	}
	if strings.ContainsAny(f.Path, `*?[{\`) {
		m.glob = true
		if !doublestar.ValidatePattern(f.Path) {
			return nil, fmt.Errorf("journal: malformed path pattern %q", f.Path)
		}
	}
	return m, nil
}

// all reports whether every record passes.
func (m *matcher) all() bool {
	f := &m.Filter
	return f.Path == "" && f.Since.IsZero() && f.Until.IsZero() && len(f.Events) == 0 &&
		f.Class == 0 && f.PID == 0 && f.Node == "" && f.Request == 0 && f.After == 0
}

// block reports whether a record of b may pass.
func (m *matcher) block(b *block) bool {
	return b.last > m.After && b.newest >= m.since && b.oldest < m.until
}

func (m *matcher) match(r *Record) bool {
	if r.Seq <= m.After ||
		m.PID != 0 && r.PID != m.PID ||
		m.Request != 0 && r.Request != m.Request ||
		m.Class != 0 && r.Key.Class != m.Class ||
		m.Node != "" && r.Node != m.Node ||
		len(m.Events) > 0 && !m.events[r.Event] {
		return false
	}
	if t := r.Time.UnixNano(); t < m.since || t >= m.until {
		return false
	}
	return m.Path == "" || m.matchPath(r.Path)
}

func (m *matcher) matchPath(p string) bool {
	if !m.glob || p == "" {
		return p == m.Path
	}
	if p != m.path {
		m.path = p
		// A name can have the characters of a pattern in it.
		m.pathOK = p == m.Path || doublestar.MatchUnvalidated(m.Path, p)
	}
	return m.pathOK
}

// lastOf keeps the last records of a stream.
type lastOf struct {
	recs []Record
	next int // where the next one goes, when recs is full
	max  int
}

func (l *lastOf) add(r Record) {
	if len(l.recs) < l.max {
		l.recs = append(l.recs, r)
		return
	}
	l.recs[l.next] = r
	l.next = (l.next + 1) % l.max
}

// take returns them in order, and keeps none.
func (l *lastOf) take() []Record {
	out := slices.Concat(l.recs[l.next:], l.recs[:l.next])
	l.recs, l.next = nil, 0
	return out
}
