package fusefs

import (
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// A node is held on to by an O_PATH descriptor, its anchor. The kernel forgets
// files only when it is short of memory, so there can be more nodes than
// descriptors. Then anchors of nodes that were not used lately are closed (weighed),
// and opened again when they are: by the name of the node, which must still lead
// to the same file. Open files, and files without a name, keep their anchors.
//
// While its anchor is weighed, a file that is removed by another host can have
// its inode number given to the next one. To locks and caches both are one
// file then, as they are to an NFS client.

// anchors are the descriptors of nodes, beside the root's. Guarded by tree.mu.
type anchors struct {
	most  int
	nodes []*node // that have one
	hand  int     // where to look for the next one to weigh
	done  int64   // how many were weighed
	// weighed are descriptors that nobody uses any more: closed by who lets go
	// of tree.mu, see tree.unlock.
	weighed []int
}

// weighBatch is how many anchors are dropped in one go, and weighSteps how many
// are looked at for that, because all requests, and the engine, wait meanwhile.
const (
	weighBatch = 64
	weighSteps = 1024
)

// unlock lets go of mu, and closes what was weighed under it: the last descriptor
// of a file that was removed can take as long as a disk takes.
func (t *tree) unlock() {
	fds := t.anchors.weighed
	t.anchors.weighed = nil
	t.mu.Unlock()
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// REQUIRES: mu held, and given up by unlock.
func (t *tree) closeLater(fd int) {
	if !t.closings.isLeft() {
		t.anchors.weighed = append(t.anchors.weighed, fd)
	}
}

// REQUIRES: mu held, and given up by unlock; n has none.
func (t *tree) setAnchor(n *node, fd int) {
	n.fd, n.slot, n.used = fd, len(t.anchors.nodes), true
	t.ledger.note(t, n)
	t.anchors.nodes = append(t.anchors.nodes, n)
	if most := t.anchors.most; len(t.anchors.nodes) > most {
		t.weigh(min(1+most/8, weighBatch))
	}
}

// dropAnchor gives up n's anchor, by closing it or handing it to somebody who
// does. REQUIRES: mu held.
func (t *tree) dropAnchor(n *node, closeFD func(int)) {
	if n.fd < 0 {
		return
	}
	fd := n.fd
	n.fd = -1
	t.ledger.note(t, n) // before another file gets its number
	closeFD(fd)
	a := &t.anchors
	last := a.nodes[len(a.nodes)-1]
	a.nodes[n.slot], last.slot = last, n.slot
	a.nodes[len(a.nodes)-1] = nil
	a.nodes = a.nodes[:len(a.nodes)-1]
}

// weigh drops up to n anchors that were not used since the hand came by last,
// and returns how many. Where it looks at weighSteps it goes on the next time.
// REQUIRES: mu held, and given up by unlock.
func (t *tree) weigh(n int) (done int) {
	a := &t.anchors
	for steps := min(2*len(a.nodes), weighSteps); steps > 0 && done < n; steps-- {
		if a.hand >= len(a.nodes) {
			a.hand = 0
		}
		x := a.nodes[a.hand]
		if x.used || x.pins > 0 || len(x.names) == 0 {
			x.used = false
			a.hand++
			continue
		}
		t.dropAnchor(x, t.closeLater) // which puts another one here
		done++
		a.done++
	}
	return done
}

// finder finds the files that requests are about: by the number of a node, or by
// a name on the storage.
type finder struct {
	*base
	descriptors *descriptors
	actor       *actor
	private     *private
	client      *client
}

// node finds the node that a request is about. It has an anchor, and is pinned
// until the caller unpins it.
func (fr *finder) node(in *fuse.InHeader) (*node, fuse.Status) { return fr.nodeOf(in, in.NodeId) }

// nodeOf is node for another number that the request has.
func (fr *finder) nodeOf(in *fuse.InHeader, id uint64) (*node, fuse.Status) {
	t := fr.tree
	t.mu.Lock()
	n := t.byID[id]
	if n == nil {
		t.mu.Unlock()
		return nil, errStale
	}
	n.pins++
	n.used = true
	anchored := n.fd >= 0
	t.mu.Unlock()
	if !anchored {
		if err := fr.anchorAgain(in, n); err != nil {
			t.unpin(n)
			return nil, status(err)
		}
	}
	return n, fuse.OK
}

// anchorAgain gives a node that is pinned its anchor back. It answers ESTALE
// when none of its names leads to it any more.
func (fr *finder) anchorAgain(in *fuse.InHeader, n *node) error {
	t := fr.tree
	t.mu.Lock()
	anchored := n.fd >= 0
	t.mu.Unlock()
	if anchored {
		return nil
	}
	err := error(unix.ESTALE)
	for _, l := range t.namesOf(n) {
		if err != nil {
			err = fr.anchorBy(in, n, l)
		}
		t.unpin(l.dir)
	}
	if err == unix.ENOENT || err == unix.ENOTDIR {
		err = unix.ESTALE
	}
	return err
}

// anchorBy opens the anchor of n by one of its names, whose directory is pinned.
func (fr *finder) anchorBy(in *fuse.InHeader, n *node, l dirName) error {
	if err := fr.anchorAgain(in, l.dir); err != nil {
		return err
	}
	fd, err := fr.openPath(in, l.dir.fd, l.name)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil && (keyOf(&st) != n.key || st.Mode&unix.S_IFMT != n.kind) {
		err = unix.ESTALE
	}
	if err != nil {
		unix.Close(fd)
		return err
	}
	t := fr.tree
	t.mu.Lock()
	defer t.unlock()
	if n.fd >= 0 { // another request was faster
		t.closeLater(fd)
	} else {
		t.setAnchor(n, fd)
	}
	return nil
}

// staleAnchor reports whether the file of a node is gone from a remote
// storage, which may then use its inode number again. On a local file system
// the anchor keeps that from happening.
func (fr *finder) staleAnchor(n *node) bool {
	fr.tree.pin(n)
	defer fr.tree.unpin(n)
	fd := fr.tree.anchorOf(n)
	var st unix.Stat_t
	return fd >= 0 && unix.Fstat(fd, &st) == unix.ESTALE
}

// openPath opens a name without following it and without permissions to do
// anything: an anchor of the file.
func (fr *finder) openPath(in *fuse.InHeader, dir int, name string) (int, error) {
	return fr.descriptors.withReserve(func() (fd int, err error) {
		err = fr.actor.allowed(in, func() (err error) {
			fd, err = unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			return err
		})
		return fd, err
	})
}
