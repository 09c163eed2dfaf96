package locks

// Ticket is what a local owner asks for.
type Ticket struct {
	ID    TicketID
	Owner OwnerID
	Mode  Mode
	Range Range
	// Try asks for an answer now: granted, or denied when a conflicting lock
	// is held or an earlier try is under way. A try never queues.
	Try bool
	// Stamp is zero for a new request. A request that was interrupted and
	// comes again brings the stamp it had, and with it its place in the order.
	Stamp Stamp
}

// Part is a held ticket, or what is left of one.
type Part struct {
	ID    TicketID
	Mode  Mode
	Range Range
}

// Message is what machines of one key on two nodes say to each other.
type Message interface {
	// Append adds the encoding to b. The algorithm's Decode is its inverse.
	Append(b []byte) []byte
	// String is the form of golden files and of the debug log.
	String() string
}

// Envelope is a message and its receiver, which is never the sender.
type Envelope struct {
	To  NodeID
	Msg Message
}

// Outcome ends the waiting of a ticket. There is exactly one for each ticket
// that was not cancelled.
type Outcome struct {
	Ticket TicketID
	// Granted is false only for a try that was denied.
	Granted bool
	// Token is the fencing token of the grant.
	Token Token
}

// Turn is one turn of a machine: what it may do, and what it did. Methods of a
// machine append to it. A Turn can be used again after Reset.
type Turn struct {
	// MayEnter is set by the caller: whether tickets may be granted in this
	// turn. It is false while the node is suspended or a new epoch is being
	// restored. Everything else, answers to peers included, goes on.
	MayEnter bool

	// Send is what to tell peers, in this order.
	Send []Envelope
	// Done lists the tickets that were granted or denied. A denial comes also
	// when MayEnter is false.
	Done []Outcome
	// Handover: a message in Send lets a peer see or change what local
	// programs may have written under this key. It must be on the shared
	// storage before the first message of this turn leaves; if there is none,
	// before the next one of the key does.
	Handover bool
	// Stale: a peer gave up in this turn, or lost by a new epoch, a permission
	// to write of which this node would not have heard. What this node has
	// cached of the file is worth nothing from the grants of this turn on. A
	// machine that is new knows of nothing that was before it: to its first
	// grant everything is stale, too.
	Stale bool
	// More: Expire has given back a part, and is to be called again.
	More bool
}

// Reset empties t for the next turn and keeps its memory.
func (t *Turn) Reset(mayEnter bool) {
	clear(t.Send)
	*t = Turn{MayEnter: mayEnter, Send: t.Send[:0], Done: t.Done[:0]}
}

// Machine is one node's part of an algorithm for one key, within one epoch.
// It is not safe for concurrent use. Every method returns at once.
//
// A call that breaks a precondition (an unknown ticket, a part that is wider
// than what it replaces) is a bug in the caller and panics. What a peer sends
// never panics: see Receive.
type Machine interface {
	// Acquire adds a waiting ticket. Its outcome comes in this turn or in a
	// later one, unless it is cancelled before.
	Acquire(t Ticket, out *Turn)
	// Cancel takes a waiting ticket back. Nothing is left behind, here or at
	// a peer, and there will be no outcome.
	Cancel(id TicketID, out *Turn)
	// Replace gives up the held tickets in old and puts parts in their place:
	// all of it (no parts), a piece (fewer bytes), some of its strength (R for
	// W), or the same in other pieces (merged, split). All of old have one
	// owner. Each byte of a part was held in old, in the same or a stronger
	// mode; parts do not overlap; their IDs are new or from old.
	Replace(old []TicketID, parts []Part, out *Turn)
	// Overtake moves a waiting ticket in front of the queue; see rw. An
	// algorithm whose queue cannot make a deadlock ignores it.
	Overtake(id TicketID, out *Turn)
	// Expire gives back what is kept for reuse and not needed by a ticket; of
	// very much a part, see Turn.More.
	Expire(out *Turn)
	// Receive handles a message of a member's machine. An error means that
	// the peer does not follow the protocol; the state is then unchanged.
	Receive(from NodeID, m Message, out *Turn) error
	// Resume grants what could not be granted because MayEnter was false.
	Resume(out *Turn)

	// State is what the others need to know of this node at a new epoch, in a
	// form that Restore reads; nil if there is nothing to know. It gives up,
	// without a message, every permission that no held ticket uses: what local
	// programs wrote under this key must be on the shared storage before the
	// state is sent.
	//
	// From then on, until Restore, a machine sends and grants nothing, and
	// Receive is an error; all else goes on. State can be asked for again when
	// there is yet another epoch. A machine that is made in between, for a
	// node that has said nothing of this key, is first asked for its State,
	// which is nil.
	State() []byte
	// Restore begins epoch v.Epoch with what each member said by State;
	// members that said nothing are not in states. The caller's own State is
	// in it as it was sent. Tickets stay, waiting ones ask again. It is called
	// for every machine that there is, and for one that is made now for each
	// other key of which a member said something.
	//
	// An error means that the states contradict each other or what is held
	// here. Nobody can go on from there: the machine stays as it is, which is
	// without grants.
	Restore(v *View, states map[NodeID][]byte, out *Turn) error

	// Blockers tells why a waiting ticket waits: the held tickets of other
	// owners here that conflict, as many of them as are asked for if there are
	// so many, and the members whose answer is missing.
	Blockers(id TicketID, most int) (local []TicketID, remote []NodeID)
	// Suspects are the members that may hold a lock that conflicts with m on
	// r. Nobody else does.
	Suspects(m Mode, r Range) []NodeID
	// Stamp is the stamp of a waiting ticket.
	Stamp(id TicketID) Stamp
	// Permitted is what this node may grant for writing without asking anybody,
	// beyond what its tickets hold: a part of it, of about so many ranges, that
	// begins at from or behind it. There is nothing more before next, which is
	// MaxOffset at the end. More than that may be worth an Expire: permissions of
	// some members only.
	Permitted(from uint64, most int) (permitted Ranges, next uint64)
	// Wanted is the mode in which the first of the members that wait for what
	// a ticket is held on here wants it, 0 if there is none. It is Write where
	// modes make no difference.
	Wanted() Mode
	// Idle reports whether this machine can be dropped: one made anew with
	// its Token as floor would grant in the same way. Only who goes first
	// may differ, once, since a clock is forgotten.
	Idle() bool
	// Token is at least the token of every grant of this key that this node
	// knows of.
	Token() Token

	// Check returns an error if an invariant of the algorithm's doc.go does
	// not hold. It is for tests.
	Check() error
	// String is the state in one line, for golden files and the debug log.
	String() string
}

// Delegable is a machine of an algorithm by which a node can leave keys that it
// has no machine of to another member, the delegate. As long as it does, it makes
// each new machine with Delegate. The delegate makes its own with Delegated, if
// all other members have delegated to it and none of them may know more of the
// key; see package engine.
//
// A node to which some member has delegated delegates to nobody.
type Delegable interface {
	Machine
	// Delegated is called on a new machine: this node may write everywhere
	// without asking anybody.
	Delegated()
	// Delegate is called on a new machine: p may write everywhere without
	// asking this node.
	Delegate(p NodeID)
	// Keeps reports whether this node may write somewhere without asking p,
	// or has asked p and waits for the answer.
	Keeps(p NodeID) bool
	// Returned tells that Keeps is false at p, which knows of no greater token
	// than t. The errors are those of Receive.
	Returned(p NodeID, t Token, out *Turn) error
	// Redundant reports whether this machine can be dropped as long as one
	// that is made anew is made with Delegated, or with Delegate(to) if to is
	// not empty.
	Redundant(to NodeID) bool
}

// Heir is a machine that can take the place of one of its algorithm in another
// process, which has ended between two epochs. Those that programs wait for at
// that moment, and hold, go on: with what the machine says of them to the others,
// nothing has happened.
type Heir interface {
	Machine
	// Legacy adds to b what Inherit needs to know beside the tickets, which is less
	// than 24 bytes. It can be asked for at any moment.
	Legacy(b []byte) []byte
	// Inherit is called once, on a new machine, after its State, with the legacy of
	// the one whose place it takes and with the tickets of that one: as they were
	// given to Acquire, but with the range and the mode that the last Replace has
	// left of those that are held, and with the stamps of those that wait. Its
	// State is then that of the other. Its view may name this node by another ID
	// than the next one does.
	//
	// An error means that this cannot have been the tickets of a machine. Then it
	// is of no use any more.
	Inherit(legacy []byte, held, waiting []Ticket) error
}

// Config is what a machine is made of.
type Config struct {
	Key  Key
	View *View
	// Token is the floor: the first grant has a greater token.
	Token Token
	// Seed decides where the algorithm leaves a choice open.
	Seed uint64
	// Breathe, if it is not nil, is called by State and Restore between two parts
	// of what takes long. Meanwhile tickets may be added, cancelled and replaced.
	Breathe func()
}

// Algorithm makes machines. Its name is the one of rules and of the journal.
type Algorithm struct {
	Name string
	// Shared: tickets of mode Read can be held together, and ranges that do
	// not overlap do not conflict. Without it every ticket excludes all other
	// owners, whatever its mode and range.
	Shared bool
	New    func(Config) Machine
	// Decode reads one message. It never panics, and a message that it
	// accepts is encoded to the same bytes again.
	Decode func([]byte) (Message, error)
}
