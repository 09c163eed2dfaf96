package register

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
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

// Generation tells which secret counts now.
func (d *Dir) Generation() (Generation, error) {
	dir, err := d.open(Name)
	if err != nil {
		return Generation{}, err
	}
	defer dir.Close()
	b, err := d.read(dir, ClusterFile, maxClusterSize)
	if err != nil {
		return Generation{}, err
	}
	rec, err := parseCluster(b)
	if err != nil {
		return Generation{}, fmt.Errorf("%s: %s/%s: %w", d.source, Name, ClusterFile, err)
	}
	return d.generation(rec)
}

// generation is that of the cluster whose file has rec.
func (d *Dir) generation(rec clusterRecord) (Generation, error) {
	dir, err := d.open(secretsDir)
	if errors.Is(err, unix.ENOENT) {
		return Generation{Fingerprint: rec.Secret}, nil
	}
	if err != nil {
		return Generation{}, err
	}
	defer dir.Close()
	last := uint64(0)
	if err := d.names(dir, func(name string) {
		if n, ok := parseGenerationName(name); ok {
			last = max(last, n)
		}
	}); err != nil {
		return Generation{}, err
	}
	if last == 0 {
		return Generation{Fingerprint: rec.Secret}, nil
	}
	return d.readGeneration(dir, last)
}

func (d *Dir) readGeneration(dir *os.File, n uint64) (Generation, error) {
	b, err := d.read(dir, generationName(n), maxClusterSize)
	if err != nil {
		return Generation{}, err
	}
	g := Generation{}
	if err := json.Unmarshal(b, &g); err != nil || !isFingerprint(g.Fingerprint) {
		return Generation{}, fmt.Errorf("%s: %s/%s: %w: it has no fingerprint of a secret", d.source, secretsDir, generationName(n), ErrDamaged)
	}
	g.Number = n
	return g, nil
}

// ErrNotNext: the secret was changed by somebody else.
var ErrNotNext = errors.New("the secret was changed by another host")

// SetGeneration makes g count from now on. If there is a generation of that
// number, or a later one, with another fingerprint, the error is [ErrNotNext]
// and nothing was done. Any other error leaves open whether it counts, or will.
func (d *Dir) SetGeneration(g Generation) error {
	if g.Number == 0 || g.Number > maxGeneration || !isFingerprint(g.Fingerprint) {
		return fmt.Errorf("register: generation %d of the secret, fingerprint %q", g.Number, g.Fingerprint)
	}
	g.Made = time.Now().UTC().Format(time.RFC3339)
	linkErr := d.linkGeneration(g)
	// Of a link whose answer got lost the second try fails: what is there counts.
	now, err := d.Generation()
	switch {
	case err != nil:
		return errors.Join(linkErr, err)
	case now.Number == g.Number && now.Fingerprint == g.Fingerprint:
		return nil
	case now.Number >= g.Number:
		return fmt.Errorf("%s: %w", d.source, ErrNotNext)
	case linkErr != nil:
		return linkErr
	}
	return fmt.Errorf("%s: %s/%s does not show what was made there", d.source, secretsDir, generationName(g.Number))
}

// linkGeneration makes the file of g; it is no error that there is one already.
func (d *Dir) linkGeneration(g Generation) error {
	data, err := json.Marshal(g)
	if err != nil {
		return err
	}
	if _, err := d.makeDir(secretsDir); err != nil {
		return err
	}
	dir, err := d.open(secretsDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	mode, err := d.fileMode()
	if err != nil {
		return err
	}
	_, err = d.linkNew(dir, generationName(g.Number), append(data, '\n'), uint32(mode))
	return err
}

// RemoveSecret removes the first secret from the storage, where it does not
// count any more.
func (d *Dir) RemoveSecret() error {
	dir, err := d.open(Name)
	if err != nil {
		return err
	}
	defer dir.Close()
	return d.remove(dir, secretFile)
}
