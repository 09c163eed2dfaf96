package member

import (
	"fmt"
	"slices"
	"strings"
)

// join is the state of a node outside of the view.
type join struct {
	at      int64 // not before: back-off
	helloAt int64 // when HELLO is due
	since   int64 // when the first HELLO at this base went out
	quit    bool  // the node wants to leave before it has joined
	quitAt  int64

	wordAt       int64          // when a member of v spoke last
	welcome      map[Node]int64 // when each member of v welcomed this node
	ready        bool           // the last HELLO said so
	partialSince int64          // since when some welcome and others do not

	ask   *challenge // also after this node has added itself by it
	askAt int64      // not before
	noted int64      // when the last notice about waiting was given

	online bool  // nobody has answered the ask for a twin
	over   *End  // what this node ends with when its ask is taken back
	overAt int64 // since when
}

// challenge is a newcomer's ask on the storage. It decides nothing: after it
// the newcomer adds itself to the view, which is safe at any time, and drops
// nobody whom rule Drop protects. It is there so that a newcomer that reaches
// the storage alone does not disturb a cluster that is alive.
type challenge struct {
	c      Challenge
	posted bool
	age    int64 // waking time since
	from   int64 // when that was
	cache  int64 // the largest S of those concerned
	first  bool  // this node has not been a member before
	others bool  // members have answered, but not the one of this peer
	// answered is what a first start ends with if it still hears no member
	// when its patience is over.
	answered *End
}

// rebase begins again at a new base.
func (j *join) rebase() {
	j.helloAt, j.since = never, never
	j.wordAt, j.partialSince = never, never
	j.welcome, j.ready = map[Node]int64{}, false
	j.online = false
}

func (j *join) wake(m *Machine) {
	if j.ask != nil && j.ask.posted {
		j.ask.age += m.awake(j.ask.from)
	}
}

const revokedText = "an admin revoked this peer; `dmxfs peers revoke --undo` on a member lets it in again"

const policyText = "the cluster has another policy: start with the same one or with none, or change it on a member"

func timingText(cluster, mine Timing) string {
	return fmt.Sprintf("the cluster's times are %v; this node's are %v: start it with the same --heartbeat, --tenure and --tenure-margin, or --fast", cluster, mine)
}

func cacheText(cluster Timing, mine int64) string {
	return fmt.Sprintf("listings of the storage may be %d ms old here; the cluster was founded with a limit of %d ms", mine, cluster.CacheMax)
}

// checkWanted ends a machine that has no place in the newest view.
func (m *Machine) checkWanted() {
	v := m.v
	switch {
	case !m.cfg.Bury.IsZero(): // it does not want in
	case v.IsRevoked(m.me.Peer):
		m.finish(End{Code: EndRevoked, Text: revokedText})
	case len(v.Members) == 0:
	case v.Protocol != Protocol && !m.alone(v):
		m.finish(End{Code: EndNewer, Text: m.versionText(v), Nodes: v.Members})
	case !v.Timing.same(m.p.Timing):
		m.finish(End{Code: EndTiming, Text: timingText(v.Timing, m.p.Timing)})
	case m.cfg.Self.Cache > v.Timing.CacheMax:
		m.finish(End{Code: EndTiming, Text: cacheText(v.Timing, m.cfg.Self.Cache)})
	case !v.Policy.Serves(m.asksFor()) && !m.alone(v):
		m.finish(End{Code: EndPolicy, Text: policyText})
	case m.joined && v.Reason == ReasonRestored && v.FileID == "":
		m.finish(End{Code: EndLost, Text: "the directory of the cluster was made anew: this process knows the one before"})
	case !v.agrees(m.fileID(v)) && !m.alone(v) && !m.bug.anyFileID:
		m.finish(End{Code: m.fileIDCode(), Text: fileIDText(v.FileID, m.fileID(v))})
	}
}

// asksFor is the hash of the policy without which this node does not want to
// be in the view. It is asked for until the process is a member for the first
// time: after that programs use its mount, and it takes what there is.
func (m *Machine) asksFor() string {
	if m.cfg.Policy == nil || m.joined {
		return ""
	}
	return m.cfg.Policy.Hash
}

// alone reports whether all members of v are this node's peer. When they are
// former selves, there is nobody whose policy it would have to share.
func (m *Machine) alone(v *View) bool {
	return !slices.ContainsFunc(v.Members, func(y Member) bool { return y.Peer != m.me.Peer })
}

// bringPolicy makes w, in which this node joins, a view with the policy that
// it asks for, if nobody else is in it. One that was changed since keeps the
// change.
func (m *Machine) bringPolicy(w *View) {
	if m.alone(w) && !w.Policy.Serves(m.asksFor()) {
		w.Policy = *m.cfg.Policy
	}
}

// bring makes w, in which this node joins, what it would have of its own, if
// nobody else is in it.
func (m *Machine) bring(w *View) {
	m.bringPolicy(w)
	m.bringFileID(w)
}

// joinTick ends what has waited too long outside.
func (m *Machine) joinTick() {
	j := &m.join
	if j.quit && (m.prop == nil && m.now-j.quitAt >= 2*m.p.Heartbeat || m.now-j.quitAt >= leaveLimit) {
		m.finish(End{Code: EndLeft, Text: "left before it had joined"})
	}
}

// tryJoin does what a node outside can do at this moment to get in. It is
// called after every input.
func (m *Machine) tryJoin() {
	j := &m.join
	if m.prop != nil || !m.disk.seen || j.quit {
		return
	}
	if m.behind() {
		m.tryRestored()
		return
	}
	early := m.now < j.at
	if m.disk.above(m.v) {
		if !early && m.cfg.Bury.IsZero() {
			m.sayHello() // who can read that view sends it
		}
		return
	}
	if dead := m.deadMembers(); len(dead) > 0 && m.fenceAll(dead, true) {
		// The locks of the dead come free now. A short pause is left out: it
		// keeps nobody from anything, and a node that has to join on its own
		// takes longer.
		w := m.without(ReasonReplace, dead, m.howDead)
		if j.at-m.now <= 2*m.p.Heartbeat && m.cfg.Bury.IsZero() && m.twin() == nil && j.over == nil {
			w.add(m.self())
			m.bring(w)
		}
		m.propose(w)
		return
	}
	if !m.cfg.Bury.IsZero() {
		if !m.v.Has(m.cfg.Bury) {
			m.finish(End{Code: EndLeft, Text: "the dead node is not in the view"})
		}
		return
	}
	if early || m.awaitTwin() {
		return
	}
	if len(m.v.Members) == 0 {
		m.found()
		return
	}
	if m.tryGiveUp() {
		return
	}
	m.sayHello()
	m.tryChallenge()
	m.checkPartial()
}

// found begins a cluster, or goes on with one that all members have left.
func (m *Machine) found() {
	w := m.v.next(m.me, ReasonJoin)
	w.Timing = m.p.Timing
	w.add(m.self())
	m.bring(w)
	m.propose(w)
}

func (m *Machine) hello(ready bool) Hello {
	return Hello{Ready: ready, Member: m.self(), Timing: m.p.Timing, Policy: m.asksFor(), FileID: m.fileID(m.v)}
}

// sayHello asks all members for a welcome, and says when all have given one.
func (m *Machine) sayHello() {
	j := &m.join
	ready := m.allWelcome()
	if ready == j.ready && m.now < j.helloAt+m.p.Heartbeat {
		return
	}
	if j.since == never {
		j.since = m.now
	}
	j.ready, j.helloAt = ready, m.now
	for i := range m.v.Members {
		m.send(m.v.Members[i].Node, m.hello(ready))
	}
}

func (m *Machine) onWelcome(from Node) {
	if m.v.Has(from) {
		m.join.welcome[from] = m.now
	}
}

// welcomes counts the members that have welcomed this node lately.
func (m *Machine) welcomes() int {
	n := 0
	for i := range m.v.Members {
		if at, ok := m.join.welcome[m.v.Members[i].Node]; ok && m.now-at <= m.p.Hears {
			n++
		}
	}
	return n
}

func (m *Machine) allWelcome() bool {
	if m.bug.admitPartial {
		return m.welcomes() > 0
	}
	return m.welcomes() == len(m.v.Members)
}

// onRefused ends a first start. A former member goes on asking: what is in
// the way may pass.
func (m *Machine) onRefused(from Node, r Refused) {
	y := &m.v.Members[m.v.Index(from)]
	if !m.saved.Was || r.Code == RefusedRevoked || r.Code == RefusedTiming || r.Code == RefusedFileID || r.Code == RefusedPolicy && m.asksFor() != "" {
		code := EndRefused
		switch r.Code {
		case RefusedRevoked:
			code = EndRevoked
		case RefusedPolicy:
			code = EndPolicy
		case RefusedTiming:
			code = EndTiming
		case RefusedFileID:
			code = m.fileIDCode()
		}
		why := r.Text
		if r.Code == RefusedFileID {
			why = fileIDText(m.v.FileID, m.fileID(m.v)) // whole
		}
		m.finish(End{Code: code, Text: fmt.Sprintf("refused by %s: %s", y.Name(), why), Nodes: []Member{*y}})
		return
	}
	m.noteWaiting("refused by %s: %s", y.Name(), r.Text)
}

// noteWaiting says why this node is still outside, not too often.
func (m *Machine) noteWaiting(format string, args ...any) {
	if m.now-m.join.noted >= m.p.Partial || m.join.noted == 0 {
		m.join.noted = m.now
		m.note(Waiting, Node{}, "", format, args...)
	}
}

// tryChallenge asks on the storage whether anybody is there, when no member
// can be heard; and joins without a welcome when nobody answers.
func (m *Machine) tryChallenge() {
	j := &m.join
	if m.now-j.wordAt <= m.p.Hears {
		if m.twin() != nil {
			m.leaveToOthers()
			return
		}
		m.dropAsk()
		return
	}
	if j.ask == nil {
		// Members in reach answer a HELLO sooner than that; then nothing
		// has to be written.
		if m.now-j.since >= m.p.Heartbeat/2 && m.now >= j.askAt {
			j.ask = m.newAsk(false)
		}
		return
	}
	if j.ask.answered != nil {
		return // somebody is there
	}
	patience := m.p.Polite + 2*j.ask.cache
	if j.ask.c.Own { // the network was not tried before that
		patience += 2 * m.p.Heartbeat
	}
	if m.unanswered(patience) {
		w := m.v.next(m.me, ReasonJoin)
		if len(w.Members) >= MaxMembers {
			m.finish(End{Code: EndRefused, Text: fmt.Sprintf("the cluster has %d members that do not answer, and cannot have more", MaxMembers)})
			return
		}
		if m.bug.challengerAlone {
			w.Members = nil
		}
		w.add(m.self())
		m.bring(w)
		m.propose(w)
	}
}

// newAsk is a challenge for the storage; own: it is for the members of this
// peer, see twin.
func (m *Machine) newAsk(own bool) *challenge {
	c := Challenge{Node: m.me, Host: m.cfg.Self.Host, Addrs: m.cfg.Self.Addrs, Base: m.v.Epoch, Nonce: Inc(m.cfg.Random()), Own: own}
	if own {
		c.Addrs = nil // nobody is to connect
	}
	return &challenge{c: c, cache: max(m.cfg.Self.Cache, m.v.maxCache()), first: !m.saved.Was}
}

// unanswered reports whether the ask has stood for as long as patience, in waking
// time, and a look near its end saw no answer.
func (m *Machine) unanswered(patience int64) bool {
	a := m.join.ask
	return a.posted && a.age >= patience && m.disk.began >= a.from+patience-2*m.p.LookOut
}

// onAnswers: members answered the ask. They are alive, and this node hears
// none of them.
func (m *Machine) onAnswers(answers []Answer) {
	j := &m.join
	if j.ask == nil {
		return
	}
	var mine []Answer
	for _, a := range answers {
		if a.To == j.ask.c.Node && a.Nonce == j.ask.c.Nonce {
			mine = append(mine, a)
		}
	}
	if len(mine) == 0 || m.twinIsHeeded(mine) {
		return
	}
	text := "members answer on the shared storage, but none of them can be reached over the network: " + answersText(mine)
	end := End{Code: EndUnreachable, Text: text, Answers: mine}
	switch {
	case m.st == StateMember && m.next == nil && m.prop == nil && len(m.order) > 0 && !m.anyHeard():
		// It has added itself because the answer came late. Better it goes
		// than it drops a cluster that is alive.
		if j.ask.first {
			m.leave.then = &end
		} else {
			m.leave.back = true
		}
		m.beginLeave()
	case m.st == StateOut && m.prop == nil && m.now-j.wordAt > m.p.Hears:
		if !m.saved.Was {
			j.ask.answered = &end
			return
		}
		m.dropAsk()
		j.askAt = m.now + m.p.BackoffMax
		m.noteWaiting("%s", text)
	}
}

// tryGiveUp ends a first start that members have answered on the storage, when
// it has had as much time to reach one over the network as it would have given
// them: a connection may take longer than a look.
func (m *Machine) tryGiveUp() bool {
	a := m.join.ask
	if a == nil || a.answered == nil || a.age < m.p.Polite {
		return false
	}
	m.finish(*a.answered)
	return true
}

// dropAsk takes the ask of this node back.
func (m *Machine) dropAsk() { m.join.ask = nil }

func (m *Machine) anyHeard() bool {
	for _, y := range m.order {
		if y.heard {
			return true
		}
	}
	return false
}

// answersText says who answered and what it tried.
func answersText(answers []Answer) string {
	var parts []string
	for _, a := range answers {
		s := fmt.Sprintf("%s (%s) at %s", a.Host, a.Node.Peer, strings.Join(a.Addrs, " "))
		for _, t := range a.Tried {
			s += fmt.Sprintf("; it tried %s: %s", t.Addr, t.Error)
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, "; ")
}

// checkPartial: a newcomer that only some members hear is not admitted, or the
// others would drop it at once, and again, and again.
func (m *Machine) checkPartial() {
	j := &m.join
	n := m.welcomes()
	switch {
	case n == len(m.v.Members):
		j.partialSince = never
		return
	case n > 0 && j.partialSince == never:
		j.partialSince = m.now
	}
	if j.partialSince == never || m.now-j.partialSince < m.p.Partial {
		return
	}
	var missing []Member
	var names []string
	for _, y := range m.v.Members {
		if at, ok := j.welcome[y.Node]; !ok || m.now-at > m.p.Hears {
			missing = append(missing, y)
			name := y.Name() + " at " + strings.Join(y.Addrs, " ")
			if y.Peer == m.me.Peer {
				name = y.Name() + ", which has the identity of this node (a copied state directory?)"
			}
			names = append(names, name)
		}
	}
	text := "some members can be reached, but not all: no welcome from " + strings.Join(names, "; ")
	if !m.saved.Was {
		m.finish(End{Code: EndPartial, Text: text, Nodes: missing})
		return
	}
	m.noteWaiting("%s", text)
}
