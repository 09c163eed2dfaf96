package web

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dmxfs/dmxfs/internal/snapshot"
	"github.com/dmxfs/dmxfs/internal/waitgraph"
)

// window is how many rows a table shows at a time. Chromium takes longer to lay them
// out than the search in 10,000 takes: the two are to be done within 100 ms.
const window = 100

// waitsPage is the graph, and the waits in words.
type waitsData struct {
	Drawing drawing
	Waits   []waitgraph.Wait
	More    int // waits that are not among those
	Hosts   []snapshot.HostSum
}

func (s *Server) waitsPage(_ *http.Request, snap *snapshot.Snapshot) (any, error) {
	d := waitsData{Drawing: draw(snap.Graph, s.opts.Long), Waits: snap.Graph.Waits, Hosts: snap.Hosts()}
	if len(d.Waits) > 50 {
		d.Waits, d.More = d.Waits[:50], len(d.Waits)-50
	}
	return d, nil
}

// locksData is a part of the table of locks.
type locksData struct {
	Query     snapshot.Query
	Rows      []*snapshot.Lock
	Found     int
	From, To  int // of the rows shown, from 1
	Back, On  string
	Heads     []head
	FileName  string
	AllStates []string
}

// head is a column that the table can be sorted by.
type head struct{ Name, URL, Dir string }

func (s *Server) locksPage(r *http.Request, snap *snapshot.Snapshot) (any, error) {
	v := r.URL.Query()
	q := snapshot.Query{Words: v.Get("q"), State: v.Get("state"), File: v.Get("file"), Sort: v.Get("sort"), Down: v.Get("down") != ""}
	rows := snap.Find(q)
	from, _ := strconv.Atoi(v.Get("from")) // what is no number is the beginning
	from = max(min(from, len(rows)-1), 0) / window * window
	d := locksData{Query: q, Found: len(rows), AllStates: []string{"", snapshot.Waiting, snapshot.Held, snapshot.Cached, "all"}}
	d.Rows = rows[from:min(from+window, len(rows))]
	d.From, d.To = from+1, from+len(d.Rows)
	with := func(change ...string) string {
		u := url.Values{}
		for key, list := range v {
			u[key] = list
		}
		for i := 0; i < len(change); i += 2 {
			u.Set(change[i], change[i+1])
			if change[i+1] == "" {
				u.Del(change[i])
			}
		}
		return "locks?" + u.Encode()
	}
	if from > 0 {
		d.Back = with("from", strconv.Itoa(max(from-window, 0)))
	}
	if from+window < len(rows) {
		d.On = with("from", strconv.Itoa(from+window))
	}
	for _, name := range []string{"path", "class", "state", "host", "pid", "command", "since"} {
		h := head{Name: name, URL: with("sort", name, "down", "", "from", "")}
		if q.Sort == name && q.Down {
			h.Dir, h.URL = "descending", with("sort", "", "down", "", "from", "")
		} else if q.Sort == name {
			h.Dir, h.URL = "ascending", with("sort", name, "down", "1", "from", "")
		}
		d.Heads = append(d.Heads, h)
	}
	if q.File != "" && len(rows) > 0 {
		d.FileName = rows[0].Name()
	}
	return d, nil
}

// filesData is the files that are waited for, now and lately.
type filesData struct {
	Now    []waitgraph.File
	Before []pastFile
	Since  time.Time
	Counts int
}

// pastFile is what the journal of this node has of the waits for a file.
type pastFile struct {
	Path           string
	Waits          int
	Total, Longest time.Duration
}

// pastSpan and pastRecords bound what of the journal is added up.
const (
	pastSpan    = time.Hour
	pastRecords = 20000
)

func (s *Server) filesPage(r *http.Request, snap *snapshot.Snapshot) (any, error) {
	d := filesData{Now: snap.Graph.Files, Since: time.Now().Add(-pastSpan)}
	at := map[string]*pastFile{}
	err := s.opts.Source.Journal(r.Context(), url.Values{
		"event": {"granted", "denied", "withdrawn"}, "since": {d.Since.Format(time.RFC3339Nano)}, "last": {strconv.Itoa(pastRecords)},
	}, func(x snapshot.Record) error {
		if d.Counts++; x.WaitMS < 1 {
			return nil
		}
		name := x.Path
		if name == "" {
			name = x.File
		}
		f := at[name]
		if f == nil {
			f = &pastFile{Path: name}
			at[name] = f
		}
		waited := time.Duration(x.WaitMS * float64(time.Millisecond))
		f.Waits++
		f.Total += waited
		f.Longest = max(f.Longest, waited)
		return nil
	})
	for _, f := range at {
		d.Before = append(d.Before, *f)
	}
	slices.SortFunc(d.Before, func(a, b pastFile) int {
		if a.Total != b.Total {
			return int(max(min(b.Total-a.Total, 1), -1))
		}
		return strings.Compare(a.Path, b.Path)
	})
	d.Before = d.Before[:min(len(d.Before), 50)]
	return d, err
}

// membersData is the members, and what became of the cluster lately.
type membersData struct {
	Graph   map[string]waitgraph.Member // by ID
	History []snapshot.Record           // the latest first
}

func (s *Server) membersPage(r *http.Request, snap *snapshot.Snapshot) (any, error) {
	d := membersData{Graph: map[string]waitgraph.Member{}}
	for _, m := range snap.Graph.Members {
		d.Graph[m.ID] = m
	}
	var err error
	d.History, err = s.records(r, url.Values{
		"event": {"view", "join", "leave", "fenced", "policy", "start", "stop", "recovered", "note"}, "last": {"100"},
	}, nil)
	return d, err
}

func (s *Server) policyPage(r *http.Request, _ *snapshot.Snapshot) (any, error) {
	return s.opts.Source.Policy(r.Context())
}

// journalData is the records that pass the filters of the query.
type journalData struct {
	Path, Event, PID, Since, Until, Words string
	Events                                []string
	Records                               []snapshot.Record // the latest first
}

// eventNames are the events that a journal can be filtered by.
var eventNames = []string{
	"requested", "waiting", "granted", "denied", "withdrawn", "released", "lost", "fenced", "view", "recovered", "late_write",
	"start", "stop", "join", "leave", "policy", "note",
}

func (s *Server) journalPage(r *http.Request, _ *snapshot.Snapshot) (any, error) {
	v := r.URL.Query()
	d := journalData{
		Path: strings.TrimPrefix(v.Get("path"), "/"), Event: v.Get("event"), PID: v.Get("pid"), Since: v.Get("since"), Until: v.Get("until"),
		Words: v.Get("q"), Events: eventNames,
	}
	filter := url.Values{"last": {strconv.Itoa(window)}}
	words := strings.Fields(strings.ToLower(d.Words))
	if len(words) > 0 {
		filter.Set("last", strconv.Itoa(pastRecords))
	}
	if d.Path != "" {
		filter.Set("path", d.Path)
	}
	if d.Event != "" {
		if !slices.Contains(eventNames, d.Event) {
			return nil, fmt.Errorf("%q is no event of the journal", d.Event)
		}
		filter.Set("event", d.Event)
	}
	if d.PID != "" {
		if n, err := strconv.Atoi(d.PID); err != nil || n <= 0 {
			return nil, fmt.Errorf("%q is no number of a process", d.PID)
		}
		filter.Set("pid", d.PID)
	}
	for key, text := range map[string]string{"since": d.Since, "until": d.Until} {
		if text == "" {
			continue
		}
		t, err := parseTime(text, time.Now())
		if err != nil {
			return nil, err
		}
		filter.Set(key, t.Format(time.RFC3339Nano))
	}
	var err error
	d.Records, err = s.records(r, filter, func(x *snapshot.Record) bool {
		text := strings.ToLower(x.Path + "\n" + x.Command + "\n" + x.Reason + "\n" + x.Event + "\n" + x.File)
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
	})
	return d, err
}

// parseTime reads a time as an input of the type datetime-local has it, or a
// duration that has passed since.
func parseTime(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(-d), nil
	}
	for _, form := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(form, text, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time: give 2026-11-21 03:00, or a duration like 2h30m", text)
}

// records are those of the journal that pass a filter, and for which want, if it
// is not nil, is true: the last window of them, the latest first.
func (s *Server) records(r *http.Request, filter url.Values, want func(*snapshot.Record) bool) ([]snapshot.Record, error) {
	var out []snapshot.Record
	err := s.opts.Source.Journal(r.Context(), filter, func(x snapshot.Record) error {
		if want == nil || want(&x) {
			out = append(out, x)
		}
		if len(out) >= 2*window {
			out = append(out[:0], out[len(out)-window:]...)
		}
		return nil
	})
	slices.Reverse(out)
	if err != nil {
		err = fmt.Errorf("the journal: %w", err)
	}
	return out[:min(len(out), window)], err
}

// key tells a lock apart over time: the same request, and the same bytes of it.
type key struct {
	Node, File, Class string
	Request           uint64
	PID               int
	Start             uint64
}

func keyOf(l *snapshot.Lock) key { return key{l.Node, l.File, l.Class, l.Request, l.PID, l.Start} }

func lockURL(k key) string {
	return "lock?" + url.Values{
		"node": {k.Node}, "file": {k.File}, "class": {k.Class}, "request": {strconv.FormatUint(k.Request, 10)},
		"pid": {strconv.Itoa(k.PID)}, "start": {strconv.FormatUint(k.Start, 10)},
	}.Encode()
}

// readKey reads what lockURL writes, or a form.
func readKey(get func(string) string) (key, error) {
	k := key{Node: get("node"), File: get("file"), Class: get("class")}
	var err1, err2, err3 error
	k.Request, err1 = strconv.ParseUint(get("request"), 10, 64)
	k.PID, err2 = strconv.Atoi(get("pid"))
	k.Start, err3 = strconv.ParseUint(get("start"), 10, 64)
	if err := errors.Join(err1, err2, err3); err != nil {
		return k, fmt.Errorf("which lock? %w", err)
	}
	return k, nil
}

// lockData is the story of a lock, or of the wait for one.
type lockData struct {
	Key     key
	Lock    *snapshot.Lock // nil: it is no longer there
	Story   *waitgraph.Story
	Behind  []waitgraph.Wait // who waits for it
	Here    bool             // its node's journal is this one
	Records []snapshot.Record
}

func (s *Server) lockPage(r *http.Request, snap *snapshot.Snapshot) (any, error) {
	k, err := readKey(r.URL.Query().Get)
	if err != nil {
		return nil, err
	}
	d := lockData{Key: k, Here: k.Node == snap.Status.Self}
	for i := range snap.Locks {
		if l := &snap.Locks[i]; keyOf(l) == k {
			d.Lock = l
		}
	}
	if d.Lock != nil && d.Lock.State == snapshot.Waiting && k.PID != 0 {
		d.Story = snap.Graph.Why(waitgraph.Target{PID: k.PID, Host: k.Node})
	}
	for _, w := range snap.Graph.Waits {
		if w.File == k.File && w.Class == k.Class && slices.ContainsFunc(w.For, func(b waitgraph.Blocker) bool { return b.Node == k.Node && b.PID == k.PID && k.PID != 0 }) {
			d.Behind = append(d.Behind, w)
		}
	}
	filter := url.Values{"last": {strconv.Itoa(pastRecords)}}
	if d.Lock != nil && d.Lock.Path != "" {
		filter.Set("path", pattern(d.Lock.Path))
	}
	d.Records, err = s.records(r, filter, func(x *snapshot.Record) bool { return x.File == k.File && (x.Class == "" || x.Class == k.Class) })
	return d, err
}

// pattern is the pattern of the journal for exactly this path: a name may have the
// characters of one in it, also such that it would be none.
func pattern(path string) string {
	var b strings.Builder
	for i := range len(path) {
		if strings.IndexByte(`*?[]{}\`, path[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(path[i])
	}
	return b.String()
}

// memberData is a member, and what would become free without it.
type memberData struct {
	Peer    *snapshot.Peer // nil: it is no member
	Self    bool
	Unknown bool // it does not answer: what it holds is not known
	Locks   []*snapshot.Lock
	More    int
}

func (s *Server) memberPage(r *http.Request, snap *snapshot.Snapshot) (any, error) {
	id := r.URL.Query().Get("id")
	d := memberData{Self: id == snap.Peers.Self}
	for i := range snap.Peers.Members {
		if m := &snap.Peers.Members[i]; m.ID == id {
			d.Peer = m
		}
	}
	d.Unknown = slices.ContainsFunc(snap.Missing, func(m string) bool { return id != "" && strings.Contains(m, id) })
	for _, l := range snap.Find(snapshot.Query{}) {
		if l.Node == id {
			d.Locks = append(d.Locks, l)
		}
	}
	if len(d.Locks) > window {
		d.Locks, d.More = d.Locks[:window], len(d.Locks)-window
	}
	return d, nil
}
