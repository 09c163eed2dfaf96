package register

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"dmxfs/p2p/member"
)

// Lost is a cluster whose directory was removed, as a former member knows it.
type Lost struct {
	Cluster    string // its ID
	Secret     []byte
	Generation uint64 // of Secret
	Stored     bool   // the secret was on the storage
	View       *member.View
}

// ErrThere: the cluster is there.
var ErrThere = errors.New("a cluster is there")

// Restore makes the directory of a cluster anew, whole or not at all. Of several
// nodes that do so at the same time one succeeds, and the others are told
// [ErrThere].
func (d *Dir) Restore(l Lost) error {
	if d.HasCluster() {
		return d.there()
	}
	// It is made elsewhere, and gets its name when it is complete: a directory
	// takes the place of none that has anything in it.
	aside := fmt.Sprintf("%s-restore-%s", Name, d.session)
	mode, err := d.dirMode()
	if err != nil {
		return err
	}
	if err := ignoringEINTR(func() error { return unix.Mkdirat(d.root, aside, mode&0o777) }); err != nil {
		return d.wrap("make", aside, err)
	}
	defer d.removeAside(aside)
	// The umask took bits away; the modes of what is made in it go by them.
	if err := ignoringEINTR(func() error { return unix.Fchmodat(d.root, aside, mode, 0) }); err != nil {
		return d.wrap("chmod", aside, err)
	}
	root, err := d.open(aside)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := NewDir(root, d.source+"/"+aside, d.peer).fill(l); err != nil {
		return err
	}
	err = ignoringEINTR(func() error { return unix.Renameat(int(root.Fd()), Name, d.root, Name) })
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		if d.HasCluster() {
			return d.there()
		}
		return fmt.Errorf("%s: %s is there, without a cluster in it: remove it (rm -r %s/%s), and give the order again", d.source, Name, d.source, Name)
	}
	if err != nil {
		return d.wrap("rename", Name, err)
	}
	return d.syncRoot()
}

// fill makes a cluster in a directory that nobody else knows of.
func (d *Dir) fill(l Lost) error {
	file, err := member.EncodeView(l.View)
	if err != nil {
		return err
	}
	if err := d.makeDirs(); err != nil {
		return err
	}
	if err := d.probe(); err != nil {
		return err
	}
	if err := d.Link(l.View, file); err != nil {
		return err
	}
	if l.Generation > 0 {
		if err := d.restoreGeneration(l); err != nil {
			return err
		}
	}
	dir, err := d.open(Name)
	if err != nil {
		return err
	}
	defer dir.Close()
	if l.Stored && l.Generation == 0 {
		if _, err := d.linkNew(dir, secretFile, append(l.Secret[:len(l.Secret):len(l.Secret)], '\n'), 0o600); err != nil {
			return err
		}
	}
	mode, err := d.fileMode()
	if err != nil {
		return err
	}
	rec := clusterRecord{Format: clusterFormat, Cluster: l.Cluster, Secret: Fingerprint(l.Secret), Made: time.Now().UTC().Format(time.RFC3339)}
	_, err = d.linkNew(dir, ClusterFile, encodeCluster(rec), uint32(mode))
	return err
}

// removeAside removes what Restore has made and not moved to its place.
func (d *Dir) removeAside(name string) {
	for _, path := range []string{"/" + viewsDir, "/" + peersDir, "/" + secretsDir, "/" + Name, ""} {
		dir, err := d.open(name + path)
		if err != nil {
			continue // moved, or never made
		}
		if path != "" {
			_ = d.names(dir, func(file string) { unix.Unlinkat(int(dir.Fd()), file, 0) })
		}
		dir.Close()
		unix.Unlinkat(d.root, name+path, unix.AT_REMOVEDIR)
	}
}

// syncRoot makes the names in the shared directory durable.
func (d *Dir) syncRoot() error {
	dir, err := d.open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	return d.syncDir(dir)
}

func (d *Dir) there() error {
	return fmt.Errorf("%s: %w: %s/%s is there", d.source, ErrThere, Name, ClusterFile)
}

// restoreGeneration makes the file of the secret that counts.
func (d *Dir) restoreGeneration(l Lost) error {
	return d.linkGeneration(Generation{Number: l.Generation, Fingerprint: Fingerprint(l.Secret), Made: time.Now().UTC().Format(time.RFC3339)})
}

// Gone reports whether no cluster is there, nor any view. What a storage that does
// not answer, or a missing right, keeps from being seen is not gone.
func (d *Dir) Gone() (bool, error) {
	var st unix.Stat_t
	err := ignoringEINTR(func() error { return unix.Fstatat(d.root, Name+"/"+ClusterFile, &st, unix.AT_SYMLINK_NOFOLLOW) })
	if err == nil {
		return false, nil
	}
	if !errors.Is(err, unix.ENOENT) {
		return false, d.wrap("stat", Name+"/"+ClusterFile, err)
	}
	dir, err := d.open(viewsDir)
	if errors.Is(err, unix.ENOENT) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer dir.Close()
	gone := true
	err = d.names(dir, func(name string) {
		_, view := member.ParseViewName(name)
		gone = gone && !view
	})
	return gone, err
}
