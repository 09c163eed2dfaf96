package recent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Version is that of questions and answers. Who is asked in another one does not answer.
const Version = 1

// Question asks what has happened to a name, or to the content of a file.
type Question struct {
	Version int  `json:"version"`
	Name    Name `json:"name"`
	// Back is how long before the question it matters, in ns.
	Back int64 `json:"back_ns"`
	// Wide: the storage may take any two names for one.
	Wide bool `json:"wide,omitempty"`
	// Since is from when on it matters, by the clock of who asks.
	Since int64 `json:"-"`
}

// Seen is a change that was made, or may have been, by the clock of who has made it.
type Seen struct {
	ID    uint64 `json:"-"`
	Begin int64  `json:"b"`
	End   int64  `json:"e"`
	Kind  Kind   `json:"k"`
	Sure  bool   `json:"s,omitempty"` // it was made
	Open  bool   `json:"o,omitempty"` // or it may be made even after End
}

// Answer is what one host has done, by its clock.
type Answer struct {
	Version  int    `json:"version"`
	Received int64  `json:"received"`
	Sent     int64  `json:"sent"`
	Since    int64  `json:"since"` // what has begun after that is complete
	Seen     []Seen `json:"seen,omitempty"`
	// Alias is when a name was changed last that may be the same, and Altered when the
	// content of the file was; 0: not at all.
	Alias   int64 `json:"alias,omitempty"`
	Altered int64 `json:"altered,omitempty"`
}

// MaxSeen is how many changes an answer has, the last ones.
const MaxSeen = 8192

// ErrAnswer is the error of an answer that cannot be right.
var ErrAnswer = errors.New("the answer about what was changed cannot be right")

// Check is an error if a is none that [Memory.Answer] gives.
func (a *Answer) Check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrAnswer, fmt.Sprintf(format, args...))
	}
	inTime := func(t int64) bool { return t >= 0 && t <= a.Sent }
	switch {
	case a.Version != Version:
		return bad("version %d", a.Version)
	case a.Received <= 0 || a.Sent < a.Received || a.Sent > latest:
		return bad("received at %d, answered at %d", a.Received, a.Sent)
	case !inTime(a.Since) || !inTime(a.Alias) || !inTime(a.Altered):
		return bad("it has times after its own")
	case len(a.Seen) > MaxSeen:
		return bad("%d changes", len(a.Seen))
	}
	for _, s := range a.Seen {
		if s.Begin < 0 || s.End < s.Begin || !inTime(s.End) || s.Kind < Gains || s.Kind > Swaps || s.Open && s.Sure {
			return bad("a change of kind %d from %d to %d", s.Kind, s.Begin, s.End)
		}
	}
	return nil
}

// ErrNever is the error of who cannot find out what others have changed, and will not later.
var ErrNever = errors.New("what other hosts have changed cannot be known")

// latest is a time that no clock shows: sums with it do not overflow.
const latest = int64(1) << 61

// ParseAnswer reads what another host has answered.
func ParseAnswer(b []byte) (*Answer, error) {
	a := new(Answer)
	if err := json.Unmarshal(b, a); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return a, a.Check()
}

// Answer answers q. It waits until ctx ends for what is under way, unless that waits itself to
// be decided. except are own changes that are left out.
func (m *Memory) Answer(ctx context.Context, q *Question, except ...uint64) (*Answer, error) {
	a := &Answer{Version: Version, Received: Now()}
	if q.Version != Version || q.Back < 0 || q.Back > latest {
		return nil, fmt.Errorf("not a question that this version understands (%d)", q.Version)
	}
	m.await(ctx, q, except)
	from := a.Received - q.Back
	m.mu.Lock()
	defer m.mu.Unlock()
	a.Sent = Now()
	a.Since = max(m.s.since.Load(), m.s.lost.Load(), from)
	if m.s.untracked.Load() > 0 {
		a.Since = a.Sent
	}
	take := func(e *noted, end int64, open bool) {
		id := e.id.Load()
		switch {
		case id == 0 || end < from || slices.Contains(except, id):
		case e.kind == Alters:
			if q.Name.Exact == (hash{}) && m.file(e.name.Dir) == m.file(q.Name.Dir) {
				a.Altered = a.Sent
			}
		case e.name.isSame(&q.Name):
			a.Seen = append(a.Seen, Seen{id, e.begin, end, e.kind, e.sure && !open, open})
		case e.name.mayBeSame(&q.Name, q.Wide):
			a.Alias = max(a.Alias, end)
		}
	}
	for i := range m.s.log {
		take(&m.s.log[i], m.s.log[i].end, false)
	}
	for i := range m.s.cells {
		if c := &m.s.cells[i]; c.left { // if it is made again that is another one
			take(c, c.end, false)
		} else {
			take(c, a.Sent, true)
		}
	}
	if q.Name.Exact == (hash{}) {
		a.Altered = max(a.Altered, m.file(q.Name.Dir).Load())
	}
	slices.SortFunc(a.Seen, func(x, y Seen) int { return cmp.Compare(x.Begin, y.Begin) })
	if n := len(a.Seen) - MaxSeen; n > 0 {
		for _, s := range a.Seen[:n] {
			a.Since = max(a.Since, s.End)
		}
		a.Seen = a.Seen[n:]
	}
	return a, nil
}

// await waits for what is under way now with the name of q.
func (m *Memory) await(ctx context.Context, q *Question, except []uint64) {
	under := map[uint16]uint64{}
	m.mu.Lock()
	for i := range m.s.cells {
		c := &m.s.cells[i]
		if id := c.id.Load(); id != 0 && !c.left && !slices.Contains(except, id) && c.name.isSame(&q.Name) {
			under[uint16(i)] = id
		}
	}
	m.mu.Unlock()
	look := time.NewTicker(time.Millisecond / 2)
	defer look.Stop()
	for len(under) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		for i, id := range under {
			if m.s.cells[i].id.Load() != id {
				delete(under, i)
			}
		}
	}
}
