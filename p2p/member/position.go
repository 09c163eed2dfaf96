package member

import "fmt"

// position is where this node stands: what it is, the view that it has
// installed, and the one that it is about to install.
type position struct {
	*base
	*identity
	state  State
	joined bool  // this process has been a member
	since  int64 // when this node became a member

	view  *View  // the installed view; outside, the newest known one
	index int    // this node's place in it
	known waking // since it was learned
	next  *install

	noted int64 // when the last notice about waiting was given
}

// install is a view that this node follows as soon as the engine is frozen.
type install struct {
	view *View
	mine bool // this node made it
}

func (p *position) start() { p.known = p.sinceNow() }

func (p *position) wake() { p.known.tick(p.base) }

// top is the newest view that this node follows, or is about to.
func (p *position) top() *View {
	if p.next != nil {
		return p.next.view
	}
	return p.view
}

// join: this node is in a view for the first time in this incarnation.
func (p *position) join() {
	p.state, p.joined, p.since = StateMember, true, p.now
}

func (p *position) leave() { p.state = StateLeaving }

// follow begins the installation of w.
func (p *position) follow(w *View, mine bool) {
	p.next = &install{view: w, mine: mine || p.next != nil && p.next.mine}
}

// install ends it, and returns the view before.
func (p *position) install() (old *View, mine bool) {
	old, mine = p.view, p.next.mine
	p.enter(p.next.view)
	return old, mine
}

// outside: w is the newest view known, and this node is not in it.
func (p *position) outside(w *View) {
	p.state = StateOut
	p.enter(w)
	p.index = -1
}

// expelled: what this node held is lost.
func (p *position) expelled(e Expelled) {
	p.out.Expelled = &e
	p.noted = 0
}

func (p *position) enter(w *View) {
	p.next = nil
	p.view, p.index = w, w.Index(p.me)
	p.known = p.sinceNow()
}

// finish ends the machine.
func (p *position) finish(e End) {
	if p.state == StateMember {
		p.out.Expelled = &Expelled{Why: e.Text}
	}
	p.state, p.next = StateEnded, nil
	p.out.End = &e
}

func (p *position) ended() bool { return p.state == StateEnded }

// holding: this view was built above one that nobody could read, whose members
// may be alive until their looks are too old. See View.Unsure.
func (p *position) holding() bool {
	return p.view.Unsure && p.known.ms < p.p.LookTenure+p.p.lookMargin()+p.unsureCache()
}

// unsureCache is how old the listings may be that members of views rely on
// which are not known. After a restore that is those of this node: the admin
// says that nobody else uses the storage.
func (p *position) unsureCache() int64 {
	if p.view.Reason == ReasonRestored && p.view.By == p.me {
		return p.cfg.Self.Cache
	}
	return p.view.Timing.CacheMax
}

func (p *position) note(kind NoticeKind, n Node, host, format string, args ...any) {
	p.out.Notices = append(p.out.Notices, Notice{Kind: kind, Epoch: p.view.Epoch, Node: n, Host: host, Text: fmt.Sprintf(format, args...)})
}

// noteWaiting says why this node is still outside, not too often.
func (p *position) noteWaiting(format string, args ...any) {
	if p.now-p.noted >= p.p.Partial || p.noted == 0 {
		p.noted = p.now
		p.note(Waiting, Node{}, "", format, args...)
	}
}

// without is the next view, without some members.
func (p *position) without(reason string, nodes []Node, why func(Node) string) *View {
	w := p.view.next(p.me, reason)
	for _, n := range nodes {
		w.drop(n, why(n))
	}
	return w
}
