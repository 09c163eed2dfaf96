package register

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"dmxfs/p2p/member"
)

// Cluster is what a node knows of its cluster before it talks to anybody.
type Cluster struct {
	ID          string // 32 hexadecimal digits
	Secret      []byte
	Fingerprint string // of Secret
	Generation  uint64 // of Secret, see Generation
	Founded     bool   // by this call
	Stored      bool   // Secret is on the storage
	// Inode is the number that this host sees on the file cluster: hosts that
	// see the same inode numbers have the same.
	Inode uint64
	// Warnings are for people: what works, and should not be so.
	Warnings []string
}

// Expect is what a node knows of its cluster before it has opened it.
type Expect struct {
	// Secret is that of --secret, nil to use the one in .dmxfs.
	Secret []byte
	// Kept are secrets that the node has had from other members. One that
	// counts is taken instead of Secret.
	Kept [][]byte
	// Cluster is the ID of the cluster that this node was in, empty if it does
	// not know. Another one is refused, and if there is none it is not founded:
	// the storage may not be mounted.
	Cluster string
	// Join: a cluster is not founded, for the same reason.
	Join bool
}

// Init opens the cluster of the shared directory, or founds it. Several nodes
// may do so at the same time: one founds, the others join it. What the node
// expects is checked before anything is written.
func (d *Dir) Init(e Expect) (*Cluster, error) {
	c, err := d.openCluster(e.Secret, e.Kept)
	switch {
	case errors.Is(err, errNoCluster) && e.Cluster != "":
		return nil, &storageError{kind: ErrNoCluster, err: err, text: fmt.Sprintf(
			"%s: no cluster is here (there is no %s/%s), but this mount was in one, %s: is the shared directory mounted? Nothing was made; if somebody has removed it, dmxfs cluster restore makes it anew", d.source, Name, ClusterFile, e.Cluster)}
	case errors.Is(err, errNoCluster) && e.Join:
		return nil, &storageError{kind: ErrNoCluster, err: err, text: fmt.Sprintf(
			"%s: no cluster is here (there is no %s/%s), and none is to be founded (--join): is the shared directory mounted? Nothing was made", d.source, Name, ClusterFile)}
	case errors.Is(err, errNoCluster):
		c, err = d.found(e.Secret)
	case err == nil && e.Cluster != "" && c.ID != e.Cluster:
		return nil, &storageError{kind: ErrOtherCluster, err: errNotMine, text: fmt.Sprintf(
			"%s: the cluster %s is here, but this mount was in another one, %s: is other storage mounted here, or none?", d.source, c.ID, e.Cluster)}
	}
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.cluster = c.ID
	d.mu.Unlock()
	if err := d.makeDirs(); err != nil { // it may have died before it made all
		return nil, err
	}
	if err := d.probe(); err != nil {
		return nil, err
	}
	if err := d.fillRoom(); err != nil && !errors.Is(err, ErrFull) {
		c.Warnings = append(c.Warnings, fmt.Sprintf("no room is kept for changes of the membership while the storage is full: %v", err))
	}
	return c, nil
}

var (
	errNoCluster = errors.New("no cluster")
	errNotMine   = errors.New("another cluster")
)

// openCluster reads a cluster that exists; if none does, the error is errNoCluster.
func (d *Dir) openCluster(given []byte, kept [][]byte) (*Cluster, error) {
	dir, err := d.open(Name)
	if errors.Is(err, unix.ENOENT) {
		return nil, errNoCluster
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	b, err := d.read(dir, ClusterFile, maxClusterSize)
	if errors.Is(err, unix.ENOENT) {
		return nil, errNoCluster
	}
	if err != nil {
		return nil, err
	}
	rec, err := parseCluster(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %s/%s: %w", d.source, Name, ClusterFile, err)
	}
	st, err := statIn(dir, ClusterFile)
	if err != nil {
		return nil, d.wrap("stat", Name+"/"+ClusterFile, err)
	}
	counts, err := d.generation(rec)
	if err != nil {
		return nil, err
	}
	c := &Cluster{ID: rec.Cluster, Inode: st.Ino, Fingerprint: counts.Fingerprint, Generation: counts.Number}
	if err := d.chooseSecret(dir, c, given, kept); err != nil {
		return nil, err
	}
	return c, nil
}

// chooseSecret finds the secret that counts among those that there are.
func (d *Dir) chooseSecret(dir *os.File, c *Cluster, given []byte, kept [][]byte) error {
	if st, err := statIn(dir, secretFile); err == nil && given == nil && c.Generation == 0 {
		c.Stored = true
		if st.Mode&0o077 != 0 {
			c.Warnings = append(c.Warnings, fmt.Sprintf("%s/%s can be read by others than its owner (mode %04o): whoever has it can join", Name, secretFile, st.Mode&0o777))
		}
	}
	for _, k := range kept {
		if Fingerprint(k) != c.Fingerprint {
			continue
		}
		c.Secret = k
		if given != nil && Fingerprint(given) != c.Fingerprint {
			c.Warnings = append(c.Warnings, "the secret that was given is a former one of the cluster: the one that counts is taken from the state directory; put it where the other one is ("+showSecret+")")
		}
		return nil
	}
	from := "the secret given"
	c.Secret = given
	if given == nil {
		from = Name + "/" + secretFile
		var err error
		switch c.Secret, err = d.readSecret(dir); {
		case err != nil && c.Generation > 0:
			return fmt.Errorf("%s: %w: the secret of the cluster was changed, and is not on the storage; the one that counts now has fingerprint %s: %s, copy it to this host and give it with --secret",
				d.source, ErrSecret, c.Fingerprint, showSecret)
		case err != nil:
			return fmt.Errorf("%s: %w: the cluster needs the one with fingerprint %s, and %s/%s cannot be read (%w); copy it to this host and give it with --secret",
				d.source, ErrSecret, c.Fingerprint, Name, secretFile, err)
		}
	}
	if got := Fingerprint(c.Secret); got != c.Fingerprint {
		hint := ": " + showSecret
		if given != nil {
			hint += ", and give that one with --secret"
		}
		if c.Generation > 0 {
			hint = "; it was changed: " + showSecret + ", copy it to this host and give it with --secret"
		}
		return fmt.Errorf("%s: %w: the cluster has the one with fingerprint %s, %s has %s%s", d.source, ErrSecret, c.Fingerprint, from, got, hint)
	}
	return nil
}

// showSecret is how a person gets at the secret.
const showSecret = "dmxfs secret show MOUNTPOINT prints it on a member"

// HasCluster reports whether there may be a cluster.
func (d *Dir) HasCluster() bool {
	var st unix.Stat_t
	err := ignoringEINTR(func() error {
		return unix.Fstatat(d.root, Name+"/"+ClusterFile, &st, unix.AT_SYMLINK_NOFOLLOW)
	})
	return !errors.Is(err, unix.ENOENT)
}

// found makes a cluster, step by step in an order in which each can be the last
// one: directories, secret, cluster. Who comes second at a step goes on with
// what the first one made.
func (d *Dir) found(given []byte) (*Cluster, error) {
	if err := d.makeDirs(); err != nil {
		return nil, err
	}
	if err := d.noViews(); err != nil {
		return nil, err
	}
	dir, err := d.open(Name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	secret, madeSecret := given, false
	if given == nil {
		fresh := make([]byte, 32)
		rand.Read(fresh)
		if madeSecret, err = d.linkNew(dir, secretFile, append([]byte(hex.EncodeToString(fresh)), '\n'), 0o600); err != nil {
			return nil, err
		}
		if secret, err = d.readSecret(dir); err != nil {
			return nil, fmt.Errorf("%s: %w: %s/%s: %w", d.source, ErrSecret, Name, secretFile, err)
		}
	}
	id := make([]byte, 16)
	rand.Read(id)
	mode, err := d.fileMode()
	if err != nil {
		return nil, err
	}
	rec := clusterRecord{Format: clusterFormat, Cluster: hex.EncodeToString(id), Secret: Fingerprint(secret), Made: time.Now().UTC().Format(time.RFC3339)}
	founded, err := d.linkNew(dir, ClusterFile, encodeCluster(rec), uint32(mode))
	if err != nil {
		return nil, err
	}
	c, err := d.openCluster(given, nil)
	if err != nil {
		if errors.Is(err, ErrSecret) && madeSecret {
			// Another founder was faster, with a secret of its own. Ours
			// is nobody's, and would only mislead.
			d.remove(dir, secretFile)
		}
		return nil, err
	}
	c.Founded = founded
	return c, nil
}

// trialTries is how often a directory is made that the trials of other hosts
// have removed, each of which has thought that it is its own.
const trialTries = 10

// makeDirs makes the directories that are missing.
func (d *Dir) makeDirs() (err error) {
	for range trialTries {
		if err = d.tryDirs(); !errors.Is(err, unix.ENOENT) {
			break
		}
	}
	return err
}

func (d *Dir) tryDirs() error {
	for _, path := range []string{Name, viewsDir, peersDir} {
		if _, err := d.makeDir(path); err != nil {
			return err
		}
	}
	return nil
}

// makeDir makes one of them, unless it is there, in which case it reports false.
func (d *Dir) makeDir(path string) (bool, error) {
	mode, err := d.dirMode()
	if err != nil {
		return false, err
	}
	err = ignoringEINTR(func() error { return unix.Mkdirat(d.root, path, mode&0o777) })
	if errors.Is(err, unix.EEXIST) {
		return false, nil
	}
	if err != nil {
		return false, d.wrap("make", path, err)
	}
	// The umask took bits away, and mkdir does not set all.
	err = ignoringEINTR(func() error { return unix.Fchmodat(d.root, path, mode, 0) })
	if err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.ENOTSUP) {
		return true, d.wrap("chmod", path, err)
	}
	return true, nil
}

// noViews is an error if there are views: where they are without the file of their
// cluster, no other one may be founded.
func (d *Dir) noViews() error {
	dir, err := d.open(viewsDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	found := ""
	err = d.names(dir, func(name string) {
		if _, ok := member.ParseViewName(name); ok {
			found = name
		}
	})
	if err == nil && found != "" {
		err = fmt.Errorf("%s: %w: %s/%s is there, but %s/%s is missing: put it back, or, when no node runs, remove %s",
			d.source, ErrDamaged, viewsDir, found, Name, ClusterFile, Name)
	}
	return err
}

// readSecret reads the secret in .dmxfs.
func (d *Dir) readSecret(dir *os.File) ([]byte, error) {
	b, err := d.read(dir, secretFile, maxSecret)
	if err != nil {
		return nil, err
	}
	return trimSecret(b)
}
