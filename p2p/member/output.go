package member

import (
	"fmt"
	"strings"

	"github.com/dmxfs/dmxfs/locks"
)

// Output is what a step wants done. Its fields are in the order in which the
// driver obeys them. One Output can be used again after Reset.
type Output struct {
	// LiveUntil is when this node's tenure ends, in CLOCK_BOOTTIME; 0 is
	// never live. It is set by every step. The driver publishes it in one
	// atomic word before anything else, and who grants a lock or starts I/O
	// compares it with a clock that is read at that place.
	LiveUntil int64
	// Offline: another process may have this node's identity. No connection may
	// be made to anybody, or taken, and this node's addresses are told nobody,
	// until it is false. It is so before the first look, too.
	Offline bool
	// Expelled, if not nil: the others went on without this node. Every lock
	// and every wait is lost; I/O under them fails from now on.
	Expelled *Expelled
	// Freeze, if not nil: the engine stops granting and answers with Frozen.
	Freeze *Freeze
	// TakeSync: the state that arrived with this step is for the engine.
	TakeSync bool
	// Synced, if not 0: the engine has the state of all other members of this
	// epoch. It restores its machines and may grant while the tenure lasts.
	Synced locks.Epoch
	// Granting is whether this node may grant at this moment: it is a member,
	// has tenure, and has all states. It may end at LiveUntil without a step.
	// When it becomes true the engine resumes what it had to leave waiting.
	Granting bool
	// Send has the messages, SendSync to whom the engine's state of the
	// current epoch goes (nothing, if it is under way to that node already).
	// What cannot be sent at once is thrown away: all is sent again.
	Send     []Envelope
	SendSync []Node
	// Storage, if not nil, is an operation to start; Done comes back.
	Storage Op
	// Fence has who must be kept from writing before it is dropped; Fenced
	// comes back for each.
	Fence []Fence
	// Meet has addresses of nodes that this node should be able to reach.
	Meet []Contact
	// Save, if not nil, is to be kept in the state directory.
	Save *Saved
	// Inc, if not 0, is this node's new incarnation. It is to be kept beside
	// the lock file of Config.Self, for Config.Former of the next process. If that fails, the proof
	// of death is missing and nothing else.
	Inc Inc
	// Answers are the ends of admins' wishes.
	Answers []Answered
	// Notices are for the journal and the log.
	Notices []Notice
	// End, if not nil, is the last output: no input is wanted any more.
	End *End
}

// Reset empties o for the next step and keeps its memory.
func (o *Output) Reset() {
	clear(o.Send)
	clear(o.Meet)
	clear(o.Notices)
	*o = Output{
		Send: o.Send[:0], SendSync: o.SendSync[:0], Fence: o.Fence[:0],
		Meet: o.Meet[:0], Answers: o.Answers[:0], Notices: o.Notices[:0],
	}
}

// Freeze stops the engine: nothing is granted until Synced. What the machines
// hold and wait for at this moment is what SYNC says of this node.
type Freeze struct {
	Seq uint64
	// View is to be installed; nil when this node is about to leave. Messages
	// of the lock algorithms carry its epoch from the acknowledgment on.
	View *View
}

// Expelled tells how a node lost its membership.
type Expelled struct {
	Epoch locks.Epoch // of the view without this node; 0 if the node ended by itself
	By    Node
	Why   string
}

// Fence asks the driver to make sure that no write of a node can reach the
// storage any more.
type Fence struct {
	Node   Node
	Member Member
	// Dead: the node is a dead process on this host. Its dirty pages have to
	// be written out: the driver calls syncfs on the backing file system,
	// without a time limit. Otherwise the driver runs the fence command.
	Dead bool
}

// Contact is where a peer may be reached.
type Contact struct {
	Peer  string
	Addrs []string
}

// Answered is the end of an admin's wish. Err is nil if it is fulfilled.
type Answered struct {
	ID  uint64
	Err error
}

// End is how a machine ends.
type End struct {
	// Code is EndLeft when all went as wished.
	Code EndCode
	// Text says what happened, to what, and what to do.
	Text string
	// Nodes are who it is about, if it is about nodes.
	Nodes []Member
	// Answers are those of members that could not be reached (EndUnreachable).
	Answers []Answer
}

// EndCode is why a machine ended.
type EndCode uint8

const (
	EndLeft        EndCode = iota + 1 // as wished
	EndUnreachable                    // a first start: the storage is in reach, no member is
	EndPartial                        // a first start: some members are in reach, others are not
	EndRefused                        // a member refused it, for the reason in the text
	EndRevoked                        // an admin revoked this peer
	EndPolicy                         // the cluster has another policy: that of Machine.View
	EndTiming                         // the cluster has other parameters
	EndForeign                        // the storage has another cluster
	EndNewer                          // another version of dmxfs runs here, and does not understand this one
	EndLost                           // the storage has lost this node's view
	EndFileID                         // the cluster tells files apart by something else
	EndRestored                       // the storage has older views than this node has known
	EndTwin                           // another process has this node's identity, and is a member
)

func (c EndCode) String() string {
	names := [...]string{"", "left", "unreachable", "partial", "refused", "revoked", "policy", "timing", "foreign", "newer", "lost", "file-id", "restored", "twin"}
	if int(c) < len(names) && c > 0 {
		return names[c]
	}
	return fmt.Sprintf("EndCode(%d)", uint8(c))
}

// NoticeKind sorts notices.
type NoticeKind uint8

const (
	Joined    NoticeKind = iota + 1 // Node joined
	Left                            // Node left
	Removed                         // Node was dropped
	Installed                       // this node is in a new view
	Suspended                       // this node has lost its tenure
	Resumed                         // this node has tenure again
	Refusing                        // this node refused the newcomer Node
	Waiting                         // why this node cannot join yet
	Storage                         // what is wrong with the storage, or that it is well again
	Fencing                         // Node cannot be fenced
	Succeeded                       // this node goes on with what its former self, Node, held
)

func (k NoticeKind) String() string {
	names := [...]string{"", "joined", "left", "removed", "installed", "suspended", "resumed", "refusing", "waiting", "storage", "fencing", "succeeded"}
	if int(k) < len(names) && k > 0 {
		return names[k]
	}
	return fmt.Sprintf("NoticeKind(%d)", uint8(k))
}

// Notice is one line for the journal and the log.
type Notice struct {
	Kind  NoticeKind
	Epoch locks.Epoch
	Node  Node // whom it is about; zero: this node
	Host  string
	Text  string
}

func (n Notice) String() string {
	s := fmt.Sprintf("%v @%d", n.Kind, n.Epoch)
	if !n.Node.IsZero() {
		s += " " + n.Node.String()
	}
	return s + ": " + n.Text
}

// String lists what is in o, one effect a line, for traces and the debug log.
func (o *Output) String() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if o.Expelled != nil {
		line("expelled @%d by %v: %s", o.Expelled.Epoch, o.Expelled.By, o.Expelled.Why)
	}
	if o.Freeze != nil {
		if o.Freeze.View != nil {
			line("freeze %d for %v", o.Freeze.Seq, o.Freeze.View)
		} else {
			line("freeze %d to leave", o.Freeze.Seq)
		}
	}
	if o.TakeSync {
		line("take sync")
	}
	if o.Synced != 0 {
		line("synced @%d", o.Synced)
	}
	for _, e := range o.Send {
		line("send %v", e)
	}
	for _, n := range o.SendSync {
		line("send sync to %v", n)
	}
	if o.Storage != nil {
		line("storage: %v", o.Storage)
	}
	for _, f := range o.Fence {
		if f.Dead {
			line("fence %v (dead)", f.Node)
		} else {
			line("fence %v", f.Node)
		}
	}
	for _, c := range o.Meet {
		line("meet %s at %v", c.Peer, c.Addrs)
	}
	if o.Save != nil {
		line("save %v", *o.Save)
	}
	for _, a := range o.Answers {
		line("answer %d%s", a.ID, colonErr(a.Err))
	}
	for _, n := range o.Notices {
		line("notice %v", n)
	}
	if o.End != nil {
		line("end %v: %s", o.End.Code, o.End.Text)
	}
	return b.String()
}
