package journal

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

const (
	// memTable is what Badger gathers in memory, and in a log beside it,
	// before it writes a table. Smaller ones cost compaction, larger ones
	// memory, and room for what a full disk must still take.
	memTable = 4 << 20
	// tablesBeforeMerge is how many tables of the first level, each of up to
	// memTable, are moved to the last one at a time.
	tablesBeforeMerge = 4
	// smallTables is how many of the newest tables of the last level, of tailBytes
	// in all at most, become few again, see badgerStore.tail. Each merge of them
	// copies no more than that, so that it takes no longer than one of the first
	// level, and needs no more room.
	smallTables = 16
	tailBytes   = memTable
)

// badgerOptions are the ones of a small log that is read rarely.
func badgerOptions(dir string, log *slog.Logger) badger.Options {
	return badger.DefaultOptions(dir).
		WithLogger(badgerLog{log}).
		WithMetricsEnabled(false).
		// The directory above has a lock of ours, which names its holder.
		WithBypassLockGuard(true).
		WithNumGoroutines(1).
		// The store syncs by itself, see badgerStore.sync. With SyncWrites
		// Badger would for each transaction.
		WithSyncWrites(false).
		// One writer, and no transaction that reads and writes.
		WithDetectConflicts(false).
		WithNumVersionsToKeep(1).
		// Blocks come compressed, and are read once: no cache. Their checksums
		// are looked at by those who read them.
		WithCompression(options.None).
		WithChecksumVerificationMode(options.NoVerification).
		WithBlockCacheSize(0).
		WithIndexCacheSize(0).
		WithBloomFalsePositive(0).
		// Values never go to the value log: its space comes back late or
		// never. 1 MiB is the least that its file can be; it stays empty.
		WithValueThreshold(memTable / 8).
		WithValueLogFileSize(1 << 20).
		WithMemTableSize(memTable).
		WithNumMemtables(2).
		// Keys only grow, so tables never overlap, and merging is nothing but
		// a copy from the first level to the last one: there is no use for
		// levels between them. (But when runs were many and short, see
		// badgerStore.tail.) It is done by badgerStore.tend, at a moment
		// when there is room for it; a compactor of Badger's own would run
		// into a full disk, and wake up twenty times a second.
		WithNumCompactors(0).
		WithBaseTableSize(2 << 20).
		WithBaseLevelSize(1 << 40).
		// Flatten does nothing before there are more than that.
		WithNumLevelZeroTables(tablesBeforeMerge - 1).
		WithNumLevelZeroTablesStall(64)
}

// badgerLog routes Badger's log. What Badger calls information is for its
// developers.
type badgerLog struct{ log *slog.Logger }

func (b badgerLog) put(level slog.Level, format string, args ...any) {
	ctx := context.Background()
	if b.log.Enabled(ctx, level) {
		b.log.Log(ctx, level, "badger: "+strings.TrimSpace(fmt.Sprintf(format, args...)))
	}
}

func (b badgerLog) Errorf(f string, a ...any)   { b.put(slog.LevelWarn, f, a...) }
func (b badgerLog) Warningf(f string, a ...any) { b.put(slog.LevelDebug, f, a...) }
func (b badgerLog) Infof(f string, a ...any)    { b.put(slog.LevelDebug, f, a...) }
func (b badgerLog) Debugf(f string, a ...any)   { b.put(slog.LevelDebug, f, a...) }
