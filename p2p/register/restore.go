package register

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/again"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// Lost is a cluster whose directory was removed, as a former member knows it.
type Lost struct {
	Cluster    string // its ID
	Secret     []byte
	Generation uint64 // of Secret
	Stored     bool   // the secret was on the storage
	View       *member.View
}

// ErrThere is returned by [Dir.Restore] if the directory has a cluster by now, by
// another node perhaps: nothing was written.
var ErrThere = errors.New("a cluster is there")

// restorer makes the directory of a cluster that has lost it.
type restorer struct{ *storage }

// Restore makes the directory of a cluster anew, whole or not at all. Of several
// nodes that do so at the same time one succeeds, and the others are told
// [ErrThere].
func (r *restorer) Restore(l Lost) error {
	if r.HasCluster() {
		return r.there()
	}
	// It is made elsewhere, and gets its name when it is complete: a directory
	// takes the place of none that has anything in it.
	aside := fmt.Sprintf("%s-restore-%s", Name, r.session)
	mode, err := r.dirMode()
	if err != nil {
		return err
	}
	if err := again.Call(func() error { return unix.Mkdirat(r.root, aside, mode&0o777) }); err != nil {
		return r.wrap("make", aside, err)
	}
	defer r.removeAside(aside)
	// The umask took bits away; the modes of what is made in it go by them.
	if err := again.Call(func() error { return unix.Fchmodat(r.root, aside, mode, 0) }); err != nil {
		return r.wrap("chmod", aside, err)
	}
	root, err := r.open(aside)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := NewDir(root.File, r.source+"/"+aside, r.peer).fill(l); err != nil {
		return err
	}
	err = again.Call(func() error { return unix.Renameat(root.fd(), Name, r.root, Name) })
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		if r.HasCluster() {
			return r.there()
		}
		if err := r.clearLeft(); err != nil {
			return err
		}
		err = again.Call(func() error { return unix.Renameat(root.fd(), Name, r.root, Name) })
	}
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		if r.HasCluster() {
			return r.there()
		}
		return fmt.Errorf("%s: %s is there, without a cluster in it: remove it (rm -r %s/%s), and give the order again", r.source, Name, r.source, Name)
	}
	if err != nil {
		return r.wrap("rename", Name, err)
	}
	return r.syncRoot()
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
		if err := d.linkGeneration(Generation{Number: l.Generation, Fingerprint: Fingerprint(l.Secret)}); err != nil {
			return err
		}
	}
	dir, err := d.open(Name)
	if err != nil {
		return err
	}
	defer dir.Close()
	if l.Stored && l.Generation == 0 {
		if _, err := dir.linkNew(secretFile, append(l.Secret[:len(l.Secret):len(l.Secret)], '\n'), 0o600); err != nil {
			return err
		}
	}
	mode, err := d.fileMode()
	if err != nil {
		return err
	}
	rec := clusterRecord{Format: clusterFormat, Cluster: l.Cluster, Secret: Fingerprint(l.Secret), Made: time.Now().UTC().Format(time.RFC3339)}
	_, err = dir.linkNew(ClusterFile, encodeCluster(rec), mode)
	return err
}

// removeAside removes what Restore has made and not moved to its place.
func (r *restorer) removeAside(name string) {
	for _, path := range []string{"/" + viewsDir, "/" + peersDir, "/" + secretsDir, "/" + Name, ""} {
		dir, err := r.open(name + path)
		if err != nil {
			continue // moved, or never made
		}
		if path != "" {
			_ = dir.names(func(file string) { dir.unlink(file) })
		}
		dir.Close()
		unix.Unlinkat(r.root, name+path, unix.AT_REMOVEDIR)
	}
}

// clearLeft removes what members have written while somebody removed the rest:
// records of peers, room, and what has not become a view. Anything else stays, and
// then all does.
//
// It does so in the directory that has the name when it begins, wherever that goes:
// one that another node puts in its place is not touched. Only what is empty goes,
// so a cluster that is just being founded there is whole or is not founded.
func (r *restorer) clearLeft() error {
	top, err := r.open(Name)
	if err != nil {
		return err
	}
	defer top.Close()
	whatever := func(string) bool { return true }
	left := map[string]func(name string) bool{
		filepath.Base(peersDir): whatever, filepath.Base(roomDir): whatever,
		filepath.Base(viewsDir): func(name string) bool {
			return isTemp(name) || strings.HasPrefix(name, askPrefix) || strings.HasPrefix(name, answerPrefix)
		},
	}
	known := true
	if err := top.names(func(name string) { known = known && left[name] != nil }); err != nil || !known {
		return err
	}
	var all []directory
	for name, is := range left {
		f, err := openAt(top.fd(), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return top.wrap("open", name, err)
		}
		dir := directory{f, r.storage}
		defer dir.Close()
		all = append(all, dir)
		if err := dir.names(func(file string) { known = known && is(file) }); err != nil || !known {
			return err
		}
	}
	for _, dir := range all {
		name := dir.Name()
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if err := dir.names(func(file string) {
			if left[name](file) {
				dir.unlink(file)
			}
		}); err != nil {
			return err
		}
		_ = unix.Unlinkat(top.fd(), name, unix.AT_REMOVEDIR) // what keeps it there keeps all
	}
	return nil
}

// syncRoot makes the names in the shared directory durable.
func (r *restorer) syncRoot() error {
	dir, err := r.open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.syncNames()
}

func (r *restorer) there() error {
	return fmt.Errorf("%s: %w: %s/%s is there", r.source, ErrThere, Name, ClusterFile)
}
