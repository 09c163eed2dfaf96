package journal

import "errors"

// What opening and using a journal can fail with. They come wrapped, with what
// is known of the circumstances and what to do.
var (
	// ErrInUse: another process has the journal open.
	ErrInUse = errors.New("the journal is in use")
	// ErrOther: the directory holds the journal of another cluster or mount,
	// or something that is no journal at all.
	ErrOther = errors.New("not this cluster's journal")
	// ErrNewer: the journal was written by a version that this one does not
	// understand.
	ErrNewer = errors.New("the journal is of a newer version")
	// ErrDamaged: the journal can't be read as a whole.
	ErrDamaged = errors.New("the journal is damaged")
	// ErrNoSpace: the disk is full.
	ErrNoSpace = errors.New("no space")
	// ErrNotExist: there is no journal.
	ErrNotExist = errors.New("no journal")
	// ErrClosed: the journal was closed.
	ErrClosed = errors.New("the journal is closed")
	// ErrReadOnly: the journal was opened for reading.
	ErrReadOnly = errors.New("the journal is open for reading only")
)
