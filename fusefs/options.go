package fusefs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/dmxfs/dmxfs/internal/recent"
	"github.com/dmxfs/dmxfs/internal/writegate"
)

// Options say what to mount, where and how.
type Options struct {
	// Root is the shared directory, opened before anything is mounted over
	// it. The mount reads and writes below this descriptor only, so it may be
	// mounted over the directory itself. It is not closed.
	Root *os.File
	// Writes is what others in this process write to the storage through; the mount
	// does, too. Nil: only the mount writes.
	Writes *writegate.Gate
	// MountPoint is a directory; the path may be relative.
	MountPoint string
	// Replace: a dead FUSE mount is at MountPoint, of a daemon that has ended.
	// The new mount takes its place without showing what is below (as root;
	// others have to remove it before).
	Replace bool
	// Source is what the mount table shows as the source.
	Source string
	// Mount are the options of the mount, see [ParseMountOptions].
	Mount MountOptions
	// FileIDs says how locks name files. Empty is FileIDAuto.
	FileIDs FileIDs
	// Rule says what open(2) means for the file at a path relative to Root.
	// It may be asked for one file many times; its answers are kept until
	// [Server.RulesChanged]. Nil is DefaultRule for every file.
	Rule func(path string) Rule
	// Movable reports whether a file, or a directory with all that is in it,
	// may get another path: whether the same algorithm serves the locks there.
	// Otherwise rename(2) and link(2) fail with EXDEV. Nil: always.
	Movable func(oldPath, newPath string, dir bool) bool
	// LockedBelow reports whether a host has a lock on a file below a directory.
	// It is asked, where locks go by path, before the directory is renamed; an
	// error means that it cannot be known. Nil: no other host has.
	LockedBelow func(dir string) (bool, error)
	// Locker grants the locks. It may be given to [Server.Serve] instead.
	Locker Locker
	// LateWrite is told of writes that came too late. It must not wait. It
	// may be nil.
	LateWrite func(LateWrite)
	// WriteThrough opens files for writing under a lock so that no write
	// stays in the cache of a storage client (O_DSYNC), where a stopped or
	// killed daemon could not prevent that it reaches the storage after the
	// lock was given to another node. It changes nothing on storage without
	// such a cache.
	WriteThrough bool
	// TTL is how long the kernel may keep names and attributes without
	// asking: the bound of what is seen late without a lock. 0 is
	// DefaultTTL; negative: not at all.
	TTL time.Duration
	// CacheTime is how long the kernel may keep names and attributes while this
	// node holds the lease of names (package locks/lease): the bound of what is
	// seen late that was changed past dmxfs, or while this node is cut off. Not
	// more than TTL: there are no leases. At most MaxCacheTime; all nodes must
	// have one. A Locker serves [LeasePath] by an algorithm with shared locks.
	CacheTime time.Duration
	// LeaseHaste divides the times after which that lease is given up and tried
	// again, for tests: see [lease.Machine].
	LeaseHaste int
	// Hold bounds for how long a call that waits for another host makes others
	// wait that nothing can interrupt: whoever removes or renames its file, and
	// so on. See stuck.go. 0 is DefaultHold; negative: without limit.
	Hold time.Duration
	// Observe is told of each request that was answered: its number in
	// include/uapi/linux/fuse.h (see [RequestName]), how long that took, and how many
	// bytes of data a READ had or a WRITE has given. It must not wait. It may be nil.
	Observe func(opcode uint32, took time.Duration, read, written int)
	// Load is told what programs have the mount do when that is something else than
	// before. It must not wait. It may be nil.
	Load func(Load)
	// Messages counts those of locks that another goroutine has to go on with: that are to be
	// sent, or have come and were not taken at once. Nil: that is not known.
	Messages func() uint64
	// Ledger is where the mount writes down what another process needs to go on if
	// this one is killed, see [ResumeKilled]. Nil: then its programs fail.
	Ledger *Ledger
	// Recent is where the mount notes what it changes. With a Ledger it is memory that
	// outlives the process, and [ResumeKilled] has that of the process before. Nil: nothing
	// is noted.
	Recent *recent.Memory
	// Others asks all other hosts that may have changed something what they have, until
	// ctx ends. Beside those who can be asked there are others, perhaps: a host that is cut
	// off goes on with what needs no lock. An error means that it cannot be known, now or
	// ever ([recent.ErrNever]). here: numbers of files are not the same everywhere, or
	// what the storage says of them may be old, so that it can be known only if there is
	// nobody else. Nil: it is not known who there is.
	Others func(ctx context.Context, q *recent.Question, here bool) ([]recent.Host, error)
	// FoldsNames: the storage takes different names for one, as by case.
	FoldsNames bool
	// Log takes what an operator should know. Nil is slog.Default().
	Log *slog.Logger
}

// DefaultTTL saves nearly all lookups in loops over the same files, and is
// below what a person notices.
const DefaultTTL = 10 * time.Millisecond

// MaxCacheTime bounds Options.CacheTime: for that long a change of another host
// may wait if a directory is held locked here.
const MaxCacheTime = 10 * time.Second

// withDefaults is o with everything filled in that may be left out.
func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Root == nil:
		return o, errors.New("fusefs: no shared directory")
	case o.MountPoint == "":
		return o, errors.New("fusefs: no mount point")
	}
	if o.FileIDs == "" {
		o.FileIDs = FileIDAuto
	}
	if _, err := ParseFileIDs(string(o.FileIDs)); err != nil {
		return o, fmt.Errorf("fusefs: %w", err)
	}
	if o.Source == "" {
		o.Source = o.Root.Name()
	}
	if o.Rule == nil {
		o.Rule = func(string) Rule { return DefaultRule }
	}
	if o.Writes == nil {
		o.Writes = new(writegate.Gate)
	}
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	o.TTL = max(o.TTL, 0)
	if o.CacheTime > MaxCacheTime {
		return o, fmt.Errorf("fusefs: names and attributes may be kept for %v at most, not %v", MaxCacheTime, o.CacheTime)
	}
	if o.Hold == 0 {
		o.Hold = DefaultHold
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o, nil
}
