package engine

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/shm"
	"github.com/dmxfs/dmxfs/locks"
)

// ledgerForm is that of LedgerTables, for fewer records where most is not 0.
func ledgerForm(most int) shm.Form {
	f := shm.Form{Version: LedgerVersion, Texts: most}
	for _, s := range LedgerTables {
		if most > 0 {
			s.Max = min(s.Max, most)
		}
		f.Tables = append(f.Tables, shm.Spec{Words: s.Words, Texts: s.Texts, Max: s.Max})
	}
	return f
}

// mortal is the ledger of a process that can be killed: at the next or a later write,
// which is not done then, nor any other one. Its clock is that of the test.
type mortal struct {
	*shm.Tables
	fuse int // writes until then; 0: it lives on
	dead bool
}

func newMortal(t *testing.T) *mortal {
	tables, err := shm.Create("test", 1, ledgerForm(1<<12))
	if err != nil {
		t.Fatal(err)
	}
	return &mortal{Tables: tables}
}

func (m *mortal) isDead() bool { return m != nil && m.dead }

// dies counts a write, and reports whether it is not done.
func (m *mortal) dies() bool {
	if m.fuse > 0 {
		m.fuse--
		m.dead = m.dead || m.fuse == 0
	}
	return m.dead
}

func (m *mortal) Put(table int, words []uint64) (uint32, error) {
	if m.dies() {
		return ^uint32(0), nil
	}
	return m.Tables.Put(table, words)
}

func (m *mortal) Set(table int, number uint32, words []uint64) error {
	if m.dies() {
		return nil
	}
	return m.Tables.Set(table, number, words)
}

func (m *mortal) Delete(table int, number uint32) {
	if !m.dies() {
		m.Tables.Delete(table, number)
	}
}

func (m *mortal) Clear() {
	if !m.dies() {
		m.Tables.Clear()
	}
}

func (m *mortal) Renew() {
	if !m.dies() {
		m.Tables.Renew()
	}
}

func (m *mortal) Text(s string) (uint64, error) {
	if m.dead {
		return 1, nil
	}
	return m.Tables.Text(s)
}

func (m *mortal) Clock() time.Duration { return time.Duration(time.Now().UnixNano()) }

// ledgersAgree checks that the ledger of each node has what the engine has.
func (c *net) ledgersAgree() {
	c.t.Helper()
	for _, n := range c.nodes {
		if n.ledger != nil {
			n.ledgerAgrees()
		}
	}
}

func (n *node) ledgerAgrees() {
	t := n.net.t
	t.Helper()
	n.Engine.mu.Lock()
	defer n.Engine.mu.Unlock()
	if n.view == nil || n.left.Load() {
		return
	}
	if err := n.ledger.Full(); err != nil {
		t.Fatalf("%s: %v", n.id, err)
	}
	rd, err := readLedger(n.ledger)
	if err != nil {
		t.Fatalf("%s: %v", n.id, err)
	}
	is, want := inLedger(n.Engine, timeless(rd.l)), inLedger(n.Engine, timeless(n.bequest.describe()))
	for i := range max(len(is.keys), len(want.keys)) {
		var a, b any
		if i < len(is.keys) {
			a = is.keys[i]
		}
		if i < len(want.keys) {
			b = want.keys[i]
		}
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s: the ledger has\n%+v\nand it is\n%+v", n.id, a, b)
		}
	}
	if !reflect.DeepEqual(is, want) {
		t.Errorf("%s: the ledger has\n%+v\nand it is\n%+v", n.id, is, want)
	}
}

// inLedger is l without what a ledger need not have, and with the requests in order.
func inLedger(e *Engine, l *legacy) *legacy {
	x := *l
	x.newRules, x.pinned, x.floor, x.keys = false, nil, 0, nil
	if len(e.ledger.gone) > 0 {
		x.told = nil // programs are just told
	}
	x.requests = nil
	if len(x.words) == 0 {
		x.words = nil
	}
	for _, k := range l.keys {
		en := e.entries.all[k.key]
		k.messages, k.joined = 0, 0
		// It may say too long that a file is to be written out.
		k.dirty = k.dirty || en != nil && (e.ledger.owes(en) || en.line != nil && en.line.words[keyFlags]&keyDirty != 0)
		var ts []legacyTicket
		for _, t := range k.tickets {
			if en != nil && en.tickets[t.id] != nil && en.tickets[t.id].line == 0 && t.state != legacyHeld {
				continue // it does not wait, or not for long
			}
			if t.state == legacyAsks {
				t.stamp.Site = "" // a new epoch may give it another one
			}
			r := *l.requests[t.req]
			t.req = len(x.requests)
			x.requests = append(x.requests, &r)
			ts = append(ts, t)
		}
		if k.tickets = ts; len(ts) > 0 || k.dirty {
			if len(ts) == 0 {
				k.machine = nil
			}
			x.keys = append(x.keys, k)
		}
	}
	return &x
}

// killed has another process take the place of a node that is dead, or is killed at
// this moment.
func (c *net) killed(old, name locks.NodeID) *node {
	c.t.Helper()
	a := c.nodes[old]
	a.Engine.mu.Lock()
	a.ledger.dead = true
	a.Engine.mu.Unlock()
	c.remove(old)
	state := c.readLedger(a)
	a.stop()
	synctest.Wait()
	b := c.nodes[c.add(name)]
	if err := b.Inherit(state); err != nil {
		c.t.Fatalf("%s takes over: %v", name, err)
	}
	return b
}

// readLedger is what another process finds of a.
func (c *net) readLedger(a *node) []byte {
	c.t.Helper()
	tables := reopen(c.t, a.ledger.Tables)
	defer tables.Close()
	state, err := ReadLedger(&mortal{Tables: tables})
	if err != nil {
		c.t.Fatalf("what %s has left: %v", a.id, err)
	}
	return state
}

// A successor of one that was killed is what that was, and nothing of it stays for ever.
func TestASuccessorOfOneThatWasKilled(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 21))
			c := newKeeping(t, 2, true, nil)
			a, b := c.nodes["n0"], c.nodes["n1"]
			elsewhere := b.random(rnd)
			a.random(rnd)
			elsewhere = append(elsewhere, b.random(rnd)...)
			synctest.Wait()
			a.ledgerAgrees()
			a.Engine.mu.Lock()
			was := inLedger(a.Engine, timeless(a.bequest.describe()))
			a.Engine.mu.Unlock()
			x := c.killed("n0", "n0x")
			x.Engine.mu.Lock()
			is := inLedger(x.Engine, timeless(x.bequest.describe()))
			x.Engine.mu.Unlock()
			if !reflect.DeepEqual(is, was) {
				t.Errorf("seed %d: it is %+v, and was %+v", seed, is, was)
			}
			x.ledgerAgrees()
			c.view("n0x", "n1")
			c.check()
			c.ledgersAgree()
			for _, n := range []*node{x, b} {
				n.GiveUpUnknown(func(locks.Key, locks.HandleID) bool { return false }, "a test")
			}
			time.Sleep(time.Second)
			for range 3 { // who waited has it now, and nobody has asked for that
				b.GiveUpUnknown(func(locks.Key, locks.HandleID) bool { return false }, "a test")
				time.Sleep(time.Second)
			}
			for i, p := range elsewhere {
				if !p.is() {
					t.Errorf("seed %d: process %d of the other node still waits", seed, i)
				}
			}
			if held, waits := x.Count(); held+waits > 0 {
				t.Errorf("seed %d: %d are held, %d wait", seed, held, waits)
			}
			c.ledgersAgree()
		})
	}
}

func dup(t *testing.T, tables *shm.Tables) int {
	t.Helper()
	fd, err := unix.FcntlInt(uintptr(tables.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// reopen is what another process finds.
func reopen(t *testing.T, tables *shm.Tables) *shm.Tables {
	t.Helper()
	fd := dup(t, tables)
	found, err := shm.Open(fd, 1, ledgerForm(1<<12))
	if err != nil {
		unix.Close(fd)
		t.Fatal(err)
	}
	return found
}
