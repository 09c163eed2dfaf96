package register

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// The secret of a cluster can be changed. Which one counts is told by its
// fingerprint, in the file cluster for the first one, and then in a file for each
// generation, whose name only one can make: of two changes at once one is done.
// The secrets themselves are not on the storage, but for the first one.

const secretsDir = Name + "/secrets"

// Generation is a secret of the cluster, by what can be told of it.
type Generation struct {
	Number      uint64 `json:"-"` // 0: the one that it was founded with
	Fingerprint string `json:"secret"`
	Made        string `json:"made,omitempty"` // RFC 3339, for people
}

// maxGeneration bounds the names that are taken for generations.
const maxGeneration = 1<<32 - 1

func generationName(n uint64) string { return fmt.Sprintf("%010d", n) }

func parseGenerationName(name string) (uint64, bool) {
	n, err := strconv.ParseUint(name, 10, 64)
	return n, err == nil && n > 0 && n <= maxGeneration && generationName(n) == name
}

// secrets tell which secret of the cluster counts.
type secrets struct{ *storage }

// Generation tells which secret counts now.
func (s *secrets) Generation() (Generation, error) {
	dir, err := s.open(Name)
	if err != nil {
		return Generation{}, err
	}
	defer dir.Close()
	rec, err := dir.readCluster()
	if err != nil {
		return Generation{}, err
	}
	return s.generation(rec, 0)
}

// generation is that of the cluster whose file has rec. It is not below known, if that
// is there; if that may be there, and cannot be seen, there is an error.
func (s *secrets) generation(rec clusterRecord, known uint64) (Generation, error) {
	dir, err := s.open(secretsDir)
	if errors.Is(err, unix.ENOENT) {
		return Generation{Fingerprint: rec.Secret}, nil
	}
	if err != nil {
		return Generation{}, err
	}
	defer dir.Close()
	last := uint64(0)
	if err := dir.names(func(name string) {
		if n, ok := parseGenerationName(name); ok {
			last = max(last, n)
		}
	}); err != nil {
		return Generation{}, err
	}
	if last < known {
		there, err := dir.has(generationName(known))
		if err != nil {
			return Generation{}, err
		}
		if there {
			last = known
		}
	}
	if last == 0 {
		return Generation{Fingerprint: rec.Secret}, nil
	}
	return s.readGeneration(dir, last)
}

func (s *secrets) readGeneration(dir directory, n uint64) (Generation, error) {
	b, err := dir.read(generationName(n), maxClusterSize)
	if err != nil {
		return Generation{}, err
	}
	g := Generation{}
	if err := json.Unmarshal(b, &g); err != nil || !isFingerprint(g.Fingerprint) {
		return Generation{}, fmt.Errorf("%s: %s/%s: %w: it has no fingerprint of a secret", s.source, secretsDir, generationName(n), ErrDamaged)
	}
	g.Number = n
	return g, nil
}

// ErrNotNext is returned by [Dir.SetGeneration] if another host has changed the
// secret meanwhile: its secret counts.
var ErrNotNext = errors.New("the secret was changed by another host")

// SetGeneration makes g count from now on. If there is a generation of that
// number, or a later one, with another fingerprint, the error is [ErrNotNext]
// and nothing was done. Any other error leaves open whether it counts, or will.
func (s *secrets) SetGeneration(g Generation) error {
	if g.Number == 0 || g.Number > maxGeneration || !isFingerprint(g.Fingerprint) {
		return fmt.Errorf("register: generation %d of the secret, fingerprint %q", g.Number, g.Fingerprint)
	}
	linkErr := s.linkGeneration(g)
	// Of a link whose answer got lost the second try fails: what is there counts.
	now, err := s.Generation()
	switch {
	case err != nil:
		return errors.Join(linkErr, err)
	case now.Number == g.Number && now.Fingerprint == g.Fingerprint:
		return nil
	case now.Number >= g.Number:
		return fmt.Errorf("%s: %w", s.source, ErrNotNext)
	case linkErr != nil:
		return linkErr
	}
	return fmt.Errorf("%s: %s/%s does not show what was made there", s.source, secretsDir, generationName(g.Number))
}

// linkGeneration makes the file of g; it is no error that there is one already.
func (s *secrets) linkGeneration(g Generation) error {
	g.Made = time.Now().UTC().Format(time.RFC3339)
	data, err := json.Marshal(g)
	if err != nil {
		return err
	}
	if _, err := s.makeDir(secretsDir); err != nil {
		return err
	}
	dir, err := s.open(secretsDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	mode, err := s.fileMode()
	if err != nil {
		return err
	}
	_, err = dir.linkNew(generationName(g.Number), append(data, '\n'), mode)
	return err
}

// RemoveSecret removes the first secret from the storage, where it does not
// count any more.
func (s *secrets) RemoveSecret() error {
	dir, err := s.open(Name)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.remove(secretFile)
}

// readSecret reads the first secret, in .dmxfs.
func (d directory) readSecret() ([]byte, error) {
	b, err := d.read(secretFile, maxSecret)
	if err != nil {
		return nil, err
	}
	return trimSecret(b)
}
