package dmxfs

import (
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pure is the part of the standard library that has no clock, no randomness,
// no goroutine and no I/O.
var pure = []string{"bytes", "cmp", "encoding", "encoding/binary", "errors", "fmt", "iter", "maps", "math/bits", "slices", "sort", "strconv", "strings"}

// module is the path in go.mod.
const module = "github.com/dmxfs/dmxfs"

// rule says what the files of a package may import. Test files are free.
type rule struct {
	why  string
	ours []string // packages of this module, without the path of the module
	std  []string // nil: all of the standard library
	ext  []string // prefixes of other modules' packages
}

var rules = map[string]rule{
	".":               {why: "a map, no code"},
	"locks":           {why: "the vocabulary is pure", std: pure},
	"locks/wire":      {why: "pure", ours: []string{"locks"}, std: pure},
	"locks/posix":     {why: "range algebra is pure", ours: []string{"locks"}, std: pure},
	"locks/rw":        {why: "an algorithm is a pure machine", ours: []string{"locks", "locks/wire"}, std: pure},
	"locks/exclusive": {why: "what the exclusive algorithms share is pure", ours: []string{"locks", "locks/wire"}, std: pure},
	"locks/maekawa":   {why: "an algorithm is a pure machine", ours: []string{"locks", "locks/exclusive", "locks/wire"}, std: pure},
	"locks/lease":     {why: "who may keep names and attributes is decided by a pure machine", std: pure},
	"locks/rcv":       {why: "an algorithm is a pure machine", ours: []string{"locks", "locks/exclusive", "locks/wire"}, std: pure},
	"locks/ring":      {why: "an algorithm is a pure machine", ours: []string{"locks", "locks/exclusive", "locks/wire"}, std: pure},
	"locks/locktest":  {why: "a harness for tests", ours: []string{"internal/long", "internal/mutant", "locks"}, ext: []string{"github.com/cockroachdb/datadriven", "golang.org/x/sys/unix"}},
	"locks/engine": {why: "the engine knows machines by their contract, and its surroundings by its own interfaces",
		ours: []string{"locks", "locks/posix", "locks/wire"}},
	"p2p": {why: "the network knows nothing of what it carries", ours: []string{"locks"},
		ext: []string{"github.com/libp2p/go-libp2p", "github.com/multiformats/", "golang.org/x/"}},
	"p2p/p2ptest": {why: "a network for tests", ours: []string{"p2p"}, ext: []string{"github.com/libp2p/go-libp2p/core"}},
	"p2p/member": {why: "the membership protocol is a pure machine", ours: []string{"locks", "locks/wire"},
		std: append(pure, "encoding/json", "hash/crc32", "math", "unicode/utf8")},
	"p2p/register":              {why: "the files of the protocol, on storage", ours: []string{"internal/again", "internal/writegate", "locks", "p2p/member"}, ext: []string{"golang.org/x/"}},
	"p2p/register/registertest": {why: "a register for tests", ours: []string{"locks", "p2p/member"}},
	"p2p/cluster": {why: "the driver of the membership machine knows its surroundings by its own interfaces",
		ours: []string{"locks", "p2p/member"}},
	"internal/admin": {why: "what commands and daemon say to each other, and the socket; it knows neither", ours: []string{"internal/exitcode"},
		ext: []string{"golang.org/x/sys/unix"}},
	"internal/config": {why: "the settings, and what is wrong with them; what they bring about is others' part", ours: []string{"fusefs", "internal/exitcode", "locks/engine", "p2p/member", "policy"},
		ext: []string{"github.com/coreos/go-systemd/v22/unit", "github.com/pelletier/go-toml/v2", "github.com/spf13/pflag"}},
	"internal/statedir": {why: "a directory, and who may use it", ours: []string{"fusefs", "internal/config", "internal/exitcode", "internal/mountinfo", "p2p/member"}, ext: []string{"golang.org/x/sys/unix"}},
	"internal/snapshot": {why: "what a daemon tells, and what follows from it", ours: []string{"internal/admin", "internal/waitgraph"}},
	"internal/top": {why: "the terminal view asks by an interface", ours: []string{"internal/snapshot", "internal/waitgraph"},
		ext: []string{"charm.land/bubbletea/v2", "github.com/charmbracelet/x/ansi"}},
	"internal/web":       {why: "the page asks by an interface, and loads nothing from elsewhere", ours: []string{"internal/snapshot", "internal/waitgraph"}},
	"internal/benchplot": {why: "a program of its own, so that no plotting is linked into what runs on every host", ext: []string{"gonum.org/v1/plot"}},
	"internal/long":      {why: "how long tests run, and may take", ext: []string{"golang.org/x/sys/unix"}},
	"internal/metrics":   {why: "what is counted, for Prometheus; it is told of it, and knows nobody who tells", ext: []string{"github.com/prometheus/"}},
	"story": {why: "a history is told of records; nothing is asked for", ours: []string{"journal", "locks"},
		std: append(slices.Clone(pure), "container/heap", "encoding/csv", "encoding/json", "io", "time")},
	"internal/support":  {why: "an archive of what others tell"},
	"internal/crash":    {why: "files and the Go runtime"},
	"internal/exitcode": {why: "numbers, and who says which", std: []string{"errors"}},
	"internal/doctor": {why: "the doctor is told how a first mount tries the storage; it knows no daemon, cluster or command",
		ours: []string{"fusefs", "internal/exitcode", "internal/mountinfo", "locks", "p2p/register"}, ext: []string{"golang.org/x/sys/unix"}},
	"internal/sigbus":       {why: "one signal, and a page of memory", ext: []string{"golang.org/x/sys/unix"}},
	"internal/mutant":       {why: "source of packages, written otherwise for tests"},
	"internal/mountinfo":    {why: "one file of the kernel's", ext: []string{"golang.org/x/sys/unix"}},
	"internal/relay":        {why: "memory that outlives a program, with no idea of what is in it", ext: []string{"golang.org/x/sys/unix"}},
	"internal/waitgraph":    {why: "who waits for whom is pure: answers in, a graph out", std: append(slices.Clone(pure), "math", "time")},
	"fusefs/looktest":       {why: "tests of several mounts, and no code"},
	"internal/again":        {why: "system calls", std: []string{"time"}, ext: []string{"golang.org/x/sys/unix"}},
	"internal/writegate":    {why: "who writes, whatever and where", std: []string{"sync", "sync/atomic"}},
	"internal/boottime":     {why: "one clock", ext: []string{"golang.org/x/sys/unix"}},
	"internal/version":      {why: "a name and numbers", ours: []string{"p2p/member"}},
	"internal/hugepages":    {why: "moves memory, whatever it is for", ours: []string{"internal/memory", "internal/process"}, ext: []string{"golang.org/x/sys/unix"}},
	"internal/memory":       {why: "files of the kernel about memory"},
	"internal/process":      {why: "processes of Linux, whatever they do", ext: []string{"golang.org/x/sys/unix"}},
	"internal/printing":     {why: "text for people, whatever it is about"},
	"internal/mountlog":     {why: "a log, whatever is in it", ours: []string{"internal/config", "internal/crash", "internal/exitcode", "internal/version"}, ext: []string{"gopkg.in/natefinch/lumberjack.v2"}},
	"internal/trouble":      {why: "errors, and words about them", ours: []string{"internal/config", "internal/exitcode", "journal", "p2p/register"}, ext: []string{"golang.org/x/sys/unix"}},
	"internal/mountpoint":   {why: "directories and mounts of this host, with no idea of what serves them", ours: []string{"fusefs", "internal/config", "internal/exitcode", "internal/mountinfo", "internal/statedir", "internal/trouble", "p2p/register"}, ext: []string{"golang.org/x/sys/unix"}},
	"internal/nodestate":    {why: "files, and what is in them", ours: []string{"internal/boottime", "internal/statedir", "p2p/member", "p2p/register"}, ext: []string{"golang.org/x/sys/unix"}},
	"internal/privileges":   {why: "capabilities, and limits that go with them", ours: []string{"fusefs"}, ext: []string{"golang.org/x/sys/unix"}},
	"internal/trial":        {why: "the storage is tried as a daemon will use it, without one", ours: []string{"fusefs", "internal/config", "internal/exitcode", "internal/mountpoint", "internal/privileges", "internal/process", "internal/statedir", "internal/trouble", "journal", "p2p/register"}},
	"internal/history":      {why: "a journal, on the disk or not yet", ours: []string{"internal/exitcode", "journal"}, ext: []string{"golang.org/x/sys/unix"}},
	"internal/supervise":    {why: "processes that start each other anew; how a mount is served is given to them", ours: []string{"internal/admin", "internal/boottime", "internal/config", "internal/crash", "internal/estate", "internal/exitcode", "internal/mountinfo", "internal/mountlog", "internal/mountpoint", "internal/nodestate", "internal/printing", "internal/privileges", "internal/process", "internal/relay", "internal/statedir", "internal/trial", "internal/trouble", "internal/version"}, ext: []string{"github.com/coreos/go-systemd/v22/daemon", "golang.org/x/sys/unix"}},
	"internal/chronicle":    {why: "what happened, in words; it is told by those to whom it happens", ours: []string{"fusefs", "internal/admin", "internal/metrics", "journal", "locks", "locks/engine", "p2p/member"}},
	"internal/rules":        {why: "rules that are in force, and the algorithms that they can name", ours: []string{"fusefs", "internal/admin", "internal/exitcode", "journal", "locks", "locks/maekawa", "locks/rcv", "locks/ring", "locks/rw", "p2p/member", "policy"}},
	"internal/rotation":     {why: "a secret in steps; how members are asked is given to it", ours: []string{"internal/admin", "internal/chronicle", "internal/exitcode", "internal/nodestate", "journal", "p2p", "p2p/cluster", "p2p/member", "p2p/register"}, ext: []string{"github.com/libp2p/go-libp2p/core/peer"}},
	"internal/journalquery": {why: "questions and answers about journals, which a daemon and a command have in common", ours: []string{"internal/exitcode", "internal/waitgraph", "journal", "locks", "story"}},
	"internal/succession":   {why: "one program follows another in a process, with all that it serves", ours: []string{"fusefs", "internal/admin", "internal/boottime", "internal/config", "internal/estate", "internal/exitcode", "internal/mountinfo", "internal/nodestate", "internal/process", "internal/relay", "internal/statedir", "internal/supervise", "internal/version", "journal", "locks/engine", "p2p", "p2p/cluster", "p2p/member", "p2p/register"}, ext: []string{"github.com/multiformats/go-multiaddr", "golang.org/x/sys/unix"}},
	"internal/estate":       {why: "memory and descriptors of a daemon that was killed; what they mean is known by those who write them", ours: []string{"fusefs", "internal/keeper", "internal/recent", "internal/shm", "locks/engine", "p2p/member"}, ext: []string{"golang.org/x/sys/unix"}},
	"internal/daemon":       {why: "joins the parts", ours: []string{"fusefs", "internal/admin", "internal/boottime", "internal/chronicle", "internal/config", "internal/crash", "internal/estate", "internal/exitcode", "internal/history", "internal/hugepages", "internal/journalquery", "internal/memory", "internal/metrics", "internal/mountlog", "internal/nodestate", "internal/printing", "internal/process", "internal/recent", "internal/rotation", "internal/rules", "internal/statedir", "internal/succession", "internal/supervise", "internal/trouble", "internal/version", "internal/waitgraph", "internal/writegate", "journal", "locks", "locks/engine", "p2p", "p2p/cluster", "p2p/member", "p2p/register", "policy", "story"}, ext: []string{"github.com/libp2p/go-libp2p/core/peer", "github.com/multiformats/go-multiaddr", "golang.org/x/sync/errgroup", "golang.org/x/sys/unix"}},
	"internal/ask":          {why: "questions of commands; who answers is not known here", ours: []string{"internal/admin", "internal/exitcode", "internal/journalquery", "internal/mountpoint", "internal/process", "internal/snapshot", "internal/statedir", "internal/supervise", "internal/waitgraph"}, ext: []string{"github.com/spf13/pflag"}},
	"internal/journalview":  {why: "records, shown", ours: []string{"internal/admin", "internal/exitcode", "internal/journalquery", "internal/printing", "internal/statedir", "journal", "story"}},
	"internal/firsthour":    {why: "tests of the built program, and no code"},
	"systemtest":            {why: "tests of the whole, and no code"},
	"internal/keeper":       {why: "a process that does nothing, and what it has open", ext: []string{"golang.org/x/sys/unix"}},
	"internal/recent":       {why: "what was changed, in memory that outlives a process, and what follows from that", ours: []string{"internal/boottime"}, ext: []string{"golang.org/x/sys/unix"}},
	"internal/shm":          {why: "tables in memory that outlives a process, with no idea of what is in them", ext: []string{"golang.org/x/sys/unix"}},
	"fusefs": {why: "the mount asks for locks by an interface of its own", ours: []string{"internal/again", "internal/mountinfo", "internal/recent", "internal/writegate", "locks", "locks/lease"},
		ext: []string{"github.com/hanwen/go-fuse/v2/fuse", "golang.org/x/"}},
	"cmd/dmxfs": {why: "commands: what they ask for is done elsewhere",
		ours: []string{"fusefs", "internal/admin", "internal/ask", "internal/config", "internal/crash", "internal/daemon", "internal/doctor", "internal/exitcode", "internal/journalquery", "internal/journalview", "internal/metrics", "internal/mountinfo", "internal/mountlog", "internal/mountpoint", "internal/nodestate", "internal/printing", "internal/process", "internal/rules", "internal/statedir", "internal/succession", "internal/supervise", "internal/support", "internal/top", "internal/trial", "internal/trouble", "internal/version", "internal/waitgraph", "internal/web", "journal", "locks", "p2p", "p2p/member", "p2p/register", "policy", "story"}, ext: []string{"github.com/pelletier/go-toml/v2", "github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/sys/unix", "golang.org/x/term"}},
	"cmd/dmxfs-sim": {why: "a program of its own, so that no plotting is linked into what runs on every host", ours: []string{"internal/exitcode", "internal/printing", "sim", "sim/figures"}, ext: []string{"github.com/schollz/progressbar/v3", "github.com/spf13/cobra", "golang.org/x/term"}},
	"cmd/dmxfs-man": {why: "man pages are made of text"},
	"policy": {why: "rules are data, checked and matched", std: append(pure, "crypto/sha256", "encoding/hex", "time", "unicode", "unicode/utf8"),
		ext: []string{"github.com/bmatcuk/doublestar/v4", "github.com/pelletier/go-toml/v2"}},
	"sim": {why: "a simulation has no clock but its own: it imports algorithms, and nothing that is blocked or late",
		ours: []string{"locks", "locks/maekawa", "locks/rcv", "locks/ring", "locks/rw", "sim/baseline"},
		std:  append(slices.Clone(pure), "container/heap", "context", "encoding/json", "math", "math/rand/v2", "runtime", "sync"), ext: []string{"golang.org/x/sync/"}},
	"sim/figures":  {why: "figures are made from what is simulated", ours: []string{"locks/maekawa", "sim"}, ext: []string{"gonum.org/v1/plot"}},
	"sim/baseline": {why: "an algorithm is a pure machine", ours: []string{"locks", "locks/wire"}, std: pure},
	"journal": {why: "the journal stores what it is given", ours: []string{"internal/sigbus", "locks", "locks/wire"},
		ext: []string{"github.com/dgraph-io/badger/v4", "github.com/bmatcuk/doublestar/v4", "github.com/klauspost/compress/s2", "golang.org/x/"}},
}

// TestImports holds the packages to the table above, which is the one of
// docs/ARCHITECTURE.md. Only direct imports count.
func TestImports(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range packages(t) {
		dir := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if dir == "" {
			dir = "."
		}
		seen[dir] = true
		r, ok := rules[dir]
		if !ok {
			t.Errorf("package %s has no rule: say in arch_test.go what it may import, and why", dir)
			continue
		}
		for _, imp := range p.Imports {
			if !r.allows(imp) {
				t.Errorf("%s must not import %s: %s", dir, imp, r.why)
			}
		}
	}
	for dir := range rules {
		if !seen[dir] {
			t.Errorf("the rule for %s is of no use: there is no such package", dir)
		}
	}
}

// TestNoPlottingInTheDaemon: what draws figures is linked into dmxfs-sim only. It
// would be a fourth of the daemon's binary.
func TestNoPlottingInTheDaemon(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./cmd/dmxfs").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for _, p := range strings.Fields(string(out)) {
		if strings.HasPrefix(p, "gonum.org/") || strings.HasPrefix(p, module+"/sim") || strings.HasPrefix(p, "golang.org/x/image") {
			t.Errorf("cmd/dmxfs has %s among its dependencies", p)
		}
	}
}

func (r rule) allows(imp string) bool {
	if ours, ok := strings.CutPrefix(imp, module+"/"); ok {
		return slices.Contains(r.ours, ours)
	}
	first, _, _ := strings.Cut(imp, "/")
	if !strings.Contains(first, ".") {
		return r.std == nil || slices.Contains(r.std, imp)
	}
	return slices.ContainsFunc(r.ext, func(prefix string) bool { return strings.HasPrefix(imp, prefix) })
}

// TestPackageComments wants exactly one package comment per package, in the
// file where the next person looks for it.
func TestPackageComments(t *testing.T) {
	for _, p := range packages(t) {
		var with []string
		for _, f := range p.GoFiles {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			if file.Doc != nil {
				with = append(with, f)
			}
		}
		if !slices.Equal(with, []string{"doc.go"}) {
			t.Errorf("%s: package comment in %v, want it in doc.go only", p.ImportPath, with)
		}
	}
}

type pkg struct {
	ImportPath, Dir  string
	Imports, GoFiles []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Dir,Imports,GoFiles", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}
