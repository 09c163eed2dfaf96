package locks

// HandleID names an open file of this mount: what one open(2) made, however
// many descriptors and processes share it. It is never used again.
type HandleID uint64

// Tenure counts the lives of this node as a member. It grows when the node is
// expelled: whatever was granted in an earlier tenure is lost.
type Tenure uint64

// Program is who asks, as admins want to see it. It decides nothing but, by the
// thread, who is behind a lock when deadlocks are looked for.
type Program struct {
	PID int // of the process; 0 if it is not known
	TID int // of the thread that asks; 0 if it is not known
	// Process and Task tell processes, and threads, apart that have the same
	// number one after the other.
	Process, Task uint64
	UID           uint32
	Command       string
}

// Thread identifies a thread of this node; the zero value none.
type Thread struct {
	Number int
	Task   uint64
}

// Thread is the thread that asks, or of a process of which that is not known
// the process. It is zero if nothing is known: programs outside the PID
// namespace of the daemon have no number, and any two of them may be different.
func (p *Program) Thread() Thread {
	switch {
	case p.TID != 0:
		return Thread{p.TID, p.Task}
	case p.PID != 0:
		return Thread{p.PID, p.Process}
	}
	return Thread{}
}

// SameProcess reports whether p and o are known to be one process.
func (p *Program) SameProcess(o *Program) bool {
	return p.PID != 0 && p.PID == o.PID && p.Process == o.Process
}

// Moment is a time in the life of the lock engine, which it tells; never zero.
type Moment int64

// Request is what a program asks for through the file system.
type Request struct {
	Key Key
	// Path is relative to the root of the shared directory, without a leading
	// slash. It finds the rule of the file and is shown to people.
	Path string
	// Owner decides what conflicts: requests of one owner never do. In class
	// Open it also decides nothing else; in the other classes an owner has at
	// most one mode on each byte, and a new request replaces the old one.
	Owner OwnerID
	// Handle is the open file that the request came through.
	Handle HandleID
	Mode   Mode
	Range  Range
	// Try: answer ErrWouldBlock instead of waiting.
	Try bool
	// Blind: nothing is going to be read or written under it, so that what is
	// cached of the file need not be renewed before the grant is told.
	Blind bool
	// Born is a moment before the file was made, for the program that made it
	// and now asks for the lock; zero for all others. It spares the first
	// lock what is done for a file that others may have written.
	Born Moment
	// Patience is how long it may wait, in milliseconds; then it ends with
	// ErrTimeout. 0: without limit.
	Patience int64
	Program  Program
	// Waits, if it is not nil, is called before the call waits for anything:
	// for others, for an answer, or until what is cached of the file has been
	// renewed; perhaps more than once. It returns at once.
	Waits func()
}

// WillWait calls Waits, if there is one.
func (r *Request) WillWait() {
	if r.Waits != nil {
		r.Waits()
	}
}

// Grant is what a program was given.
type Grant struct {
	Token  Token
	Tenure Tenure
}

// Conflict is a lock that stands in the way of a request.
type Conflict struct {
	Mode  Mode
	Range Range
	// Node holds it; it is empty when this node does.
	Node NodeID
	// PID is 0 where it means nothing to the asking host.
	PID int
}
