package engine

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/rw"
)

// lone is a detector by itself: who waits for whom is written down, and what it
// sends is kept until the test delivers it.
type lone struct {
	*detector
	nothing
	remote  map[locks.TicketID][]locks.NodeID
	sent    []sentFrame
	victims []locks.TicketID
}

type sentFrame struct {
	to locks.NodeID
	frame
}

func newLone(self locks.NodeID, members ...locks.NodeID) *lone {
	l := &lone{remote: map[locks.TicketID][]locks.NodeID{}}
	b := &base{o: Options{Transport: l}, phase: active, view: &locks.View{Epoch: 1, Self: self, Members: members}}
	l.detector = &detector{base: b, alarm: &alarm{kick: make(chan struct{}, 1)}, waiters: newWaiters(),
		entries: newEntries(b, nil, newLedger(b)), barriers: l, tickets: l, seen: map[seenProbe]bool{}, cycles: map[uint64]*cycle{}}
	return l
}

func (l *lone) Send(_ locks.Epoch, to locks.NodeID, b []byte) {
	f, err := decodeFrame(b, nil, len(l.view.Members))
	if err != nil {
		panic(err)
	}
	l.sent = append(l.sent, sentFrame{to, f})
}

func (l *lone) blockers(t *ticket, _ int) ([]locks.TicketID, []locks.NodeID) {
	return nil, l.remote[t.ID]
}

func (l *lone) withdraw(t *ticket, err error, _ string) {
	if !errors.Is(err, locks.ErrDeadlock) {
		panic(err)
	}
	l.victims = append(l.victims, t.ID)
	l.waiters.end(t)
}

// add has somebody hold, or wait for, all of a file.
func (l *lone) add(file string, who int, since int64, remote ...locks.NodeID) *ticket {
	k := locks.Key{File: file, Class: locks.Posix}
	en := l.entries.all[k]
	if en == nil {
		en = &entry{key: k, alg: &rw.Algorithm, tickets: map[locks.TicketID]*ticket{}, waits: map[locks.HandleID]int{},
			owners: map[locks.OwnerID]*owner{}, through: map[locks.HandleID]*tally{}}
		l.entries.all[k] = en
	}
	q := &locks.Request{Key: k, Owner: locks.OwnerID(who), Mode: locks.Write, Range: locks.Whole}
	a := newAsked(q)
	r := a.of(l.id(), en, q)
	r.asked = time.Unix(since, 0)
	t := a.all(l.id(), en)
	t.asks = true
	en.tickets[t.ID] = t
	if remote == nil {
		en.owner(r.Owner).replace(0, 0, t)
		en.took(t)
	} else {
		l.remote[t.ID] = remote
		l.waiters.add(t)
		l.waiters.park(t)
	}
	return t
}

// deliver takes what was sent to the members, until nothing is; before each it
// calls look.
func deliver(ls map[locks.NodeID]*lone, look func(*frame)) {
	for again := true; again; {
		again = false
		for id, l := range ls {
			for len(l.sent) > 0 {
				f := l.sent[0]
				l.sent, again = l.sent[1:], true
				look(&f.frame)
				switch to := ls[f.to]; f.kind {
				case frameProbe:
					to.receiveProbe(probe{f.id, f.path})
				case frameConfirmed:
					to.receiveConfirmed(id, f.id, f.ok)
				default:
					to.receiveCycle(f.kind, id, f.id, f.path)
				}
			}
		}
	}
}

// ringOf are n detectors, of which each has an owner that holds a file and waits for
// that of the next one. The last one has come last.
func ringOf(n int) (ids []locks.NodeID, ls map[locks.NodeID]*lone, waits []*ticket) {
	ids, ls = nodeIDs(n), map[locks.NodeID]*lone{}
	for i, id := range ids {
		ls[id] = newLone(id, ids...)
		ls[id].add(fmt.Sprintf("f%d", i), i+1, int64(i))
		waits = append(waits, ls[id].add(fmt.Sprintf("f%d", (i+1)%n), i+1, int64(100+i), ids[(i+1)%n]))
	}
	return ids, ls, waits
}

// Whoever looks for a cycle, its last waiter is told, and nobody else.
func TestDetectorsFindARing(t *testing.T) {
	for n := 2; n <= 5; n++ {
		for first := range n {
			ids, ls, waits := ringOf(n)
			ls[ids[first]].start(waits[first])
			deliver(ls, func(*frame) {})
			for i, id := range ids {
				want := []locks.TicketID(nil)
				if i == n-1 {
					want = []locks.TicketID{waits[i].ID}
				}
				if got := ls[id].victims; !slices.Equal(got, want) {
					t.Errorf("of %d, %d looks: %s tells %v, want %v", n, first, id, got, want)
				}
			}
		}
	}
}

// A cycle that has ended since a probe came by is none.
func TestDetectorsLookTwice(t *testing.T) {
	ids, ls, waits := ringOf(3)
	ls[ids[0]].start(waits[0])
	asked := false
	deliver(ls, func(f *frame) {
		if f.kind == frameConfirm && !asked {
			asked = true
			ls[ids[1]].waiters.end(waits[1])
		}
	})
	if !asked {
		t.Fatal("nobody is asked whether the cycle is there still")
	}
	for _, id := range ids {
		if len(ls[id].victims) > 0 {
			t.Errorf("%s tells somebody of a deadlock that is none", id)
		}
	}
}
