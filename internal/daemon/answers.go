package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/boottime"
	"github.com/dmxfs/dmxfs/internal/chronicle"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/rotation"
	"github.com/dmxfs/dmxfs/internal/version"
	"github.com/dmxfs/dmxfs/p2p"
	"github.com/dmxfs/dmxfs/p2p/member"
	"github.com/dmxfs/dmxfs/p2p/register"
)

// handler answers on the control socket.
func (d *daemon) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { admin.Reply(w, d.status(), nil) })
	mux.HandleFunc("GET /peers", func(w http.ResponseWriter, r *http.Request) { admin.Reply(w, d.peers(r.Context()), nil) })
	mux.HandleFunc("POST /peers/remove", func(w http.ResponseWriter, r *http.Request) { admin.Reply(w, struct{}{}, d.admin.removePeer(r)) })
	mux.HandleFunc("POST /peers/revoke", func(w http.ResponseWriter, r *http.Request) { admin.Reply(w, struct{}{}, d.admin.revokePeer(r)) })
	mux.HandleFunc("POST /peers/forget", func(w http.ResponseWriter, r *http.Request) { admin.Reply(w, struct{}{}, d.admin.forgetPeer(r)) })
	mux.HandleFunc("POST /locks/break", func(w http.ResponseWriter, r *http.Request) {
		var q admin.BreakOrder
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			admin.Reply(w, nil, exitcode.With(exitcode.Usage, err))
			return
		}
		admin.AllReceived(q.Locks)
		admin.Reply(w, d.breaker.breakLocks(r.Context(), q), nil)
	})
	mux.HandleFunc("GET /locks", onlooker{d}.serveLocks)
	mux.HandleFunc("GET /waits", onlooker{d}.serveWaits)
	mux.Handle("GET /metrics", onlooker{d}.metricsHandler(true))
	mux.HandleFunc("GET /journal", onlooker{d}.serveJournal)
	mux.HandleFunc("GET /journal/cluster", onlooker{d}.serveClusterJournal)
	mux.HandleFunc("GET /journal/requests", onlooker{d}.serveRequests)
	mux.HandleFunc("GET /options", func(w http.ResponseWriter, _ *http.Request) { admin.Reply(w, d.cfg, nil) })
	mux.HandleFunc("GET /secret", func(w http.ResponseWriter, _ *http.Request) {
		n, text := d.secret.Text()
		admin.Reply(w, admin.Secret{Generation: n, Fingerprint: register.Fingerprint([]byte(text)), Secret: text}, nil)
	})
	mux.HandleFunc("POST /secret/rotate", func(w http.ResponseWriter, r *http.Request) {
		var v admin.Rotated
		limit, err := answerLimit(r, rotation.SettleTime)
		if err == nil {
			v, err = d.rotator.Rotate(r.Context(), limit, r.FormValue("reason"))
		}
		admin.Reply(w, v, err)
	})
	mux.HandleFunc("GET /policy", func(w http.ResponseWriter, _ *http.Request) {
		v, err := d.admin.showPolicy()
		admin.Reply(w, v, err)
	})
	mux.HandleFunc("GET /policy/check", func(w http.ResponseWriter, r *http.Request) {
		v, err := d.rules.Check(r.FormValue("path"))
		admin.Reply(w, v, err)
	})
	mux.HandleFunc("POST /policy", func(w http.ResponseWriter, r *http.Request) {
		v, err := d.admin.setPolicy(r)
		admin.Reply(w, v, err)
	})
	mux.HandleFunc("GET /upgrade", func(w http.ResponseWriter, _ *http.Request) { admin.Reply(w, d.upgrader.Status(), nil) })
	mux.HandleFunc("POST /upgrade", func(w http.ResponseWriter, r *http.Request) {
		v, begin, err := d.upgrader.Order(r)
		admin.Reply(w, v, err)
		_ = http.NewResponseController(w).Flush() // nobody will, once it has begun
		begin()
	})
	mux.HandleFunc("POST /unmount", func(w http.ResponseWriter, r *http.Request) {
		admin.Reply(w, struct{}{}, d.unmount(r.FormValue("lazy") != ""))
	})
	return mux
}

// status is how this node is doing.
func (d *daemon) status() admin.Status {
	s := d.node.Load().Status()
	held, waiting := d.engine.Count()
	j := admin.Status{
		Mount: d.cfg.Mountpoint, Source: d.cfg.Source, PID: os.Getpid(), Version: version.String(),
		VersionSince: d.upgrader.ServesSince(),
		State:        chronicle.StateName(s), Held: held, Waiting: waiting, UptimeS: (boottime.Milliseconds() - d.upgrader.Mounted()) / 1000,
		Self: d.identity.ID().String(), StateDir: d.state.Path, FileID: string(d.fileID.in(s.View)), Problems: []string{},
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
	if err := d.secret.Problem(time.Now()); err != nil {
		problem("%v", err)
	}
	if err := d.minder.Problem(); err != nil {
		problem("%v", err)
	}
	if err := (testator{d}).problem(); err != nil {
		problem("takeover: %v", err)
	}
	for _, dir := range d.server.Load().Nested() {
		problem("%s is the shared directory of another cluster: what is below it has other locks there, and fails here with EIO; have those hosts mount %s, or remove %s/.dmxfs when none does",
			dir, d.cfg.Source, dir)
	}
	if err := d.page.problem(); err != nil {
		problem("metrics: %v", err)
	}
	if p := d.chronicle.Damage(time.Now()); p != "" {
		problem("%s", p)
	}
	j.Takeover = testator{d}.status()
	j.Healthy = healthy(s, j.Problems)
	j.EngineLongestMS = float64(d.engine.Longest().Microseconds()) / 1000
	j.Goroutines, j.OpenFiles, j.MemoryBytes = resources()
	return j
}

// healthy reports whether locks can be had on this node now.
func healthy(s member.Status, problems []string) bool { return s.Granting && len(problems) == 0 }

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

// peers lists the members of the view, and who else is known.
func (d *daemon) peers(ctx context.Context) admin.Peers {
	s := d.node.Load().Status()
	self := d.identity.ID().String()
	j := admin.Peers{Self: self, Members: []admin.Peer{}, Joining: []admin.Joiner{}, Gone: []admin.Gone{}, Revoked: []string{}}
	if s.View == nil {
		return j
	}
	j.Epoch = uint64(s.View.Epoch)
	j.Gone = d.chronicle.Gone(s.View)
	j.Revoked = append(j.Revoked, s.View.Revoked...)
	for _, x := range s.Joiners {
		state := "joining"
		if x.Refused != 0 {
			state = "refused"
		}
		j.Joining = append(j.Joining, admin.Joiner{ID: x.Peer, Host: x.Host, Addrs: append([]string{}, x.Addrs...), State: state})
	}
	connected := map[string]bool{}
	rtt := map[string]time.Duration{}
	for _, p := range d.transport.Peers() {
		connected[p.ID.String()], rtt[p.ID.String()] = p.Connected, p.RTT
	}
	for _, m := range s.View.Members {
		p := admin.Peer{ID: m.Peer, Host: m.Host, Addrs: m.Addrs, Incarnation: m.Inc.String(), Version: m.Version, State: "unknown"}
		if p.Addrs == nil {
			p.Addrs = []string{}
		}
		if m.Peer == self && m.Node == s.Self {
			p.State, p.Connected = chronicle.StateName(s), true
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
func (d *daemon) askStates(ctx context.Context, members []admin.Peer, self string) {
	var wg sync.WaitGroup
	for i := range members {
		p := &members[i]
		if p.ID == self || !p.Connected || p.State != "live" && p.State != "synchronizing" {
			continue
		}
		wg.Go(func() {
			var s memberState
			if d.table.ask(ctx, p.ID, time.Second, question{What: "state"}, &s) == nil && s.State != "" {
				p.State = s.State
			}
		})
	}
	wg.Wait()
}

// onAsk answers another daemon.
func (d *daemon) onAsk(ctx context.Context, from peer.ID, b []byte) ([]byte, error) {
	var q question
	if err := json.Unmarshal(b, &q); err != nil {
		return nil, errors.New("not a question that this version understands")
	}
	if d.node.Load() == nil { // one that goes on after an upgrade is found by its peers before
		return nil, errors.New("this daemon is just starting")
	}
	switch q.What {
	case "locks":
		return marshalRows(d.table.rows(), p2p.MaxAnswer)
	case "journal":
		return onlooker{d}.answerJournal(ctx, q.Query)
	case "state":
		return json.Marshal(memberState{chronicle.StateName(d.node.Load().Status())})
	case "secret":
		if q.Secret == nil {
			return nil, errors.New("no step of a change of the secret")
		}
		v, err := d.rotator.Step(from, *q.Secret)
		if err != nil {
			return nil, err
		}
		return json.Marshal(v)
	case "changes":
		return d.others.answer(ctx, q.Changes)
	case "forget":
		return []byte("{}"), d.admin.forgotten(q.Peer, q.Why)
	case "break":
		if q.Break == nil || d.server.Load() == nil {
			return nil, errors.New("nothing to break here")
		}
		admin.AllReceived(q.Break.Locks)
		return json.Marshal(d.breaker.breakFor(ctx, from, *q.Break))
	}
	return nil, fmt.Errorf("unknown question %q", q.What)
}
