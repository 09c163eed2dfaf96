package member

import "fmt"

// lease is this node's tenure: for how long it may grant.
type lease struct {
	*position
	scans      *scans
	troubles   *troubles
	heartbeats *heartbeats
	suspended  bool // the notice was given
}

// until is when this node's tenure ends; 0 is at once. Others drop this
// node only when they know that this time is over on its clock.
func (l *lease) until() int64 {
	if l.state != StateMember || l.next != nil || l.holding() {
		return 0
	}
	order := l.heartbeats.order
	until := l.scans.at + l.p.LookTenure
	for _, y := range order {
		if t := y.ten + l.p.Tenure; t < until {
			until = t
		}
	}
	return max(until, 0)
}

// tell reports that this node's tenure ended, or is back. The pause of a
// new view is not worth a line.
func (l *lease) tell(live bool) {
	switch {
	case l.state != StateMember:
		l.suspended = false
	case live && l.suspended:
		l.suspended = false
		l.note(Resumed, Node{}, "", "locks are granted again")
	case !live && !l.suspended && l.next == nil && l.known.ms > 2*l.p.Heartbeat:
		l.suspended = true
		l.note(Suspended, Node{}, "", "no lock can be granted: %s", l.missing())
	}
}

// missing names what tenure is missing.
func (l *lease) missing() string {
	if l.holding() {
		return "waiting until nobody can be alive in the view that could not be read"
	}
	for _, y := range l.heartbeats.order {
		if l.now >= y.ten+l.p.Tenure {
			if y.ten < 0 {
				return fmt.Sprintf("no promise from %s yet", y.Name())
			}
			return fmt.Sprintf("no promise from %s for %d ms", y.Name(), l.now-y.ten)
		}
	}
	if l.now >= l.scans.at+l.p.LookTenure {
		why := l.troubles.String()
		switch {
		case why != "":
		case l.scans.part:
			why = fmt.Sprintf("the listing of the views is not whole: view %d is not in it, but is there", l.view.Epoch)
		case l.scans.missing != 0:
			why = fmt.Sprintf("view %d is missing from the shared storage: was .dmxfs removed, or another directory mounted there?", l.view.Epoch)
		default:
			why = "the storage does not answer"
		}
		return "no look at the views: " + why
	}
	return "nothing is missing"
}
