package sim

import (
	"fmt"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
)

// observer sees all nodes at once: it checks what is promised, and measures.
type observer struct {
	shared           bool
	readers, writers int
	// The greatest tokens of entries that exclude others, and of all.
	excluding, all locks.Token

	messages, bytes int
	entries         []int     // completed, by node
	spans           [2][]Time // RT, by mode: reads, writes
	overtaken       int
	entered         int
	syncs           int
	sync            Time
	emptied         Time // since when the CS is empty while somebody waits
	wanted          bool // emptied counts
}

func newObserver(cfg *Config) observer {
	return observer{shared: cfg.Algorithm.Shared, entries: make([]int, cfg.active())}
}

func (o *observer) sent(bytes int) {
	o.messages++
	o.bytes += bytes
}

// excludes reports whether a CS in that mode is for one only.
func (o *observer) excludes(m locks.Mode) bool { return m == locks.Write || !o.shared }

func (o *observer) enter(w *world, n *node, token locks.Token) error {
	alone := o.excludes(n.mode)
	if o.writers > 0 || alone && o.readers > 0 {
		return fmt.Errorf("%s enters for %v beside %d that exclude others and %d that do not", n.id, n.mode, o.writers, o.readers)
	}
	if token != 0 { // the baselines have none
		if token <= o.excluding || alone && token <= o.all {
			return fmt.Errorf("%s enters for %v with token %v after %v", n.id, n.mode, token, o.all)
		}
		o.all = max(o.all, token)
		if alone {
			o.excluding = max(o.excluding, token)
		}
	}
	if alone {
		o.writers++
	} else {
		o.readers++
	}
	if o.wanted {
		o.wanted = false
		o.syncs++
		o.sync += w.now - o.emptied
	}
	o.entered++
	if w.waiting > 0 {
		for i := range w.nodes {
			u := &w.nodes[i]
			if u.state == waits && u.issued < n.issued && (alone || o.excludes(u.mode)) {
				o.overtaken++
			}
		}
	}
	return nil
}

// leave is called before the machine hears of it, so that who waits now has
// asked no later than now.
func (o *observer) leave(w *world, i int) {
	n := &w.nodes[i]
	if o.excludes(n.mode) {
		o.writers--
	} else {
		o.readers--
	}
	o.entries[i]++
	o.spans[n.mode-locks.Read] = append(o.spans[n.mode-locks.Read], w.now-n.issued)
	// The node's own next request counts: its program waits as well.
	if o.readers == 0 && o.writers == 0 && (w.waiting > 0 || n.backlog > 0) {
		o.emptied, o.wanted = w.now, true
	}
}

func (o *observer) result() *Result {
	r := &Result{Messages: o.messages, NME: nothing, RT: nothing, RTRead: nothing, RTWrite: nothing, RTP99: nothing, RTMax: nothing,
		Sync: nothing, Fairness: nothing, Overtaken: nothing, Bytes: nothing}
	reads, writes := o.spans[0], o.spans[1]
	all := slices.Concat(reads, writes)
	slices.Sort(all)
	r.CS = len(all)
	if r.CS > 0 {
		r.NME = float64(o.messages) / float64(r.CS)
		r.Bytes = float64(o.bytes) / float64(r.CS)
		r.RT, r.RTRead, r.RTWrite = mean(all), mean(reads), mean(writes)
		r.RTMax = all[len(all)-1].units()
		r.RTP99 = all[(len(all)*99+99)/100-1].units()
		r.Fairness = jain(o.entries)
	}
	if o.syncs > 0 {
		r.Sync = o.sync.units() / float64(o.syncs)
	}
	if o.entered > 0 {
		r.Overtaken = float64(o.overtaken) / float64(o.entered)
	}
	return r
}
