package engine

import (
	"time"
)

// A program that makes thousands of files asks for thousands of locks that
// nobody else has ever heard of. So a node where that happens asks the others
// to leave it all of class Open that they know nothing of. They are its
// delegators, and it is their delegate, until one of them wants to open a file
// itself: the delegations of NFSv4 (RFC 8881, section 10), for all files that
// are not in use instead of for one.
//
// A node k that delegates to i tells it the files that are excepted: those of
// which it has a machine, or knows that what it has cached of them is good. As
// long as it delegates
//
//   - each machine that k makes for another file begins with the permission for
//     i to write (Delegable.Delegate). So k asks i before it reads, and recalls
//     the delegation when one of its own programs opens such a file;
//   - k drops machines of such files that are as it would make them;
//   - what is said to be true of rw in package rw holds with that: where k has
//     no machine, it stands for one that was just made.
//
// When all others have delegated to i, it makes a machine for a program that
// opens a file to write with the permissions of all (Delegable.Delegated): no
// message is sent. That is true if k's machine, which may exist by now, has i's
// permission. It has, unless the file is excepted; or i has sent k something
// about it since, as only that takes a permission of i from k's books. Both
// kinds are in told. When such a file has been idle, its machine is dropped as
// silently.
//
// So nobody but i writes a file that k does not know of, and i writes no file
// that k does know of without k's knowledge: what k has cached stays good. But
// when it is over there are files that i may have written, and k has not heard
// of (entries.forgot).
//
// To return it, i drops what it can and lists, for each delegator, what it
// keeps from it; also what it has said but not sent, as that waits for a
// write-out. The delegator makes machines for those of the list that it does not
// have, and takes the permission of i off all that are not on it.
//
// No two nodes delegate to each other, since a node that has asked, and has not
// got and returned all that came of it, refuses; and one that delegates does not
// ask. The number of a removed file can be that of a new one at any time, so
// that two nodes that each make files could have the same key.
//
// All of it ends with the epoch, before which everything is written out and
// told. There is none while more than one algorithm is in use: by the exclusive
// ones who has a name of the file with another rule would not be asked.

// DelegationLimits are when delegations are asked for, given and returned. Zero
// stands for the default.
type DelegationLimits struct {
	// After: so many files that were opened for writing within a second, and
	// not known here before, make a node ask. Default 16.
	After int
	// Quiet: a node delegates if none of its own programs has opened a file
	// of which it knew nothing for so long. Default 500 ms.
	Quiet time.Duration
	// Unused: what has not been of use for so long is returned. Default 5 s.
	Unused time.Duration
	// Pause is how long a node does not ask again when it was refused, or has
	// returned what it got. It is twice as long each time, up to MaxPause,
	// as long as nothing comes of it. Default 250 ms, and 8 s.
	Pause, MaxPause time.Duration
}

func (l *DelegationLimits) setDefaults() {
	for _, x := range []struct {
		p *time.Duration
		d time.Duration
	}{
		{&l.Quiet, 500 * time.Millisecond}, {&l.Unused, 5 * time.Second},
		{&l.Pause, 250 * time.Millisecond}, {&l.MaxPause, 8 * time.Second},
	} {
		if *x.p == 0 {
			*x.p = x.d
		}
	}
	if l.After == 0 {
		l.After = 16
	}
}

const (
	// maxExcepted bounds the files that a delegator excepts.
	maxExcepted = 1 << 16
	// maxTold bounds told.
	maxTold = 1 << 18
	// worthwhile is how many times a delegation must be of use, so that the
	// next one is asked for soon.
	worthwhile = 64
)
