package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// Options are what a journal is opened with.
type Options struct {
	// Cluster and Mount say whose journal it is: another one is not opened.
	// Cluster must not be empty for [Open]. An empty Mount is not compared.
	Cluster string
	Mount   string
	// Node is filled in where a record names no node.
	Node locks.NodeID
	// MaxAge is how long records are kept at least, if there is space; 0 is
	// [DefaultMaxAge]. They are deleted in pieces, at most a fourteenth of it
	// later. It is measured in time that the journal saw pass, see clock.go.
	MaxAge time.Duration
	// MaxBytes is how much space blocks of records may take; 0 is
	// [DefaultMaxBytes], the least is [MinMaxBytes]. When it is reached, the
	// oldest eighth goes. The directory takes up to [Overhead] more, and as
	// much again after damage, see [Recovery.Rebuilt]. A record takes about 25
	// bytes when there are many, and 150 when they come singly.
	MaxBytes int64
	// Delay is how long a record waits for others to be written with; 0 is
	// [DefaultDelay]. It is what a killed daemon loses.
	Delay time.Duration
	// SyncEvery is how long a record may be in danger of a power cut; 0 is
	// [DefaultSyncEvery]. Rare events are synced at once.
	SyncEvery time.Duration
	// GoesOn: this process has taken the place of the one that wrote the journal
	// last, with all that it held and waited for. What is open is not lost: it goes
	// on under its numbers.
	GoesOn bool
	// Resumed is whether a request goes on, if GoesOn and that one was killed: the
	// records of its last moment are lost. nil: all do that are open.
	Resumed func(request uint64) bool
	// Logger is told of damage, and of failures and their end; nil: nobody is.
	Logger *slog.Logger

	// For tests; bootTime and bufferLimit if not set.
	up    func() time.Duration
	limit int
	retry time.Duration
}

const (
	DefaultMaxAge    = 14 * 24 * time.Hour
	DefaultMaxBytes  = 64 << 20
	MinMaxBytes      = 4 << 20
	DefaultDelay     = 50 * time.Millisecond
	DefaultSyncEvery = time.Second
	// Overhead is what a journal's directory takes at most beside the blocks,
	// in bytes: logs, tables not yet merged, and those being merged.
	Overhead = roomNeeded
)

func (o *Options) fill() error {
	switch {
	case o.MaxAge < 0 || o.Delay < 0 || o.SyncEvery < 0:
		return errors.New("journal: a duration is negative")
	case o.MaxBytes != 0 && o.MaxBytes < MinMaxBytes:
		return fmt.Errorf("journal: at most %d bytes are too few, the least is %d", o.MaxBytes, int64(MinMaxBytes))
	}
	or := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	or(&o.MaxAge, DefaultMaxAge)
	or(&o.Delay, DefaultDelay)
	or(&o.SyncEvery, DefaultSyncEvery)
	or(&o.retry, retryEvery)
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.up == nil {
		o.up = bootTime
	}
	if o.limit == 0 {
		o.limit = bufferLimit
	}
	return nil
}
