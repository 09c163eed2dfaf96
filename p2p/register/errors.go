package register

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/again"
)

// Errors of the storage that no waiting mends. They come wrapped, with what is
// to be done.
var (
	// ErrNoLink: the storage has no link(2) that fails if the name exists.
	ErrNoLink = errors.New("no hard links")
	// ErrUnusable: the storage does not make files or directories.
	ErrUnusable = errors.New("unusable")
	// ErrReadOnly: the storage is mounted read-only.
	ErrReadOnly = errors.New("read-only")
	// ErrPermission: this user may not write there.
	ErrPermission = errors.New("permission denied")
	// ErrFull: there is no room, or the quota is used up.
	ErrFull = errors.New("no space left")
	// ErrSecret: the cluster has another secret, or none is known here.
	ErrSecret = errors.New("wrong secret")
	// ErrFormat: a newer dmxfs made the cluster.
	ErrFormat = errors.New("made by a newer dmxfs")
	// ErrNoCluster: there is no cluster, and none is to be founded.
	ErrNoCluster = errors.New("no cluster")
	// ErrOtherCluster: it is not the one that this node was in.
	ErrOtherCluster = errors.New("another cluster")
	// ErrDamaged: files of the cluster are missing or damaged.
	ErrDamaged = errors.New("damaged")
)

// wrap names what failed, where, and, as far as the error tells, what to do.
func (s *storage) wrap(what, path string, err error) error {
	var kind error
	hint := ""
	switch {
	case errors.Is(err, unix.EROFS):
		kind, hint = ErrReadOnly, "dmxfs writes its views there: mount the shared directory read-write"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		kind, hint = ErrPermission, "dmxfs needs to write there: check owner and mode, and how the server maps root (root_squash)"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		kind, hint = ErrFull, "make room: dmxfs cannot change its membership without"
	}
	if kind == nil {
		return fmt.Errorf("%s: %s %s: %w", s.source, what, path, err)
	}
	return &storageError{text: fmt.Sprintf("%s: %s %s: %v; %s", s.source, what, path, err, hint), kind: kind, err: err}
}

// storageError is both the kind and the error number.
type storageError struct {
	text      string
	kind, err error
}

func (e *storageError) Error() string   { return e.text }
func (e *storageError) Unwrap() []error { return []error{e.kind, e.err} }

// noLink explains the error of a link.
func (s *storage) noLink(err error) error {
	for _, e := range []unix.Errno{unix.EPERM, unix.ENOSYS, unix.EOPNOTSUPP, unix.EMLINK, unix.EXDEV, unix.EINVAL} {
		if errors.Is(err, e) {
			return s.noLinks(s.fsName(), err)
		}
	}
	return s.wrap("link", viewsDir, err)
}

// noLinks is the error of storage without hard links; kind is what it is, in
// brackets.
func (s *storage) noLinks(kind string, err error) error {
	return &storageError{kind: ErrNoLink, err: err, text: fmt.Sprintf(
		"%s: this storage%s makes no hard links (link: %v); dmxfs decides by a link which hosts go on when some do not answer, so it cannot work here: "+
			"share the files by a storage that has them (NFS 4, CephFS, GlusterFS, MooseFS, sshfs)",
		s.source, kind, err)}
}

// fsName is the type of the storage in brackets, as far as it is known.
func (s *storage) fsName() string {
	var st unix.Statfs_t
	if err := again.Call(func() error { return unix.Fstatfs(s.root, &st) }); err != nil {
		return ""
	}
	if name := fsTypes[int64(st.Type)]; name != "" {
		return " (" + name + ")"
	}
	return fmt.Sprintf(" (file system type %#x)", st.Type)
}

var fsTypes = map[int64]string{
	unix.NFS_SUPER_MAGIC:       "NFS",
	unix.FUSE_SUPER_MAGIC:      "FUSE",
	unix.SMB2_SUPER_MAGIC:      "SMB",
	unix.CIFS_SUPER_MAGIC:      "SMB",
	unix.MSDOS_SUPER_MAGIC:     "FAT",
	unix.EXFAT_SUPER_MAGIC:     "exFAT",
	unix.CEPH_SUPER_MAGIC:      "CephFS",
	unix.OCFS2_SUPER_MAGIC:     "OCFS2",
	unix.EXT4_SUPER_MAGIC:      "ext4",
	unix.XFS_SUPER_MAGIC:       "XFS",
	unix.BTRFS_SUPER_MAGIC:     "btrfs",
	unix.TMPFS_MAGIC:           "tmpfs",
	unix.V9FS_MAGIC:            "9p",
	unix.OVERLAYFS_SUPER_MAGIC: "overlayfs",
}
