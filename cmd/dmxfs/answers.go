package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"dmxfs/journal"
	"dmxfs/locks"
	"dmxfs/locks/engine"
	"dmxfs/p2p/member"
	"dmxfs/p2p/register"
)

// handler answers on the control socket.
func (d *daemon) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { reply(w, d.status(), nil) })
	mux.HandleFunc("GET /peers", func(w http.ResponseWriter, r *http.Request) { reply(w, d.peers(r.Context()), nil) })
	mux.HandleFunc("POST /peers/remove", func(w http.ResponseWriter, r *http.Request) { reply(w, struct{}{}, d.removePeer(r)) })
	mux.HandleFunc("POST /peers/revoke", func(w http.ResponseWriter, r *http.Request) { reply(w, struct{}{}, d.revokePeer(r)) })
	mux.HandleFunc("POST /locks/break", func(w http.ResponseWriter, r *http.Request) {
		var q breakRequest
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			reply(w, nil, withCode(exitUsage, err))
			return
		}
		reply(w, d.breakLocks(r.Context(), q), nil)
	})
	mux.HandleFunc("GET /locks", func(w http.ResponseWriter, r *http.Request) {
		reply(w, d.locks(r.Context(), r.FormValue("local") != ""), nil)
	})
	mux.HandleFunc("GET /journal", d.serveJournal)
	mux.HandleFunc("GET /secret", func(w http.ResponseWriter, _ *http.Request) {
		n, text := d.secret.text()
		reply(w, secretJSON{n, register.Fingerprint([]byte(text)), text}, nil)
	})
	mux.HandleFunc("POST /secret/rotate", func(w http.ResponseWriter, r *http.Request) {
		v, err := d.rotateSecret(r.Context(), r.FormValue("reason"))
		reply(w, v, err)
	})
	mux.HandleFunc("GET /policy", func(w http.ResponseWriter, _ *http.Request) {
		v, err := d.showPolicy()
		reply(w, v, err)
	})
	mux.HandleFunc("GET /policy/check", func(w http.ResponseWriter, r *http.Request) {
		v, err := d.checkPolicy(r.FormValue("path"))
		reply(w, v, err)
	})
	mux.HandleFunc("POST /policy", func(w http.ResponseWriter, r *http.Request) {
		v, err := d.setPolicy(r)
		reply(w, v, err)
	})
	mux.HandleFunc("POST /unmount", func(w http.ResponseWriter, r *http.Request) {
		reply(w, struct{}{}, d.unmount(r.FormValue("lazy") != ""))
	})
	return mux
}

// status is how this node is doing.
func (d *daemon) status() statusJSON {
	s := d.node.Load().Status()
	held, waiting := d.engine.Count()
	j := statusJSON{
		Mount: d.cfg.Mountpoint, Source: d.cfg.Source, PID: os.Getpid(), Version: version(),
		State: stateName(s), Held: held, Waiting: waiting, UptimeS: int64(time.Since(d.began).Seconds()),
		Self: d.identity.ID().String(), StateDir: d.state.path, FileID: string(d.fileIDs()), Problems: []string{},
	}
	delegate, to := d.engine.Delegation()
	j.Delegate = delegate
	if node, err := member.ParseNode(to); err == nil {
		j.DelegatesTo = node.Peer
	}
	if s.View != nil {
		j.Epoch, j.Members = uint64(s.View.Epoch), len(s.View.Members)
	}
	problem := func(format string, args ...any) { j.Problems = append(j.Problems, fmt.Sprintf(format, args...)) }
	if s.Why != "" {
		problem("%s", s.Why)
	}
	if s.Disk != "" {
		problem("shared directory: %s", s.Disk)
	}
	if err := d.journal.Healthy(); err != nil {
		problem("journal: %v", err)
	}
	if err := d.secret.problem(time.Now()); err != nil {
		problem("%v", err)
	}
	if err := d.minder.problem(); err != nil {
		problem("%v", err)
	}
	for _, dir := range d.server.Load().Nested() {
		problem("%s is the shared directory of another cluster: what is below it has other locks there, and fails here with EIO; have those hosts mount %s, or remove %s/.dmxfs when none does",
			dir, d.cfg.Source, dir)
	}
	if p := d.damages.problem(time.Now()); p != "" {
		problem("%s", p)
	}
	j.Healthy = healthy(s, j.Problems)
	j.EngineLongestMS = float64(d.engine.Longest().Microseconds()) / 1000
	j.Goroutines, j.OpenFiles, j.MemoryBytes = resources()
	return j
}

// resources is what this process uses.
func resources() (goroutines, files int, memory int64) {
	if list, err := os.ReadDir("/proc/self/fd"); err == nil {
		files = len(list)
	}
	// Resident pages, as proc_pid_statm(5) has them.
	if b, err := os.ReadFile("/proc/self/statm"); err == nil {
		var size, resident int64
		if n, _ := fmt.Sscan(string(b), &size, &resident); n == 2 {
			memory = resident * int64(os.Getpagesize())
		}
	}
	return runtime.NumGoroutine(), files, memory
}

// stateName is the state of a node in one word.
func stateName(s member.Status) string {
	switch {
	case s.State == member.StateMember && s.Granting:
		return "live"
	case s.State == member.StateMember && s.Live:
		return "synchronizing"
	case s.State == member.StateMember:
		return "suspended"
	case s.State == member.StateLeaving:
		return "leaving"
	}
	return "joining"
}

// peers lists the members of the view, and who else is known.
func (d *daemon) peers(ctx context.Context) peersJSON {
	s := d.node.Load().Status()
	self := d.identity.ID().String()
	j := peersJSON{Self: self, Members: []peerJSON{}, Joining: []joinerJSON{}, Gone: []departedJSON{}, Revoked: []string{}}
	if s.View == nil {
		return j
	}
	j.Epoch = uint64(s.View.Epoch)
	j.Gone = d.departed.but(s.View)
	j.Revoked = append(j.Revoked, s.View.Revoked...)
	for _, x := range s.Joiners {
		state := "joining"
		if x.Refused != 0 {
			state = "refused"
		}
		j.Joining = append(j.Joining, joinerJSON{x.Peer, x.Host, append([]string{}, x.Addrs...), state})
	}
	connected := map[string]bool{}
	rtt := map[string]time.Duration{}
	for _, p := range d.transport.Peers() {
		connected[p.ID.String()], rtt[p.ID.String()] = p.Connected, p.RTT
	}
	for _, m := range s.View.Members {
		p := peerJSON{ID: m.Peer, Host: m.Host, Addrs: m.Addrs, Incarnation: m.Inc.String(), Version: m.Version, State: "unknown"}
		if p.Addrs == nil {
			p.Addrs = []string{}
		}
		if m.Peer == self && m.Node == s.Self {
			p.State, p.Connected = stateName(s), true
		}
		for _, x := range s.Peers {
			if x.Node != m.Node {
				continue
			}
			p.State, p.Connected = x.State, connected[m.Peer]
			if x.State == "alive" {
				p.State = "live"
			}
			if x.LastHeard >= 0 {
				p.LastHeardMS = &x.LastHeard
			}
			if r := rtt[m.Peer]; r > 0 {
				ms := float64(r.Microseconds()) / 1000
				p.RTTMS = &ms
			}
		}
		j.Members = append(j.Members, p)
	}
	d.askStates(ctx, j.Members, self)
	return j
}

// askStates asks the members that can be reached in which state they are: only
// a node itself knows whether it is suspended.
func (d *daemon) askStates(ctx context.Context, members []peerJSON, self string) {
	var wg sync.WaitGroup
	for i := range members {
		p := &members[i]
		if p.ID == self || !p.Connected || p.State != "live" && p.State != "synchronizing" {
			continue
		}
		wg.Go(func() {
			var s memberState
			if d.ask(ctx, p.ID, time.Second, question{What: "state"}, &s) == nil && s.State != "" {
				p.State = s.State
			}
		})
	}
	wg.Wait()
}

// askTimeout is how long other members have to answer an admin's question.
const askTimeout = 3 * time.Second

// question is what one daemon asks another on behalf of an admin.
type question struct {
	What  string        `json:"what"`
	Break *breakRequest `json:"break,omitempty"`

	Secret *secretOrder `json:"secret,omitempty"`
}

// row is a lock with what is needed to find out who waits for whom.
type row struct {
	lockJSON
	Owner  uint64   `json:"owner"`
	Shared bool     `json:"shared"` // the algorithm lets readers and ranges be apart
	Remote []string `json:"remote"` // members whose answer is missing
}

// onAsk answers another daemon.
func (d *daemon) onAsk(ctx context.Context, from peer.ID, b []byte) ([]byte, error) {
	var q question
	if err := json.Unmarshal(b, &q); err != nil {
		return nil, errors.New("not a question that this version understands")
	}
	switch q.What {
	case "locks":
		return json.Marshal(d.rows())
	case "state":
		return json.Marshal(memberState{stateName(d.node.Load().Status())})
	case "secret":
		if q.Secret == nil {
			return nil, errors.New("no step of a change of the secret")
		}
		v, err := d.onSecret(from, *q.Secret)
		if err != nil {
			return nil, err
		}
		return json.Marshal(v)
	case "break":
		if q.Break == nil || d.server.Load() == nil {
			return nil, errors.New("nothing to break here")
		}
		return json.Marshal(d.breakFor(ctx, from, *q.Break))
	}
	return nil, fmt.Errorf("unknown question %q", q.What)
}

// rows are the locks of this node.
func (d *daemon) rows() []row {
	host, _ := os.Hostname()
	self := d.identity.ID().String()
	rows := []row{}
	for _, l := range d.engine.Locks() {
		r := row{
			lockJSON: lockJSON{
				Path: l.Path, Class: l.Key.Class.String(), Mode: l.Mode.String(), Start: l.Range.Start, End: rangeEnd(l.Range),
				State: map[engine.LockState]string{engine.Held: "held", engine.Waits: "waiting", engine.Cached: "cached"}[l.State],
				Node:  self, Host: host, PID: l.Program.PID, Command: l.Program.Command, UID: l.Program.UID, Since: l.Since.UTC(),
				Epoch: uint64(l.Epoch), Algorithm: l.Algorithm, Token: uint64(l.Token), WaitsFor: []waitFor{},
				File: l.Key.File, Request: l.Request,
			},
			Owner: uint64(l.Owner), Shared: algorithms[l.Algorithm].Shared,
		}
		if l.Key.Class == locks.Open && l.State == engine.Held {
			d.tellUse(&r.lockJSON, l.Handle)
		}
		for _, p := range l.Local {
			r.WaitsFor = append(r.WaitsFor, waitFor{self, host, p.PID, p.Command})
		}
		for _, n := range l.Remote {
			if node, err := member.ParseNode(n); err == nil {
				r.Remote = append(r.Remote, node.Peer)
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// tellUse fills in how the open lock of a handle of this mount is used.
func (d *daemon) tellUse(l *lockJSON, h locks.HandleID) {
	s := d.server.Load()
	if s == nil {
		return
	}
	o, ok := s.OpenLock(h)
	if !ok {
		return
	}
	switch {
	case o.Shared:
		l.Use = "shared"
	case o.Stream:
		l.Use = "stream"
	case o.Used:
		l.Use = "section"
	default:
		l.Use = "unused"
	}
	since := time.Now().Add(-o.Idle).UTC().Round(time.Millisecond)
	l.IdleSince = &since
}

func rangeEnd(r locks.Range) int64 {
	if r.End >= locks.MaxOffset {
		return -1
	}
	return int64(r.End)
}

// lockedBelow reports whether a member has a lock on a file below dir, where
// locks go by path.
func (d *daemon) lockedBelow(dir string) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	a := d.locks(ctx, false)
	if len(a.Missing) > 0 {
		return false, fmt.Errorf("no answer from %s", strings.Join(a.Missing, ", "))
	}
	for _, l := range a.Locks {
		if l.State != "cached" && strings.HasPrefix(l.File, "p"+dir+"/") {
			return true, nil
		}
	}
	return false, nil
}

// locks is the table of this node, or of the whole cluster.
func (d *daemon) locks(ctx context.Context, local bool) locksAnswer {
	all := d.rows()
	var a locksAnswer
	hosts := map[string]string{}
	if v := d.node.Load().Status().View; v != nil && !local {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		var mu sync.Mutex
		var wg sync.WaitGroup
		self := d.identity.ID().String()
		for _, m := range v.Members {
			hosts[m.Peer] = m.Host
			if m.Peer == self {
				continue
			}
			wg.Go(func() {
				rows, err := d.askRows(ctx, m.Peer)
				mu.Lock()
				defer mu.Unlock()
				all = append(all, rows...)
				if err != nil {
					a.Missing = append(a.Missing, fmt.Sprintf("%s (%s): %v", m.Host, m.Peer, err))
				}
			})
		}
		wg.Wait()
	}
	for i := range all {
		if all[i].State == "waiting" {
			all[i].WaitsFor = append(all[i].WaitsFor, remoteBlockers(&all[i], all, hosts)...)
		}
	}
	for _, r := range all {
		a.Locks = append(a.Locks, r.lockJSON)
	}
	slices.SortStableFunc(a.Locks, func(x, y lockJSON) int {
		if c := strings.Compare(x.Path, y.Path); c != 0 {
			return c
		}
		if c := strings.Compare(x.Class, y.Class); c != 0 {
			return c
		}
		if c := strings.Compare(order[x.State], order[y.State]); c != 0 {
			return c
		}
		return x.Since.Compare(y.Since)
	})
	slices.Sort(a.Missing)
	return a
}

// order is that of the states of one file's locks in the table.
var order = map[string]string{"held": "1", "waiting": "2", "cached": "3"}

// askRows asks a member for its locks, again and again until ctx ends: it may be
// about to be dropped, upon which it has none, or to be replaced.
func (d *daemon) askRows(ctx context.Context, to string) (rows []row, err error) {
	tick := time.NewTicker(askPause)
	defer tick.Stop()
	for {
		rows = nil
		if err = d.ask(ctx, to, askTimeout, question{What: "locks"}, &rows); err == nil {
			return rows, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-tick.C:
		}
		v := d.node.Load().Status().View
		if v == nil || !slices.ContainsFunc(v.Members, func(m member.Member) bool { return m.Peer == to }) {
			return nil, nil
		}
	}
}

// askPause is the time between two tries to ask a member.
const askPause = 100 * time.Millisecond

// remoteBlockers finds what a waiting lock waits for on other nodes: the locks
// there that conflict, and then the nodes that have not answered. A node that
// waits for an exclusive lock does not know which of the others has it; when
// the holder is found, those others are of no interest.
func remoteBlockers(w *row, all []row, hosts map[string]string) []waitFor {
	var holders, nodes []waitFor
	for _, n := range w.Remote {
		found := false
		for i := range all {
			h := &all[i]
			if h.Node == n && h.State == "held" && h.File == w.File && h.Class == w.Class && (!w.Shared || conflict(&h.lockJSON, &w.lockJSON)) {
				holders = append(holders, waitFor{n, h.Host, h.PID, h.Command})
				found = true
			}
		}
		if !found {
			nodes = append(nodes, waitFor{Node: n, Host: hosts[n]})
		}
	}
	if !w.Shared && len(holders) > 0 {
		return holders
	}
	return append(holders, nodes...)
}

func conflict(a, b *lockJSON) bool {
	end := func(l *lockJSON) uint64 {
		if l.End < 0 {
			return locks.MaxOffset
		}
		return uint64(l.End)
	}
	return (a.Mode == "W" || b.Mode == "W") && max(a.Start, b.Start) < min(end(a), end(b))
}

// shownTime is how long the answer to a query may wait for the disk.
const shownTime = time.Second

// serveJournal streams the records that pass the filter in the query, one
// JSON object a line.
func (d *daemon) serveJournal(w http.ResponseWriter, r *http.Request) {
	f, err := journalFilter(r.URL.Query())
	if err != nil {
		reply(w, nil, err)
		return
	}
	// What somebody was shown is there still when the daemon is killed next.
	sync, cancel := context.WithTimeout(r.Context(), shownTime)
	_ = d.journal.Sync(sync) // status tells of a disk that fails
	cancel()
	w.Header().Set("Content-Type", "application/x-ndjson")
	flush := http.NewResponseController(w)
	_ = flush.Flush()
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	last := time.Now()
	err = d.journal.Query(r.Context(), f, func(rec journal.Record) error {
		if err := e.Encode(rec); err != nil {
			return err
		}
		if f.Follow || time.Since(last) > time.Second {
			last = time.Now()
			return flush.Flush()
		}
		return nil
	})
	if err != nil && r.Context().Err() == nil {
		d.log.Warn("a query of the journal ended early", "err", err)
	}
}

// journalFilter reads a filter from the query of a URL, and journalQuery
// writes it.
func journalFilter(q url.Values) (journal.Filter, error) {
	f := journal.Filter{Path: q.Get("path"), Node: locks.NodeID(q.Get("node")), Follow: q.Get("follow") != ""}
	var err error
	for key, t := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		if v := q.Get(key); v != "" {
			if *t, err = time.Parse(time.RFC3339Nano, v); err != nil {
				return f, withCode(exitUsage, err)
			}
		}
	}
	for key, n := range map[string]*int{"pid": &f.PID, "last": &f.Last} {
		if v := q.Get(key); v != "" {
			if *n, err = strconv.Atoi(v); err != nil {
				return f, withCode(exitUsage, err)
			}
		}
	}
	for _, name := range q["event"] {
		ev, err := journal.ParseEvent(name)
		if err != nil {
			return f, withCode(exitUsage, err)
		}
		f.Events = append(f.Events, ev)
	}
	return f, nil
}

func journalQuery(f journal.Filter) url.Values {
	q := url.Values{}
	set := func(key, v string) {
		if v != "" && v != "0" {
			q.Set(key, v)
		}
	}
	set("path", f.Path)
	set("node", string(f.Node))
	set("pid", strconv.Itoa(f.PID))
	set("last", strconv.Itoa(f.Last))
	if !f.Since.IsZero() {
		set("since", f.Since.Format(time.RFC3339Nano))
	}
	if !f.Until.IsZero() {
		set("until", f.Until.Format(time.RFC3339Nano))
	}
	if f.Follow {
		set("follow", "1")
	}
	for _, e := range f.Events {
		q.Add("event", e.String())
	}
	return q
}
