package engine

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/internal/long"
	"github.com/dmxfs/dmxfs/internal/shm"
	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/locktest"
)

// costsOf names, for each method of an engine, the rows of TestCostOfManyLocks
// that measure it, or says why it has none.
var costsOf = map[string][]string{
	"Admit":         {"I/O"},
	"Break":         {"break"},
	"Closing":       {"close", "close all"},
	"Condemn":       {"break"},
	"Count":         {"list"},
	"Delegation":    nil, // looks at two fields, as do the next ones without a row
	"Expelled":      {"expelled"},
	"Freeze":        {"view"},
	"Bequeath":      {"hand over"},
	"Install":       {"view"},
	"Leave":         {"leave"},
	"LedgerStatus":  nil,
	"Lock":          {"take", "take by many", "take in another order", "replace", "downgrade"},
	"LockNow":       nil, // finds nothing in three maps, and is Lock then
	"List":          {"list"},
	"Locks":         {"list"},
	"LongWaits":     {"list"},
	"Longest":       nil,
	"Moment":        nil,
	"NewRules":      {"new rules"},
	"Ping":          nil,
	"Receive":       {"asked by another host"},
	"ReceiveNow":    nil, // a step of a machine, see TestCost of the algorithms
	"Resume":        {"resume"},
	"Resumed":       nil, // copies a list
	"Run":           {"idle files", "write the ledger anew"},
	"Share":         {"share"},
	"State":         {"view"},
	"Sync":          {"view"},
	"Inherit":       {"hand over"},
	"Tenure":        nil,
	"Test":          {"ask", "ask of many"},
	"Unlock":        {"unlock one by one"},
	"UnlockHandle":  {"close", "close one of two", "close all"},
	"UnlockOwner":   {"drop"},
	"Wanted":        {"open and ask whether it is wanted"},
	"ResumeIO":      {"resume I/O"},
	"GiveUpUnknown": {"give up what is unknown"},
}

// A method that nothing measures is not added.
func TestEveryMethodHasACost(t *testing.T) {
	rows := map[string]bool{}
	for _, c := range costs {
		rows[c.name] = true
	}
	for m := range reflect.TypeFor[*Engine]().Methods() {
		names, ok := costsOf[m.Name]
		if !ok {
			t.Errorf("nothing says what %s costs where there are many locks", m.Name)
		}
		for _, name := range names {
			if !rows[name] {
				t.Errorf("%s: there is no row %q", m.Name, name)
			}
		}
	}
}

var (
	manyKey = locks.Key{File: "f", Class: locks.Posix}
	openKey = locks.Key{File: "f", Class: locks.Open}
)

func must(e *Engine, r *locks.Request) {
	if _, err := e.Lock(nil, r); err != nil {
		panic(err)
	}
}

func takeMany(e *Engine, n int) {
	for i := range n {
		must(e, piece(1, i, locks.Write))
	}
}

func openMany(e *Engine, n int) {
	for i := range n {
		must(e, opening(i+1, i+1, locks.Read))
	}
}

func all(pid int, m locks.Mode) *locks.Request {
	return byProcess(pid, locks.Posix, "f", m, locks.Whole)
}

// costs are what is done with very many locks. prepare is not measured.
var costs = []struct {
	name    string
	prepare func(e *Engine, n int)
	run     func(e *Engine, n int)
}{
	{"take", nil, takeMany},
	{"take by many", nil, func(e *Engine, n int) {
		for i := range n {
			must(e, all(i+1, locks.Read))
		}
	}},
	{"replace", takeMany, func(e *Engine, n int) { must(e, all(1, locks.Write)) }},
	{"drop", takeMany, func(e *Engine, n int) { e.UnlockOwner(manyKey, 1) }},
	{"close", takeMany, func(e *Engine, n int) {
		e.Closing(manyKey, 1)
		e.UnlockHandle(manyKey, 1, "closed")
	}},
	{"close one of two", func(e *Engine, n int) {
		for i := range n {
			r := piece(1, i, locks.Write)
			r.Handle = locks.HandleID(1 + i%2)
			must(e, r)
		}
	}, func(e *Engine, n int) { e.UnlockHandle(manyKey, 1, "closed") }},
	{"downgrade", func(e *Engine, n int) {
		for i := range n { // without a gap: nobody's leave is needed
			r := byProcess(1, locks.Posix, "f", locks.Write, locks.Range{Start: uint64(i), End: uint64(i) + 1})
			r.Handle = locks.HandleID(1 + i%2)
			must(e, r)
		}
	}, func(e *Engine, n int) {
		r := all(1, locks.Read)
		r.Range.End = uint64(n)
		must(e, r)
	}},
	{"ask", takeMany, func(e *Engine, n int) {
		for range 100 {
			if c, err := e.Test(nil, all(2, locks.Write)); c == nil || err != nil {
				panic(fmt.Sprint(c, err))
			}
		}
	}},
	{"ask of many", func(e *Engine, n int) {
		for i := range n {
			must(e, all(i+1, locks.Read))
		}
	}, func(e *Engine, n int) {
		// Once: again and again the few would be in the processor's caches, and the many not.
		e.mu.Lock()
		e.queries.conflicts(manyKey, locks.Write, locks.Whole, nil, maxConflicts)
		e.mu.Unlock()
	}},
	{"open and ask whether it is wanted", openMany, func(e *Engine, n int) {
		for range n {
			e.Wanted(openKey)
		}
	}},
	{"close all", openMany, func(e *Engine, n int) {
		for i := range n {
			e.Closing(openKey, locks.HandleID(i+1))
			e.UnlockHandle(openKey, locks.HandleID(i+1), "closed")
		}
	}},
	{"list", takeMany, func(e *Engine, n int) { e.Locks(); e.Count(); e.LongWaits(0) }},
	{"break", takeMany, func(e *Engine, n int) {
		e.Condemn(manyKey, []locks.HandleID{1}, "an admin wants it")
		e.Break(manyKey, []locks.HandleID{1})
	}},
	{"view", takeMany, func(e *Engine, n int) {
		e.Freeze()
		s := e.State()
		e.Install(&locks.View{Epoch: 2, Self: "n0", Members: []locks.NodeID{"n0"}})
		if err := e.Sync("n0", 2, s); err != nil {
			panic(err)
		}
	}},
	{"expelled", takeMany, func(e *Engine, n int) { e.Expelled("a test") }},
	{"leave", takeMany, func(e *Engine, n int) { e.Leave() }},
	{"idle files", func(e *Engine, n int) {
		for i := range n {
			r := byProcess(1, locks.Posix, fmt.Sprint(i), locks.Write, locks.Whole)
			must(e, r)
			e.UnlockOwner(r.Key, 1)
		}
	}, func(e *Engine, n int) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.sweeper.sweep(time.Now().Add(time.Minute))
	}},
	{"write the ledger anew", func(e *Engine, n int) {
		takeMany(e, n)
		tables, err := shm.Create("test", 1, ledgerForm(0))
		if err != nil {
			panic(err)
		}
		e.ledger.failure.l = tables
	}, func(e *Engine, n int) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.ledger.renew(); e.ledger.l == nil {
			panic("there is no room")
		}
		e.ledger.l.(*shm.Tables).Close()
		e.ledger.l = nil
	}},
	{"take in another order", nil, func(e *Engine, n int) {
		for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
			must(e, piece(1, i, locks.Write))
		}
	}},
	{"unlock one by one", takeMany, func(e *Engine, n int) {
		for i := range n {
			e.Unlock(manyKey, 1, piece(1, i, locks.Write).Range)
		}
	}},
	{"share", func(e *Engine, n int) {
		for i := range n {
			must(e, opening(i+1, i+1, locks.Write))
		}
	}, func(e *Engine, n int) {
		for i := range n {
			e.Share(openKey, locks.HandleID(i+1), "a test")
		}
	}},
	{"I/O", takeMany, func(e *Engine, n int) {
		for range n {
			if err := e.Admit(nil, e.Tenure()); err != nil {
				panic(err)
			}
		}
	}},
	{"hand over", takeMany, func(e *Engine, n int) {
		state, err := e.Bequeath()
		if err == nil {
			err = New(e.o).Inherit(state)
		}
		if err != nil {
			panic(err)
		}
	}},
	{"give up what is unknown", openMany, func(e *Engine, n int) {
		if e.GiveUpUnknown(func(locks.Key, locks.HandleID) bool { return false }, "a test") != n {
			panic("not all were given up")
		}
	}},
	{"resume", takeMany, func(e *Engine, n int) { e.Resume() }},
	{"resume I/O", takeMany, func(e *Engine, n int) { e.ResumeIO() }},
	{"asked by another host", takeMany, func(e *Engine, n int) {
		q := &query{id: 1, key: manyKey, mode: locks.Write, rng: locks.Whole}
		for range n {
			e.Receive("n0", 1, queryFrame(q))
		}
	}},
	{"new rules", takeMany, func(e *Engine, n int) {
		e.Freeze()
		e.NewRules()
		s := e.State()
		e.Install(&locks.View{Epoch: 2, Self: "n0", Members: []locks.NodeID{"n0"}})
		if err := e.Sync("n0", 2, s); err != nil {
			panic(err)
		}
	}},
}

// Whatever a program does with many locks, none of them costs more than if there
// were few.
func TestCostOfManyLocks(t *testing.T) {
	few := locktest.Few()
	if long.Race || testing.Short() {
		few /= 4 // it is slow
	}
	for _, c := range costs {
		for _, alg := range []string{"rw", "ring"} {
			if alg != "rw" && (c.name == "take by many" || c.name == "ask of many") {
				continue // they wait
			}
			t.Run(alg+" "+c.name, func(t *testing.T) {
				locktest.Growth(t, few, func(n int) func() {
					e := costly(t, 1)
					e.o.Rule = func(string) string { return alg }
					if c.prepare != nil {
						c.prepare(e, n)
					}
					return func() { c.run(e, n) }
				})
			})
		}
	}
}
