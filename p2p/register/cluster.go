package register

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/p2p/member"
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
	// Generation is that of the secret which counted when the node has last known: one
	// below it is believed only if this one is gone.
	Generation uint64
	// Cluster is the ID of the cluster that this node was in, empty if it does
	// not know. Another one is refused, and if there is none it is not founded:
	// the storage may not be mounted.
	Cluster string
	// Join: a cluster is not founded, for the same reason.
	Join bool
	// GoesOn: this process goes on in the place of one that had the cluster open, on the same
	// client of the storage. It is not founded, and the storage is not tried again; but the
	// listing of the views is renewed.
	GoesOn bool
}

// founder opens clusters, and founds them.
type founder struct {
	*storage
	trials  *trials
	secrets *secrets
	views   *views
	room    *room
}

// Init opens the cluster of the shared directory, or founds it. Several nodes
// may do so at the same time: one founds, the others join it. What the node
// expects is checked before anything is written.
func (f *founder) Init(e Expect) (*Cluster, error) {
	c, err := f.openCluster(e)
	switch {
	case errors.Is(err, errNoCluster) && e.Cluster != "":
		return nil, &storageError{kind: ErrNoCluster, err: err, text: fmt.Sprintf(
			"%s: no cluster is here (there is no %s/%s), but this mount was in one, %s: is the shared directory mounted? Nothing was made; if somebody has removed it, dmxfs cluster restore makes it anew", f.source, Name, ClusterFile, e.Cluster)}
	case errors.Is(err, errNoCluster) && (e.Join || e.GoesOn):
		return nil, &storageError{kind: ErrNoCluster, err: err, text: fmt.Sprintf(
			"%s: no cluster is here (there is no %s/%s), and none is to be founded%s: is the shared directory mounted? Nothing was made", f.source, Name, ClusterFile, map[bool]string{true: " (--join)"}[e.Join])}
	case errors.Is(err, errNoCluster):
		c, err = f.found(e.Secret)
	case err == nil && e.Cluster != "" && c.ID != e.Cluster:
		return nil, &storageError{kind: ErrOtherCluster, err: errNotMine, text: fmt.Sprintf(
			"%s: the cluster %s is here, but this mount was in another one, %s: is other storage mounted here, or none?", f.source, c.ID, e.Cluster)}
	}
	if err != nil {
		return nil, err
	}
	f.views.ofCluster(c.ID)
	if err := f.makeDirs(); err != nil { // it may have died before it made all
		return nil, err
	}
	if e.GoesOn {
		f.views.listAnew()
	} else if err := f.trials.probe(); err != nil {
		return nil, err
	}
	if err := f.room.fill(); err != nil && !errors.Is(err, ErrFull) {
		c.Warnings = append(c.Warnings, fmt.Sprintf("no room can be kept now for changes of the membership at a time when the storage is full: %v", err))
	}
	return c, nil
}

// Known is in place of Init for who has been told of the cluster id by a process that
// had it open until now: nothing is asked for, made or tried on the storage.
func (f *founder) Known(id string) { f.views.ofCluster(id) }

var (
	errNoCluster = errors.New("no cluster")
	errNotMine   = errors.New("another cluster")
)

// openCluster reads a cluster that exists; if none does, the error is errNoCluster.
func (f *founder) openCluster(e Expect) (*Cluster, error) {
	dir, err := f.open(Name)
	if errors.Is(err, unix.ENOENT) {
		return nil, errNoCluster
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	rec, err := dir.readCluster()
	if errors.Is(err, unix.ENOENT) {
		if err := dir.unseen(ClusterFile); err != nil {
			return nil, err
		}
		return nil, errNoCluster
	}
	if err != nil {
		return nil, err
	}
	st, err := dir.stat(ClusterFile)
	if err != nil {
		return nil, dir.wrap("stat", ClusterFile, err)
	}
	counts, err := f.secrets.generation(rec, e.Generation)
	if err != nil {
		return nil, err
	}
	c := &Cluster{ID: rec.Cluster, Inode: st.Ino, Fingerprint: counts.Fingerprint, Generation: counts.Number}
	if err := f.chooseSecret(dir, c, e.Secret, e.Kept); err != nil {
		return nil, err
	}
	return c, nil
}

// chooseSecret finds the secret that counts among those that there are.
func (f *founder) chooseSecret(dir directory, c *Cluster, given []byte, kept [][]byte) error {
	if st, err := dir.stat(secretFile); err == nil && given == nil && c.Generation == 0 {
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
		c.Secret, err = dir.readSecret()
		if errors.Is(err, unix.ENOENT) && c.Generation == 0 {
			if unseen := dir.unseen(secretFile); unseen != nil {
				err = unseen
			}
		}
		switch {
		case err != nil && c.Generation > 0:
			return fmt.Errorf("%s: %w: the secret of the cluster was changed, and is not on the storage; the one that counts now has fingerprint %s: %s, copy it to this host and give it with --secret",
				f.source, ErrSecret, c.Fingerprint, showSecret)
		case isAway(err): // it may be there
			return fmt.Errorf("the secret of the cluster: %w", err)
		case err != nil:
			return fmt.Errorf("%s: %w: the cluster needs the one with fingerprint %s, and %s/%s cannot be read (%w); copy it to this host and give it with --secret",
				f.source, ErrSecret, c.Fingerprint, Name, secretFile, err)
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
		return fmt.Errorf("%s: %w: the cluster has the one with fingerprint %s, %s has %s%s", f.source, ErrSecret, c.Fingerprint, from, got, hint)
	}
	return nil
}

// showSecret is how a person gets at the secret.
const showSecret = "dmxfs secret show MOUNTPOINT prints it on a member"

// found makes a cluster, step by step in an order in which each can be the last
// one: directories, secret, cluster. Who comes second at a step goes on with
// what the first one made.
func (f *founder) found(given []byte) (*Cluster, error) {
	if err := f.makeDirs(); err != nil {
		return nil, err
	}
	if err := f.noViews(); err != nil {
		return nil, err
	}
	dir, err := f.open(Name)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	secret, madeSecret := given, false
	if given == nil {
		fresh := make([]byte, 32)
		rand.Read(fresh)
		if madeSecret, err = dir.linkNew(secretFile, append([]byte(hex.EncodeToString(fresh)), '\n'), 0o600); err != nil {
			return nil, err
		}
		if secret, err = dir.readSecret(); err != nil {
			return nil, fmt.Errorf("%s: %w: %s/%s: %w", f.source, ErrSecret, Name, secretFile, err)
		}
	}
	id := make([]byte, 16)
	rand.Read(id)
	mode, err := f.fileMode()
	if err != nil {
		return nil, err
	}
	rec := clusterRecord{Format: clusterFormat, Cluster: hex.EncodeToString(id), Secret: Fingerprint(secret), Made: time.Now().UTC().Format(time.RFC3339)}
	founded, err := dir.linkNew(ClusterFile, encodeCluster(rec), mode)
	if err != nil {
		return nil, err
	}
	c, err := f.openCluster(Expect{Secret: given})
	if err != nil {
		if errors.Is(err, ErrSecret) && madeSecret {
			// Another founder was faster, with a secret of its own. Ours
			// is nobody's, and would only mislead.
			dir.remove(secretFile)
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
func (f *founder) makeDirs() (err error) {
	for range trialTries {
		if err = f.tryDirs(); !errors.Is(err, unix.ENOENT) {
			break
		}
	}
	return err
}

func (f *founder) tryDirs() error {
	for _, path := range []string{Name, viewsDir, peersDir} {
		if _, err := f.makeDir(path); err != nil {
			return err
		}
	}
	return nil
}

// noViews is an error if there are views: where they are without the file of their
// cluster, no other one may be founded.
func (f *founder) noViews() error {
	dir, err := f.open(viewsDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	found := ""
	err = dir.names(func(name string) {
		if _, ok := member.ParseViewName(name); ok {
			found = name
		}
	})
	if err == nil && found != "" {
		err = fmt.Errorf("%s: %w: %s/%s is there, but %s/%s is missing: put it back, or, when no node runs, remove %s",
			f.source, ErrDamaged, viewsDir, found, Name, ClusterFile, Name)
	}
	return err
}

// readCluster reads the file of the cluster in .dmxfs.
func (d directory) readCluster() (clusterRecord, error) {
	b, err := d.read(ClusterFile, maxClusterSize)
	if err != nil && !errors.Is(err, errTooLong) {
		return clusterRecord{}, err
	}
	var rec clusterRecord
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	} else {
		rec, err = parseCluster(b)
	}
	if err != nil {
		help := ""
		if errors.Is(err, ErrDamaged) {
			help = fmt.Sprintf("; put it back from a backup or, if there is none, rename %s and run dmxfs cluster restore MOUNTPOINT on one of the hosts, which makes it anew", Name)
		}
		return clusterRecord{}, fmt.Errorf("%s: %s/%s: %w%s", d.storage.source, Name, ClusterFile, err, help)
	}
	return rec, nil
}

// HasCluster reports whether there may be a cluster.
func (s *storage) HasCluster() bool { return !errors.Is(s.statCluster(), unix.ENOENT) }

// Gone reports whether no cluster is there, nor any view. What a storage that does
// not answer, or a missing right, keeps from being seen is not gone.
func (f *founder) Gone() (bool, error) {
	err := f.statCluster()
	if err == nil {
		return false, nil
	}
	if !errors.Is(err, unix.ENOENT) {
		return false, f.wrap("stat", Name+"/"+ClusterFile, err)
	}
	dir, err := f.open(viewsDir)
	if errors.Is(err, unix.ENOENT) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer dir.Close()
	gone := true
	err = dir.names(func(name string) {
		_, view := member.ParseViewName(name)
		gone = gone && !view
	})
	return gone, err
}
