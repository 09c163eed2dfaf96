package rotation

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dmxfs/dmxfs/internal/nodestate"
	"github.com/dmxfs/dmxfs/p2p/register"
)

// MaxNext is how many changes of the secret may be begun and not ended. Long before
// it is reached a new change makes those void that were, see rotation.void.
const (
	MaxNext  = 8
	manyNext = MaxNext / 2
)

// Secret is what a node knows of the secret of its cluster at each step: the one that
// counts, the one before it, and those that may come to count. All that a crash must not
// lose is in a file of the state directory; which of them counts is told by the storage.
type Secret struct {
	dir string // state directory
	// use is told which secrets the network takes, the first to dial with. It
	// is called with mu held.
	use func(list [][]byte)

	mu         sync.Mutex
	generation uint64
	current    []byte
	former     []byte // the one before, while others may need it; else nil
	changed    uint64 // the generation in which current came to count
	next       []nodestate.Secret
	began      time.Time // when next was not empty any more
	missing    error     // another one counts, which is not known here
}

// NewSecret begins with the secret of c, which counts now, in the state directory in which
// kept was found.
func NewSecret(state string, c *register.Cluster, kept nodestate.Secrets) *Secret {
	s := &Secret{dir: state, generation: c.Generation, changed: c.Generation, current: c.Secret, use: func([][]byte) {}}
	for _, n := range kept.Next {
		if n.Generation > c.Generation {
			s.next, s.began = append(s.next, n), time.Now()
		}
	}
	return s
}

// Keep writes the file, unless it is as it should be.
func (s *Secret) Keep(kept nodestate.Secrets) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if kept.Current == (nodestate.Secret{Generation: s.generation, Secret: string(s.current)}) && len(kept.Next) == len(s.next) {
		return nil
	}
	return s.save()
}

// Bind says where the secrets are used: use is called at once and at each change, with
// those that are taken, the first to dial with.
func (s *Secret) Bind(use func([][]byte)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.use = use
	s.apply()
}

// apply tells the network. REQUIRES: mu held.
func (s *Secret) apply() {
	list := [][]byte{s.current}
	if s.former != nil {
		list = append(list, s.former)
	}
	for _, n := range s.next {
		list = append(list, []byte(n.Secret))
	}
	s.use(list)
}

// save writes the file. REQUIRES: mu held.
func (s *Secret) save() error {
	return nodestate.Secrets{Current: nodestate.Secret{Generation: s.generation, Secret: string(s.current)}, Next: s.next}.Write(s.dir)
}

// prepare keeps a secret that may come to count. When it returns nil the node has
// it whatever happens.
func (s *Secret) prepare(generation uint64, secret string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if generation == s.generation && secret == string(s.current) {
		return nil
	}
	if generation <= s.generation {
		return fmt.Errorf("the secret was changed meanwhile: this node has generation %d", s.generation)
	}
	n := nodestate.Secret{Generation: generation, Secret: secret}
	if slices.Contains(s.next, n) {
		return nil
	}
	if len(s.next) >= MaxNext {
		return fmt.Errorf("%d changes of the secret were begun and not ended: give the order again, which makes them void", len(s.next))
	}
	before := s.next
	s.next = append(slices.Clone(before), n)
	if err := s.save(); err != nil {
		s.next = before
		return err
	}
	if len(before) == 0 {
		s.began = time.Now()
	}
	s.apply()
	return nil
}

// abort forgets a secret that will not come to count.
func (s *Secret) abort(fingerprint string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.next)
	s.next = slices.DeleteFunc(slices.Clone(s.next), func(n nodestate.Secret) bool { return register.Fingerprint([]byte(n.Secret)) == fingerprint })
	if len(s.next) == before {
		return nil
	}
	s.apply()
	return s.save()
}

// counts is told what counts by the storage. changed: it is another one than
// before. The one before is taken, too, until finish.
func (s *Secret) counts(g register.Generation) (changed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.Number <= s.generation {
		return false, nil
	}
	if g.Fingerprint == register.Fingerprint(s.current) { // what was begun before is void
		s.generation, s.missing = g.Number, nil
		s.dropNext()
		s.apply()
		return false, s.save()
	}
	i := slices.IndexFunc(s.next, func(n nodestate.Secret) bool {
		return n.Generation == g.Number && register.Fingerprint([]byte(n.Secret)) == g.Fingerprint
	})
	if i < 0 {
		s.missing = fmt.Errorf("the secret of the cluster was changed (%s, fingerprint %s), and this node was not there: unmount, and mount with --secret and the new one (dmxfs secret show MOUNTPOINT prints it on a member)", g.Made, g.Fingerprint)
		return false, nil
	}
	s.former, s.current, s.generation, s.missing = s.current, []byte(s.next[i].Secret), g.Number, nil
	s.changed = g.Number
	s.dropNext()
	s.apply()
	return true, s.save() // if that fails the file has it among the next ones
}

// dropNext forgets the secrets that cannot come to count any more. REQUIRES: mu held.
func (s *Secret) dropNext() {
	s.next = slices.DeleteFunc(slices.Clone(s.next), func(n nodestate.Secret) bool { return n.Generation <= s.generation })
}

// finish has the secret before that of a generation count no more.
func (s *Secret) finish(generation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if generation >= s.changed && s.former != nil {
		s.former = nil
		s.apply()
	}
}

// state is what others, and people, are told of it; pending is how many changes
// were begun and not ended.
func (s *Secret) state() (generation uint64, fingerprint string, pending int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generation, register.Fingerprint(s.current), len(s.next)
}

// Text is the secret that counts.
func (s *Secret) Text() (generation uint64, secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generation, string(s.current)
}

// unfinishedAfter is how long a change may take before status tells of it.
const unfinishedAfter = time.Minute

// Problem is what is wrong with the secret; nil if nothing is.
func (s *Secret) Problem(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.missing == nil && len(s.next) > 0 && now.Sub(s.began) > unfinishedAfter {
		return errors.New("a change of the cluster's secret was begun and not ended; the old one counts: give the order again (dmxfs secret rotate)")
	}
	return s.missing
}
