package engine

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/shm"
	"github.com/dmxfs/dmxfs/locks"
)

// forged is a ledger with other records than somebody has written.
type forged struct {
	LedgerReader
	records map[int][][]uint64
}

func forge(from LedgerReader) *forged {
	f := &forged{from, map[int][][]uint64{}}
	for table := range LedgerTables {
		for _, w := range from.All(table) {
			f.records[table] = append(f.records[table], slices.Clone(w))
		}
	}
	return f
}

func (f *forged) All(table int) iter.Seq2[uint32, []uint64] {
	return func(yield func(uint32, []uint64) bool) {
		for i, w := range f.records[table] {
			if !yield(uint32(i+1), w) {
				return
			}
		}
	}
}

// Whatever the records say, it ends in an error or in an engine that can go on.
func TestADamagedLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKeeping(t, 2, true, nil)
		c.nodes["n1"].random(rand.New(rand.NewPCG(1, 1)))
		a := c.nodes["n0"]
		a.random(rand.New(rand.NewPCG(2, 2)))
		a.Engine.mu.Lock()
		a.ledger.dead = true
		a.Engine.mu.Unlock()
		good := forge(a.ledger)
		number := uint32(0) // keys have their own numbers, and tickets tell these
		keys := map[uint64]uint64{}
		for n := range a.ledger.All(tableKeys) {
			number++
			keys[uint64(n)] = uint64(number)
		}
		for _, w := range good.records[tableTickets] {
			w[ticketKey] = keys[w[ticketKey]>>32]<<32 | w[ticketKey]&ticketFlags
		}
		if _, err := ReadLedger(good); err != nil {
			t.Fatal(err)
		}
		rnd := rand.New(rand.NewPCG(3, 3))
		taken, refused := 0, 0
		for range 1500 {
			f := forge(good)
			tables := slices.Sorted(maps.Keys(f.records))
			table := tables[rnd.IntN(len(tables))]
			w := f.records[table][rnd.IntN(len(f.records[table]))]
			switch i := rnd.IntN(len(w)); rnd.IntN(4) {
			case 0:
				w[i] ^= 1 << rnd.IntN(64)
			case 1:
				w[i] = ^uint64(0)
			case 2:
				f.records[table] = append(f.records[table], slices.Clone(w)) // it is there twice
			default:
				x := f.records[table][rnd.IntN(len(f.records[table]))]
				w[i] = x[rnd.IntN(len(x))]
			}
			state, err := ReadLedger(f)
			if err == nil {
				e := New(Options{Transport: nothing{}, Files: nothing{}, Recorder: nothing{}, Log: a.o.Log, Algorithms: allAlgorithms,
					Rule: c.rule, Live: func(time.Duration) bool { return true }})
				if err = e.Inherit(state); err == nil {
					e.Freeze()
					e.State()
				}
			}
			if err == nil {
				taken++
			} else {
				refused++
			}
		}
		if t.Logf("%d were taken, %d refused", taken, refused); refused < 300 {
			t.Errorf("only %d were refused", refused)
		}
	})
}

// Records that contradict each other are refused, and not guessed about.
func TestLedgersThatCannotBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newKeeping(t, 1, true, nil)
		a := c.nodes["n0"]
		mustGrant(t, a.start(req(locks.Posix, 1, locks.Write, part(0, 10))))
		mustGrant(t, a.start(req(locks.Open, 1, locks.Read, locks.Whole)))
		for what, change := range map[string]func(f *forged){
			"no node":                func(f *forged) { f.records[tableNode] = nil },
			"two nodes":              func(f *forged) { f.records[tableNode] = append(f.records[tableNode], f.records[tableNode][0]) },
			"a node without a name":  func(f *forged) { f.records[tableNode][0][nodeSelf] = 0 },
			"a later start":          func(f *forged) { f.records[tableNode][0][nodeStart] += 1 << 60 },
			"a key that is gone":     func(f *forged) { f.records[tableKeys] = f.records[tableKeys][:1] },
			"another key":            func(f *forged) { f.records[tableKeys][0][keySerial]++ },
			"an unknown class":       func(f *forged) { f.records[tableKeys][0][keyFlags] = 9 },
			"an unknown algorithm":   func(f *forged) { f.records[tableKeys][0][keyAlgorithm] = 0 },
			"a long legacy":          func(f *forged) { f.records[tableKeys][0][keyLegacy] |= 0xff },
			"a ticket of later":      func(f *forged) { f.records[tableTickets][0][ticketID] += 1 << 40 },
			"a token of later":       func(f *forged) { f.records[tableTickets][0][ticketToken] = uint64(locks.TokenFloor(9)) },
			"a ticket without bytes": func(f *forged) { f.records[tableTickets][0][ticketEnd] = 0 },
			"no mode":                func(f *forged) { f.records[tableTickets][0][ticketKey] &^= ticketModes << ticketMode },
			"a ticket that is there twice": func(f *forged) {
				w := slices.Clone(f.records[tableTickets][0])
				w[ticketSerial]++
				w[ticketStart], w[ticketEnd] = 20, 30
				f.records[tableTickets] = append(f.records[tableTickets], w)
			},
			"two keys with tickets": func(f *forged) {
				for _, w := range f.records[tableKeys] {
					w[keyFile] = f.records[tableKeys][0][keyFile]
					w[keyFlags] = f.records[tableKeys][0][keyFlags]
				}
			},
		} {
			f := forge(a.ledger)
			if _, err := ReadLedger(f); err != nil {
				t.Fatal(err)
			}
			change(f)
			state, err := ReadLedger(f)
			if err == nil {
				o := a.o
				o.Ledger = nil
				err = New(o).Inherit(state)
			}
			if err == nil {
				t.Errorf("%s: it was taken", what)
			}
		}
	})
}

// Of those that overlap since the process died between two writes the younger counts.
func TestTheYoungerCounts(t *testing.T) {
	piece := func(id, serial, from, to uint64) foundTicket {
		return foundTicket{serial: serial, legacyTicket: legacyTicket{id: locks.TicketID(id), rng: part(from, to)}}
	}
	for i, c := range []struct {
		in   []foundTicket
		want string
	}{
		{[]foundTicket{piece(1, 1, 0, 10), piece(2, 2, 20, 30)}, "1[0,10) 2[20,30) "},
		{[]foundTicket{piece(1, 1, 0, 30), piece(2, 2, 10, 20)}, "1[0,10) 2[10,20) 101[20,30) "},
		{[]foundTicket{piece(1, 3, 0, 30), piece(2, 2, 10, 20)}, "1[0,30) "},
		{[]foundTicket{piece(1, 1, 0, 10), piece(2, 2, 10, 20), piece(3, 3, 5, 15)}, "1[0,5) 3[5,15) 2[15,20) "},
		{[]foundTicket{piece(1, 1, 0, 10), piece(2, 5, 0, 100), piece(3, 3, 50, 60), piece(4, 6, 99, 120)}, "2[0,99) 4[99,120) "},
	} {
		rd := &ledgerReading{l: &legacy{lastID: 100}}
		got := ""
		for _, x := range rd.youngest(c.in) {
			got += fmt.Sprint(uint64(x.id), x.rng, " ")
		}
		if got = strings.ReplaceAll(got, " [", "["); got != c.want {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
	}
	// Of two tickets of one open file as well.
	synctest.Test(t, func(t *testing.T) {
		c := newKeeping(t, 1, true, nil)
		a := c.nodes["n0"]
		mustGrant(t, a.start(req(locks.Open, 1, locks.Write, locks.Whole)))
		f := forge(a.ledger)
		w := slices.Clone(f.records[tableTickets][0])
		w[ticketSerial]++
		w[ticketID]++
		w[ticketRequest] += 5
		w[ticketKey] = w[ticketKey]&^(ticketModes<<ticketMode) | uint64(locks.Read)<<ticketMode
		f.records[tableTickets] = append(f.records[tableTickets], w)
		rd, err := readLedger(f)
		if err != nil || len(rd.l.keys) != 1 || len(rd.l.keys[0].tickets) != 1 || rd.l.keys[0].tickets[0].mode != locks.Read || len(rd.l.requests) != 1 {
			t.Errorf("%v, %+v", err, rd)
		}
	})
}

// When there is no room the ledger says so, and the engine goes on without; when there is
// room again it is written anew, at a new view or some time later, with all that there is.
func TestAFullLedger(t *testing.T) {
	for _, byView := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { fillLedger(t, byView) })
	}
}

func fillLedger(t *testing.T, byView bool) {
	form := ledgerForm(20)
	tables, err := shm.Create("test", 1, form)
	if err != nil {
		t.Fatal(err)
	}
	defer tables.Close()
	ledger := &mortal{Tables: tables}
	c := newTuned(t, 1, func(o *Options) { o.Ledger = ledger })
	a := c.nodes["n0"]
	a.ledger = ledger
	tells := func(want error) {
		t.Helper()
		fd, err := unix.FcntlInt(uintptr(tables.FD()), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		x, err := shm.Open(fd, 1, form)
		if !errors.Is(err, want) {
			t.Errorf("who reads it is told %v, want %v", err, want)
		}
		if err != nil {
			unix.Close(fd)
		} else {
			x.Close()
		}
		if s := a.LedgerStatus(); s.Kept != (want == nil) || !errors.Is(s.Err, want) || s.Failures != 1 {
			t.Errorf("the status is %+v, want %v", s, want)
		}
	}
	flock := req(locks.Flock, 1, locks.Write, locks.Whole)
	mustGrant(t, a.start(flock))
	for i := range 30 {
		mustGrant(t, a.start(req(locks.Posix, 1, locks.Write, part(uint64(2*i), uint64(2*i)+1))))
	}
	tells(shm.ErrFull)
	if byView {
		c.view("n0")
		time.Sleep(time.Second)
	} else {
		time.Sleep(3*renewAfter + renewAfter/2) // not while it is tried: then it is void, and not full
	}
	tells(shm.ErrFull) // there is no room yet
	a.Unlock(locks.Key{File: "f", Class: locks.Posix}, 1, locks.Whole)
	if byView {
		c.view("n0")
		time.Sleep(time.Second)
	} else {
		time.Sleep(2 * renewAfter)
	}
	tells(nil)
	mustGrant(t, a.start(req(locks.Posix, 1, locks.Write, locks.Whole)))
	a.ledgerAgrees()
	a.Unlock(flock.Key, flock.Owner, locks.Whole)
	a.ledgerAgrees()
}

// A process that is killed while it writes its ledger anew leaves nothing to go on with,
// or all of it.
func TestKilledWhileALedgerIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for fuse := 1; ; fuse++ {
			c := newKeeping(t, 1, true, nil)
			a := c.nodes["n0"]
			for i := range 3 {
				mustGrant(t, a.start(req(locks.Posix, 1, locks.Write, part(uint64(2*i), uint64(2*i)+1))))
			}
			a.Engine.mu.Lock()
			a.Engine.ledger.fails(errors.New("a test"))
			a.ledger.fuse = fuse
			a.Engine.ledger.renew()
			a.Engine.mu.Unlock()
			dead := a.ledger.dead
			fd, err := unix.FcntlInt(uintptr(a.ledger.FD()), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			x, err := shm.OpenNewest(ledgerForm(1<<12), LedgerWhose, []shm.Candidate{{FD: fd, Generation: 1}})
			if err != nil {
				unix.Close(fd)
				if !errors.Is(err, shm.ErrOver) && !errors.Is(err, shm.ErrFull) || !dead {
					t.Fatalf("after %d writes: %v", fuse-1, err)
				}
				continue
			}
			l, err := readLedger(&mortal{Tables: x})
			x.Close()
			if err != nil || len(l.l.keys) != 1 || len(l.l.keys[0].tickets) != 3 {
				t.Fatalf("after %d writes: %v", fuse-1, err)
			}
			if !dead {
				return
			}
		}
	})
}

// Neither a storm of damage nor one of signals ends a ledger.
func TestStormsDoNotEndALedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tables, err := shm.Create("test", 1, ledgerForm(0))
		if err != nil {
			t.Fatal(err)
		}
		defer tables.Close()
		c := newTuned(t, 1, func(o *Options) { o.Ledger = &mortal{Tables: tables} })
		a := c.nodes["n0"]
		a.Engine.mu.Lock()
		defer a.Engine.mu.Unlock()
		for i := range 4 * maxDamaged {
			k := locks.Key{File: fmt.Sprint(i), Class: locks.Posix}
			a.damages.told.put(k)
			a.Engine.ledger.damaged(k)
			if i%2 == 0 {
				_ = a.damages.take(k, "f")
			}
		}
		for i := range maxPlaces + 10 {
			a.tickets.places.put(req(locks.Flock, i, locks.Write, locks.Whole), locks.Stamp{}, time.Now(), time.Now())
		}
		if err := tables.Full(); err != nil {
			t.Error(err)
		}
		a.tickets.places.expire(time.Now().Add(time.Minute))
		a.Engine.ledger.expire(time.Now().Add(time.Minute))
		for n := range tables.All(tablePlaces) {
			t.Fatalf("place %d is left", n)
		}
		told := 0
		for range tables.All(tableTold) {
			told++
		}
		if told != a.damages.told.len() {
			t.Errorf("%d records say that nobody was told, and it is so of %d files", told, a.damages.told.len())
		}
	})
}
