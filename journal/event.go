package journal

import "fmt"

// Event is what a record tells. The numbers are on disk and on their way to
// other programs as names: neither ever changes its meaning, and new ones are
// added at the end.
type Event uint8

// The life of a request: Requested, then any number of Waiting, then one of
// Granted, Denied and Withdrawn; after a grant any number of Released, the last
// of them with Final set, or Lost. Resumed may come anywhere in between.
const (
	// Requested: a program asked for a lock. The request is open from here on.
	Requested Event = iota + 1
	// Waiting: the request can't be granted yet; Peer or Reason tells why.
	Waiting
	// Granted: the program was told that it holds the lock.
	Granted
	// Denied: the program was told that it can't have the lock. Ends the request.
	Denied
	// Withdrawn: the program stopped waiting, or was stopped. Ends the request.
	Withdrawn
	// Released: the lock, or the part in Range, was given up. With Final it
	// ends the request.
	Released
	// Lost: the lock was taken away: others may hold it now, and the program
	// was not asked. Ends the request.
	Lost

	// Fenced: this node was expelled; what it held is lost.
	Fenced
	// View: an epoch began.
	View
	// Recovered: the journal was opened after a run that did not close it.
	Recovered
	// LateWrite: a write to the backing file, or another change of the storage,
	// ended after the lock that protected it could have been lost.
	LateWrite

	// Start and Stop: the daemon began and ended its work.
	Start
	Stop
	// Join and Leave: a member came and went.
	Join
	Leave
	// Policy: the rules changed.
	Policy
	// Note: what else an admin should know, such as damage to the journal.
	Note

	// Resumed: another program, or process, serves the mount now, and the request goes on under
	// its number, with its place or its lock.
	Resumed
	// Upgraded: another program has taken the place of the one that served the
	// mount. What is open goes on.
	Upgraded
	// TakenOver: the process that served the mount was killed, and another one goes on
	// with what that held.
	TakenOver

	lastEvent = TakenOver
)

var eventNames = [...]string{
	Requested: "requested",
	Waiting:   "waiting",
	Granted:   "granted",
	Denied:    "denied",
	Withdrawn: "withdrawn",
	Released:  "released",
	Lost:      "lost",
	Fenced:    "fenced",
	View:      "view",
	Recovered: "recovered",
	LateWrite: "late_write",
	Start:     "start",
	Stop:      "stop",
	Join:      "join",
	Leave:     "leave",
	Policy:    "policy",
	Note:      "note",
	Resumed:   "resumed",
	Upgraded:  "upgraded",
	TakenOver: "taken_over",
}

// String is the name of e, as in JSON and in filters. An event of a later
// version that this one does not know is "event_N".
func (e Event) String() string {
	if e == 0 || e > lastEvent {
		return fmt.Sprintf("event_%d", uint8(e))
	}
	return eventNames[e]
}

// ParseEvent is the inverse of [Event.String].
func ParseEvent(s string) (Event, error) {
	for e := Requested; e <= lastEvent; e++ {
		if eventNames[e] == s {
			return e, nil
		}
	}
	var n uint8
	if _, err := fmt.Sscanf(s, "event_%d", &n); err == nil && n != 0 && Event(n).String() == s {
		return Event(n), nil
	}
	return 0, fmt.Errorf("unknown event %q (known: %v)", s, Events())
}

// Events are all events, in the order of their numbers.
func Events() []Event {
	all := make([]Event, 0, lastEvent)
	for e := Requested; e <= lastEvent; e++ {
		all = append(all, e)
	}
	return all
}

// urgent reports whether a record of e is to be on stable storage at once:
// these are rare, and what an admin looks for after a power cut.
func (e Event) urgent() bool {
	switch e {
	case Lost, Fenced, View, Recovered, LateWrite, Start, Stop, Join, Leave, Policy, Note, Upgraded, TakenOver:
		return true
	}
	return false
}

// ends reports whether a record of e is the last one of its request.
func (e Event) ends(final bool) bool {
	switch e {
	case Denied, Withdrawn, Lost:
		return true
	case Released:
		return final
	}
	return false
}
