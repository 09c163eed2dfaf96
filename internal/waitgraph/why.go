package waitgraph

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Target is what a story is asked for: a process, or a file.
type Target struct {
	PID int // of a process; 0: a file
	// Host, by name or peer ID, on which the process runs; empty: the one of
	// [Graph.Self], or if it waits for nothing there, any.
	Host string
	Path string // or the identity of a file
}

// Story is what the requests of a target wait for, up to the end.
type Story struct {
	At time.Time `json:"at"`
	// Steps are a tree in the order in which it is read: a step with depth d hangs on
	// the last one before it with depth d-1. Those of depth 0 are the target's requests.
	Steps []Step `json:"steps"`
	// Ends are those who keep the others from going on and wait for nobody, or, in a
	// cycle, for one another.
	Ends []End `json:"ends"`
	// Silent are the members that did not answer, and those that were expelled.
	Silent []Member `json:"silent"`
}

// Step is a request that waits, or who stands at the end of a chain.
type Step struct {
	Depth int `json:"depth"`
	// By is how this one is in the way of the step that it hangs on; nil at depth 0.
	By *Blocker `json:"by"`
	// Wait is what it waits for itself, nil if nothing.
	Wait *Wait `json:"wait"`
	// Again: it has been told of before, so that nothing hangs on it.
	Again bool `json:"again"`
	// More is how many steps are left out behind this one.
	More int `json:"more"`
}

// End is where a chain ends.
type End struct {
	Process string `json:"process"` // empty: a member, or nobody
	Node    string `json:"node"`
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Command string `json:"command"`
	// Why it ends here, and what would free those who wait, in a sentence each.
	Why   string `json:"why"`
	Frees string `json:"frees"`
}

const (
	maxSteps  = 200 // of a story
	maxBranch = 8   // blockers that are followed from one wait
	maxRoots  = 20  // requests of a target
)

// story is one that is being told.
type story struct {
	*Story
	g       *Graph
	waits   map[string][]*Wait // by process
	told    map[string]bool    // processes
	ended   map[string]bool
	members map[string]*Member
	cycle   map[string]int // by process, from 1
}

// Why tells what the requests of a target wait for.
func (g *Graph) Why(t Target) *Story {
	s := &story{
		Story: &Story{At: g.At, Steps: []Step{}, Ends: []End{}, Silent: g.Silent()}, g: g,
		waits: map[string][]*Wait{}, told: map[string]bool{}, ended: map[string]bool{}, members: map[string]*Member{}, cycle: map[string]int{},
	}
	for i := range g.Members {
		s.members[g.Members[i].ID] = &g.Members[i]
	}
	for i, c := range g.Cycles {
		for _, id := range c {
			s.cycle[id] = i + 1
		}
	}
	var roots, own []*Wait
	for i := range g.Waits {
		w := &g.Waits[i]
		s.waits[w.Process] = append(s.waits[w.Process], w)
		if t.matches(w) {
			roots = append(roots, w)
			if w.Node == g.Self {
				own = append(own, w)
			}
		}
	}
	if t.PID != 0 && t.Host == "" && len(own) > 0 {
		roots = own
	}
	for i, w := range roots {
		if i == maxRoots {
			s.Steps[len(s.Steps)-1].More = len(roots) - i
			break
		}
		s.follow(w, nil, 0)
	}
	return s.Story
}

func (t *Target) matches(w *Wait) bool {
	if t.PID == 0 {
		return w.Path == t.Path || w.File == t.Path
	}
	return w.PID == t.PID && (t.Host == "" || t.Host == w.Host || t.Host == w.Node)
}

// Silent are the members that did not answer, and those that were expelled.
func (g *Graph) Silent() []Member {
	out := []Member{}
	for _, m := range g.Members {
		if !m.Answered {
			out = append(out, m)
		}
	}
	return out
}

// follow tells of w, which is in the way of the step before as by says, and of
// those in its way. What is behind maxSteps is followed to its ends all the same.
func (s *story) follow(w *Wait, by *Blocker, depth int) {
	again := s.told[w.Process] && by != nil
	s.step(Step{Depth: depth, By: by, Wait: w, Again: again})
	if again {
		return
	}
	s.told[w.Process] = true
	if c := s.cycle[w.Process]; c > 0 && w.InCycle {
		s.endCycle(c)
	}
	if len(w.For) == 0 {
		s.endTurn(w)
	}
	for i := range w.For {
		b := &w.For[i]
		if i == maxBranch {
			s.Steps[len(s.Steps)-1].More += len(w.For) - i + w.More
			break
		}
		// Of a process with several threads that wait, the one that does so longest.
		if next := s.waits[b.Process]; b.Process != "" && len(next) > 0 {
			s.follow(next[0], b, depth+1)
			continue
		}
		s.step(Step{Depth: depth + 1, By: b})
		s.endAt(w, b)
	}
}

func (s *story) step(x Step) {
	if len(s.Steps) == maxSteps {
		s.Steps[maxSteps-1].More++
		return
	}
	s.Steps = append(s.Steps, x)
}

func (s *story) end(key string, e End) {
	if !s.ended[key] {
		s.ended[key] = true
		s.Ends = append(s.Ends, e)
	}
}

// endAt ends a chain at b, which waits for nobody and is in the way of w.
func (s *story) endAt(w *Wait, b *Blocker) {
	e := End{Process: b.Process, Node: b.Node, Host: b.Host, PID: b.PID, Command: b.Command}
	switch m := s.members[b.Node]; {
	case b.Kind == Silent && m != nil && m.Error != "":
		e.Why = fmt.Sprintf("host %s does not answer, so which of its processes is in the way is not known: %s", b.Host, m.Error)
		e.Frees = fmt.Sprintf("host %s goes on, or the others go on without it: by themselves when its locks must have ended, at the latest after \"dmxfs peers remove %s\"", b.Host, b.Node)
	case b.Kind == Silent:
		e.Why = fmt.Sprintf("host %s has told nothing of this lock", b.Host)
		e.Frees = "ask again: members change"
	case b.Kind == Keeps:
		e.Why = fmt.Sprintf("no program on host %s has the lock now: the host writes out what was written under it, or has just let go of it", b.Host)
		e.Frees = fmt.Sprintf("it comes by itself; if it does not, see \"dmxfs status\" on %s: its storage may hang", b.Host)
	case b.Kind == Ahead:
		e.Why = fmt.Sprintf("%s waits as well, is in front, and waits for nobody", b.Name())
		e.Frees = "it comes by itself"
	case w.Class == "open":
		e.Why = fmt.Sprintf("%s has %s open%s, and waits for no lock", b.Name(), name(w.Path, w.File), b.useText(s.At))
		e.Frees = fmt.Sprintf("process %d closes the file, leaves it alone for a while, or ends; or: %s", b.PID, breakCommand(w, b))
	default:
		e.Why = fmt.Sprintf("%s holds %s on %s, and waits for no lock", b.Name(), lockText(w.Class, b.Mode, b.Start, b.End), name(w.Path, w.File))
		e.Frees = fmt.Sprintf("process %d unlocks or closes the file, or ends; or: %s", b.PID, breakCommand(w, b))
	}
	s.end(string(b.Kind)+" "+cmp.Or(b.Process, b.Node)+" "+w.File+" "+w.Class, e)
}

// endTurn ends a chain at w, which nobody is in the way of.
func (s *story) endTurn(w *Wait) {
	e := End{Process: w.Process, Node: w.Node, Host: w.Host, PID: w.PID, Command: w.Command, Why: "nobody is in the way: it waits for its turn", Frees: "it comes by itself"}
	if m := s.members[w.Node]; m != nil && m.State != "live" {
		e.Why = fmt.Sprintf("nobody is in the way, but host %s grants no locks now: it is %s", m.Host, m.State)
		if m.Why != "" {
			e.Why += ", since " + m.Why
		}
		e.Frees = fmt.Sprintf("host %s is sure again of the others and of the storage, see \"dmxfs status\" there", m.Host)
	}
	s.end("turn "+w.Process, e)
}

// endCycle says who waits for one another.
func (s *story) endCycle(c int) {
	var names []string
	for _, p := range s.g.Processes {
		if s.cycle[p.ID] == c {
			names = append(names, processName(p.Host, p.PID, p.Command))
		}
	}
	why := "it waits for a lock that it holds itself, through another open file: " + names[0]
	if len(names) > 1 {
		why = "these wait for one another: " + strings.Join(names, ", ")
	}
	i := slices.IndexFunc(s.g.Processes, func(p Process) bool { return s.cycle[p.ID] == c })
	p := s.g.Processes[i]
	s.end(fmt.Sprint("cycle ", c), End{
		Process: p.ID, Node: p.Node, Host: p.Host, PID: p.PID, Command: p.Command, Why: why,
		Frees: "end one of them, unless another thread of it goes on and unlocks: nothing else will (flock knows no EDEADLK)",
	})
}

// Name is who b is, for people.
func (b *Blocker) Name() string {
	if b.Process == "" {
		return "host " + b.Host
	}
	return processName(b.Host, b.PID, b.Command)
}

// Name is who waits, for people.
func (w *Wait) Name() string { return processName(w.Host, w.PID, w.Command) }

func processName(host string, pid int, command string) string {
	switch {
	case pid == 0:
		return fmt.Sprintf("a program on host %s that its daemon cannot see", host)
	case command == "":
		return fmt.Sprintf("process %d on host %s", pid, host)
	}
	return fmt.Sprintf("process %d (%s) on host %s", pid, command, host)
}

func name(path, file string) string { return cmp.Or(path, "file "+file) }

// LockText is a lock for people: its class, mode and bytes.
func (w *Wait) LockText() string { return lockText(w.Class, w.Mode, w.Start, w.End) }

func lockText(class, mode string, start uint64, end int64) string {
	what := map[string]string{"W": "a write lock", "R": "a read lock"}[mode]
	what = cmp.Or(what, "a lock") + " (" + class
	switch {
	case start == 0 && end < 0:
	case end < 0:
		what += fmt.Sprintf(", bytes from %d on", start)
	default:
		what += fmt.Sprintf(", bytes %d-%d", start, end-1)
	}
	return what + ")"
}

// useText is how an open lock is used, if that is known.
func (b *Blocker) useText(at time.Time) string {
	if b.IdleSince == nil {
		return ""
	}
	return fmt.Sprintf(" (%s, idle for %v)", b.Use, max(0, at.Sub(*b.IdleSince)).Round(10*time.Millisecond))
}

// breakCommand is what takes the lock away.
func breakCommand(w *Wait, b *Blocker) string {
	return fmt.Sprintf("dmxfs locks break %s --class %s --host %s --pid %d --reason TEXT", shellQuote(cmp.Or(w.Path, w.File)), w.Class, shellQuote(b.Host), b.PID)
}

// shellQuote is s as one word of sh(1).
func shellQuote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-:") == "" && s[0] != '-' {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
