package engine

import (
	"fmt"

	"github.com/dmxfs/dmxfs/locks"
)

// Locks take memory, here and in the journal, and one program must not use it
// up for all. Counted are the tickets of a process: what it waits for, and the
// pieces of what it holds. A request is refused when there are too many; giving
// up is not, also where it makes two pieces of one.

// DefaultMaxLocks is how many tickets a process may have, held and waiting, if
// Options.MaxLocks says nothing else.
const DefaultMaxLocks = 250_000

// user is who has locks: a process, or of programs that the daemon cannot see an
// owner of locks of one class: a process by fcntl(2), else an open file.
type user struct {
	pid   int
	class locks.Class
	owner locks.OwnerID
}

func userOf(r *request) user { return userFor(&r.Program, r.Key.Class, r.Handle, r.Owner) }

func userFor(p *locks.Program, c locks.Class, h locks.HandleID, o locks.OwnerID) user {
	if p.PID != 0 {
		return user{pid: p.PID}
	}
	if c == locks.Open {
		return user{class: locks.Open, owner: locks.OwnerID(h)} // all opens may have one owner
	}
	return user{class: c, owner: o}
}

// hasRoom reports whether the program of r may have one more lock.
func (q *quota) hasRoom(r *locks.Request) bool {
	u := q.users[userFor(&r.Program, r.Key.Class, r.Handle, r.Owner)]
	return u == nil || u.tickets < q.o.MaxLocks
}

// usage is what one user has.
type usage struct {
	tickets int
	told    bool // the log knows that it is too much
}

// quota counts the tickets of users, and bounds them.
type quota struct {
	*base
	ledger *ledger
	users  map[user]*usage
}

// keep adds t to its entry.
func (q *quota) keep(t *ticket) {
	t.entry.add(t)
	by := userOf(t.req)
	u := q.users[by]
	if u == nil {
		u = &usage{}
		q.users[by] = u
	}
	u.tickets++
}

func (q *quota) reset() { clear(q.users) }

// lose takes t from its entry.
func (q *quota) lose(t *ticket) {
	q.ledger.loses(t)
	delete(t.entry.tickets, t.ID)
	t.entry.gaveUp(t)
	by := userOf(t.req)
	u := q.users[by]
	if u.tickets--; u.tickets == 0 {
		delete(q.users, by)
	}
}

// tooMany refuses a request of a process that has as many locks as it may.
// One that takes the place of what its owner has makes them fewer.
func (q *quota) tooMany(en *entry, r *request) error {
	p, u := &r.Program, q.users[userOf(r)]
	if u == nil || u.tickets < q.o.MaxLocks || en.replaces(r) {
		return nil
	}
	if !u.told {
		u.told = true
		q.o.Log.Warn("a process has as many locks as it may: further ones fail with ENOLCK", "pid", p.PID, "command", p.Command,
			"locks", u.tickets)
	}
	return fmt.Errorf("%w: %s has %d locks, as many as a process may have", locks.ErrUnavailable, describe(*p), u.tickets)
}
