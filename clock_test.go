package dmxfs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"testing"
)

// wallCalls take the time of day out of a time.Time, or make one of it, and
// wallNames are times of day. Everything else that is done with time.Now
// (differences, comparisons, timers) goes by the monotonic reading that comes
// with it.
var (
	wallCalls = []string{"Unix", "UnixNano", "UnixMilli", "UnixMicro", "UTC", "Local", "Format", "AppendFormat", "ModTime", "Date"}
	wallNames = []string{"Mtim", "CLOCK_REALTIME", "CLOCK_REALTIME_COARSE"}
)

// wallClockUses are the files that may use it, and what for. None of them
// decides by it who has a lock, who is a member, or how long anything waits:
// somebody may set the clock at any time.
var wallClockUses = map[string]string{
	"internal/journalquery/query.go":  "times in the answers to admins",
	"internal/daemon/locktable.go":    "times in the answers to admins",
	"internal/daemon/daemon.go":       "when a view was made, for people",
	"internal/boottime/boottime.go":   "whether the machine was suspended: what is added to CLOCK_BOOTTIME is added to it, too; if it was set the system is asked",
	"internal/chronicle/departed.go":  "when a member went, for people",
	"internal/doctor/checks.go":       "how far apart the clocks of two hosts are, for people",
	"cmd/dmxfs/doctor.go":             "when the doctor gave a verdict, for people",
	"internal/doctor/hands.go":        "how far apart the clocks of two hosts are, for people",
	"cmd/dmxfs/cluster.go":            "when a view was made, for people",
	"internal/journalview/cluster.go": "the times of records, for people",
	"cmd/dmxfs/support.go":            "when an archive was made, and times of files, for people",
	"story/export.go":                 "the times of records, for people",
	"story/tell.go":                   "the times of records, for people",
	"internal/crash/crash.go":         "when a daemon began and crashed, for people",
	"internal/metrics/collector.go":   "the time of the oldest record, for people",
	"internal/top/model.go":           "times for people",
	"internal/top/run.go":             "times for people",
	"internal/top/view.go":            "times for people",
	"internal/waitgraph/build.go":     "when a graph was made, for people",
	"internal/waitgraph/text.go":      "since when somebody waits, for people",
	"p2p/register/restore.go":         "when a cluster was made anew, for people",
	"internal/journalview/printer.go": "the times of records, for people",
	"cmd/dmxfs/journal.go":            "the times of records, and times that an admin asks for",
	"fusefs/cache.go":                 "whether a file is still as it was: its time is compared with itself",
	"fusefs/attrcache.go":             "times of files, which programs see",
	"fusefs/savedcode.go":             "times of files, as they were told",
	"fusefs/sole.go":                  "whether a file is another one: its time is compared with what it was; clocks may differ by a minute",
	"journal/blockwriter.go":          "times of records",
	"journal/codec.go":                "times of records",
	"journal/filter.go":               "records of a span of time that an admin asks for",
	"journal/json.go":                 "times of records",
	"journal/shelf.go":                "times of records",
	"journal/recover.go":              "the pause between two runs, of which one day counts at most",
	"journal/stats.go":                "the time of the oldest record, for people",
	"locks/engine/deadlock.go":        "which of the requests in a deadlock is told: any of them will do",
	"p2p/memberchannel.go":            "a number to tell echoes apart; differences are monotonic",
	"p2p/register/cluster.go":         "when a cluster was founded, for people",
	"p2p/register/generation.go":      "when a secret was changed, for people",
	"p2p/register/prune.go":           "the age of files by the storage's clock alone: no clock of this host counts",
	"internal/web/pages.go":           "records of a span of time that an admin asks for",
	"internal/web/text.go":            "times for people",
}

// A jump of CLOCK_REALTIME changes nothing but what is shown to people. The
// pure packages cannot even name a clock (TestImports); this is for the others.
func TestNothingDependsOnTheWallClock(t *testing.T) {
	used := map[string]bool{}
	for _, p := range packages(t) {
		for _, f := range p.GoFiles {
			path := filepath.Join(p.Dir, f)
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			name, err := filepath.Rel(rootDir(t), path)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				var sel *ast.SelectorExpr
				names := wallNames
				switch n := n.(type) {
				case *ast.CallExpr:
					sel, _ = n.Fun.(*ast.SelectorExpr)
					names = wallCalls
				case *ast.SelectorExpr:
					sel = n
				}
				if sel == nil || !slices.Contains(names, sel.Sel.Name) {
					return true
				}
				used[name] = true
				if wallClockUses[name] == "" {
					t.Errorf("%s: %s uses the time of day: decide by CLOCK_BOOTTIME or a monotonic time, or say in this test what it is for",
						set.Position(sel.Pos()), sel.Sel.Name)
				}
				return true
			})
		}
	}
	for name := range wallClockUses {
		if !used[name] {
			t.Errorf("%s does not use the time of day any more: take it off the list", name)
		}
	}
}

func rootDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
