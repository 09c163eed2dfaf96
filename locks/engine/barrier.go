package engine

import (
	"maps"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
)

// barriers are what is held from before the algorithm of its key changed, see
// change.go.
type barriers struct {
	*base
	ledger   *ledger
	entries  *entries
	outboxes *outboxes
	stepper  *stepper
}

// lift ends this node's part in a barrier if it holds nothing any more.
func (b *barriers) lift(en *entry) {
	if b.phase < restoring || !b.beside(en) || en.holds() {
		return // between two epochs: the next one looks again
	}
	delete(en.barrier, b.view.Self)
	b.ledger.sync(en)
	var letters []letter
	for _, m := range b.view.Members {
		if m != b.view.Self {
			letters = append(letters, letter{m, liftedFrame(en.key)})
		}
	}
	en.messages += len(letters)
	b.outboxes.queue(en, en.dirty, letters)
	b.lifted(en)
}

// receive: a member holds nothing of k any more from before the change
// of its algorithm. It may have written until now; but nothing was granted
// since the epoch began, so the next grant renews what is cached in any case.
func (b *barriers) receive(from locks.NodeID, k locks.Key) {
	en := b.entries.all[k]
	if en == nil || !en.barrier[from] {
		return
	}
	en.messages++
	delete(en.barrier, from)
	b.lifted(en)
	b.entries.tidy(en)
}

// lifted lets the machine grant, if nothing from before is held anywhere.
func (b *barriers) lifted(en *entry) {
	if len(en.barrier) == 0 {
		b.stepper.step(en, func(turn *locks.Turn) { en.machine.Resume(turn) })
	}
}

// blockers is Machine.Blockers, and what is held from before a change.
func (b *barriers) blockers(t *ticket, most int) (local []locks.TicketID, remote []locks.NodeID) {
	if !t.asks {
		return nil, nil
	}
	en := t.entry
	local, remote = en.machine.Blockers(t.ID, most)
	for _, n := range slices.Sorted(maps.Keys(en.barrier)) {
		switch {
		case n == b.view.Self:
			local = en.holding(local, most)
		case !slices.Contains(remote, n):
			remote = append(remote, n)
		}
	}
	return local, remote
}

// suspects is Machine.Suspects, and who holds from before a change.
func (b *barriers) suspects(en *entry, m locks.Mode, r locks.Range) []locks.NodeID {
	who := en.machine.Suspects(m, r)
	for _, n := range slices.Sorted(maps.Keys(en.barrier)) {
		if n != b.view.Self && !slices.Contains(who, n) {
			who = append(who, n)
		}
	}
	return who
}
