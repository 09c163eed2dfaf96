package engine

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/locks"
)

var (
	seeds = flag.Int("engine.seeds", long.OrPure(60, 150), "number of random runs of TestLikeOneLinuxHost")
	seed  = flag.Uint64("engine.seed", 0, "run TestLikeOneLinuxHost with this seed only")
)

// linux is what one Linux host would say: for each byte, the mode of each
// owner and the open file that it came through. The last one stands for all
// that follow.
type linux struct {
	bytes [17]map[string]struct {
		mode   locks.Mode
		handle locks.HandleID
	}
}

func (l *linux) at(i int) locks.Range {
	if i == len(l.bytes)-1 {
		return locks.Range{Start: uint64(i), End: locks.MaxOffset}
	}
	return locks.Range{Start: uint64(i), End: uint64(i) + 1}
}

func (l *linux) conflict(who string, m locks.Mode, r locks.Range) bool {
	for i := range l.bytes {
		if !r.Overlaps(l.at(i)) {
			continue
		}
		for o, h := range l.bytes[i] {
			if o != who && (h.mode == locks.Write || m == locks.Write) {
				return true
			}
		}
	}
	return false
}

func (l *linux) set(who string, m locks.Mode, r locks.Range, h locks.HandleID) {
	for i := range l.bytes {
		if r.Overlaps(l.at(i)) {
			delete(l.bytes[i], who)
			if m != 0 {
				if l.bytes[i] == nil {
					l.bytes[i] = map[string]struct {
						mode   locks.Mode
						handle locks.HandleID
					}{}
				}
				l.bytes[i][who] = struct {
					mode   locks.Mode
					handle locks.HandleID
				}{m, h}
			}
		}
	}
}

func (l *linux) closed(h locks.HandleID) {
	for i := range l.bytes {
		for who, x := range l.bytes[i] {
			if x.handle == h {
				delete(l.bytes[i], who)
			}
		}
	}
}

// TestLikeOneLinuxHost makes random calls on three nodes, one after the other,
// with changes of the members between them, and compares every answer with
// what one host would say. It is run again with -engine.seed.
func TestLikeOneLinuxHost(t *testing.T) {
	first, last := uint64(1), uint64(*seeds)
	defer func(n int) { maxAtOnce = n }(maxAtOnce)
	if *seed != 0 {
		first, last = *seed, *seed
	}
	for s := first; s <= last; s++ {
		maxAtOnce = inParts(s)
		synctest.Test(t, func(t *testing.T) { likeLinux(t, s, false) })
		if t.Failed() {
			t.Fatalf("to run this again: go test ./locks/engine -run %s -engine.seed %d", t.Name(), s)
		}
	}
}

// inParts makes what is given up at a time small in some runs.
func inParts(seed uint64) int {
	if seed%2 == 0 {
		return 512
	}
	return 1 + int(seed/2%3)
}

// randomRun is a run of random calls on one cluster, one after the other, whose
// answers are compared with a model.
type randomRun struct {
	*net
	rnd     *rand.Rand
	ids     []locks.NodeID
	trace   []string // of what was called, and the answers
	kills   int      // so many processes were killed
	mayKill bool
	hosts   map[locks.Class]*linux
}

func (r *randomRun) say(format string, args ...any) {
	r.trace = append(r.trace, fmt.Sprintf(format, args...))
}

// tell logs the trace of a run that has failed.
func (r *randomRun) tell() {
	if r.t.Failed() {
		r.t.Log(strings.Join(r.trace, "\n"))
	}
}

// steps makes 60 random steps, or fewer if one of them fails: it reports whether
// none did.
func (r *randomRun) steps(step func()) bool {
	for range 60 {
		if r.arm(); r.mayKill {
			step()
			r.bury()
		} else {
			step()
		}
		if r.t.Failed() {
			return false
		}
		synctest.Wait()
		r.check()
		for class, l := range r.hosts {
			r.isLike(class, l)
		}
		if r.ledgersAgree(); r.t.Failed() {
			return false
		}
	}
	return true
}

// oneCall is what a call is about, and who makes it: an owner on a node.
type oneCall struct {
	*node
	who string
	*locks.Request
}

// test calls Test, and compares what it says with whether there is a conflict.
func (r *randomRun) test(c oneCall, conflict bool) {
	got, err := c.node.Test(nil, c.Request)
	r.say("%s test o%d %v %v: %+v", c.id, c.Owner, c.Mode, c.Range, got)
	if err != nil || (got != nil) != conflict {
		r.t.Errorf("got %+v %v, want conflict %v", got, err, conflict)
	}
}

// linuxRun is a run of TestLikeOneLinuxHost.
type linuxRun struct {
	randomRun
	flock, posix linux
}

func likeLinux(t *testing.T, seed uint64, kills bool) (killed int) {
	rnd := rand.New(rand.NewPCG(seed, 7))
	ids := []locks.NodeID{"n0", "n1", "n2"}
	if seed%4 == 0 {
		ids = ids[:2] // who ask back what they give away
	}
	r := &linuxRun{randomRun: randomRun{net: newKeeping(t, len(ids), kills || seed%3 == 0, eagerly(seed)), rnd: rnd, ids: ids, mayKill: kills}}
	r.hosts = map[locks.Class]*linux{locks.Posix: &r.posix, locks.Flock: &r.flock}
	defer r.tell()
	if r.steps(r.step) {
		r.giveUpAll()
	}
	return r.kills
}

// draw is a call about an fcntl lock.
func (r *linuxRun) draw() oneCall {
	id := r.ids[r.rnd.IntN(len(r.ids))]
	owner := 1 + r.rnd.IntN(3)
	m := locks.Mode(1 + r.rnd.IntN(2))
	start := uint64(r.rnd.IntN(15))
	span := part(start, start+1+uint64(r.rnd.IntN(16-int(start))))
	if r.rnd.IntN(5) == 0 {
		span.End = locks.MaxOffset
	}
	q := req(locks.Posix, owner, m, span)
	q.Handle = locks.HandleID(100*(r.rnd.IntN(2)+1) + owner)
	return oneCall{r.nodes[id], fmt.Sprintf("%s/%d", id[:2], owner), q}
}

func (r *linuxRun) step() {
	c := r.draw()
	flock := locks.Key{File: "f", Class: locks.Flock}
	flockHandle := locks.HandleID(c.Owner)
	if r.rnd.IntN(4) == 0 { // which must change nothing
		c.Closing(c.Key, c.Handle)
		c.Closing(flock, flockHandle)
		r.say("%s a descriptor of h%d and of o%d is closed", c.id, c.Handle, c.Owner)
	}
	switch op := r.rnd.IntN(20); {
	case op < 10:
		r.tryPosix(c)
	case op < 12:
		r.do(c, func(n *node) { n.Unlock(c.Key, c.Owner, c.Range) })
		r.posix.set(c.who, 0, c.Range, 0)
		r.say("%s unlock o%d %v", c.id, c.Owner, c.Range)
	case op < 13:
		r.do(c, func(n *node) { n.UnlockOwner(c.Key, c.Owner) })
		r.posix.set(c.who, 0, locks.Whole, 0)
		r.say("%s close by o%d", c.id, c.Owner)
	case op < 14:
		r.do(c, func(n *node) { n.UnlockHandle(c.Key, c.Handle, "closed") })
		r.posix.closed(c.handle())
		r.say("%s release h%d", c.id, c.Handle)
	case op < 16:
		r.tryFlock(c)
	case op < 17:
		r.do(c, func(n *node) { n.UnlockHandle(flock, flockHandle, "closed") })
		r.flock.set(c.who, 0, locks.Whole, 0)
		r.say("%s release of flock o%d", c.id, c.Owner)
	case op < 18:
		r.test(c, r.posix.conflict(c.who, c.Mode, c.Range))
	case op < 19:
		r.say("pause")
		time.Sleep(3 * time.Second)
	default:
		r.say("new epoch")
		r.view(r.ids...)
	}
}

// handle is the open file of a call as the model has it, where all nodes are one
// host.
func (c oneCall) handle() locks.HandleID { return c.Handle + 1000*locks.HandleID(c.id[1]) }

func (r *linuxRun) tryPosix(c oneCall) {
	err := r.call(c, c.Request)
	want := !r.posix.conflict(c.who, c.Mode, c.Range)
	r.say("%s posix o%d %v %v h%d: %v", c.id, c.Owner, c.Mode, c.Range, c.Handle, err)
	if got := err == nil; got != want || err != nil && !errors.Is(err, locks.ErrWouldBlock) {
		r.t.Errorf("got %v, want granted %v", err, want)
	}
	if want {
		r.posix.set(c.who, c.Mode, c.Range, c.handle())
	}
}

func (r *linuxRun) tryFlock(c oneCall) {
	err := r.call(c, req(locks.Flock, int(c.Owner), c.Mode, locks.Whole))
	// The old lock is gone whether or not the new one is had.
	held, has := r.flock.bytes[0][c.who]
	if !has || held.mode != c.Mode {
		r.flock.set(c.who, 0, locks.Whole, 0)
	}
	want := !r.flock.conflict(c.who, c.Mode, locks.Whole)
	r.say("%s flock o%d %v: %v", c.id, c.Owner, c.Mode, err)
	if got := err == nil; got != want {
		r.t.Errorf("got %v, want granted %v", err, want)
	}
	if want {
		r.flock.set(c.who, c.Mode, locks.Whole, 0)
	}
}

// giveUpAll gives up what is held; then nothing is left anywhere.
func (r *linuxRun) giveUpAll() {
	for _, id := range r.ids {
		for o := 1; o <= 3; o++ {
			r.nodes[id].UnlockOwner(locks.Key{File: "f", Class: locks.Posix}, locks.OwnerID(o))
			r.nodes[id].UnlockOwner(locks.Key{File: "f", Class: locks.Flock}, locks.OwnerID(o))
		}
	}
	time.Sleep(5 * time.Second)
	r.isIdle()
	r.ledgersAreEmpty()
	if r.mayKill {
		return // another journal has the beginning
	}
	for _, n := range r.nodes {
		for id, x := range n.openRequests() {
			if x != 0 {
				r.t.Errorf("%s: request %d was closed %d times too few in the journal", n.id, id, x)
			}
		}
	}
}

// openRequests is how many times each request was opened in the journal, less
// the times that it was closed.
func (n *node) openRequests() map[uint64]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	open := map[uint64]int{}
	for _, ev := range n.events {
		switch {
		case ev.Step == Requested:
			open[ev.Request]++
		case ev.Final:
			open[ev.Request]--
		}
	}
	return open
}

// With a hold of many seconds, longer than it takes to overtake, the order is
// still that of the requests.
func TestFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newNet(t, 4)
		w := req(locks.Flock, 1, locks.Write, locks.Whole)
		mustGrant(t, c.nodes["n0"].start(w))
		var ps []*pending
		for _, id := range []locks.NodeID{"n3", "n1", "n2"} {
			ps = append(ps, c.nodes[id].start(w))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(20 * time.Second)
		k := locks.Key{File: "f", Class: locks.Flock}
		c.nodes["n0"].Unlock(k, 1, locks.Whole)
		for i, id := range []locks.NodeID{"n3", "n1", "n2"} {
			mustGrant(t, ps[i])
			for _, later := range ps[i+1:] {
				if later.is() {
					t.Fatalf("a later request than that of %s is served", id)
				}
			}
			c.nodes[id].Unlock(k, 1, locks.Whole)
		}
	})
}
