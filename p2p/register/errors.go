package register

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
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
func (d *Dir) wrap(what, path string, err error) error {
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
		return fmt.Errorf("%s: %s %s: %w", d.source, what, path, err)
	}
	return &storageError{text: fmt.Sprintf("%s: %s %s: %v; %s", d.source, what, path, err, hint), kind: kind, err: err}
}

// storageError is both the kind and the error number.
type storageError struct {
	text      string
	kind, err error
}

func (e *storageError) Error() string   { return e.text }
func (e *storageError) Unwrap() []error { return []error{e.kind, e.err} }
