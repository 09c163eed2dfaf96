package register

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/p2p/member"
)

// Where several servers have a part of the names each (GlusterFS, distributed), a
// listing leaves out those of a server that is down, and no error tells. Such a name
// is not seen, which is something else than not there: a view that cannot be seen
// has not been removed, and its number not been forgotten.
//
// Who asks for the name gets an error if another server knows where the file is, and
// else ENOENT, too. But no file can be made under a name that would be kept by a
// server that is down. The name itself is not tried: a process that is killed may
// leave what it has made there, which would be taken for the file that was looked for.
// Names beside it are, see besideName.

// besideTries is how many names are tried of which nobody knows who keeps them: a
// look that fails now and then is enough to show that what is missing is not seen.
const besideTries = 3

// seeLinked looks for the newest view that is known to be linked where the listing
// shows none as new; see member.LookOp.Linked. The error is that it cannot be seen.
func (vs *views) seeLinked(dir directory, op member.LookOp, l *member.Look) error {
	if l.Newest >= op.Linked {
		return nil
	}
	there, err := dir.has(member.ViewName(op.Linked))
	l.Hidden = there
	return err
}

// has reports whether a name is there. That it is not is said only if it would be
// seen, as far as that can be told.
func (d directory) has(name string) (bool, error) {
	_, err := d.stat(name)
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, unix.ENOENT) {
		return false, d.wrap("stat", name, err)
	}
	return false, d.unseen(name)
}

// unseen is an error if a name that is not found is that of a server that is down,
// perhaps. Storage that is full, or read-only, says nothing of that.
func (d directory) unseen(name string) error {
	tries := []string{d.besideName(name)}
	for range besideTries {
		tries = append(tries, d.storage.tempName("beside"))
	}
	for _, try := range tries {
		f, err := d.openFile(try, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
		if err == nil {
			f.Close()
			d.remove(try)
			continue
		}
		if isAway(err) {
			return fmt.Errorf("%s: %s/%s is not found, but may be on a part of the storage that does not answer: create %s: %w", d.storage.source, d.Name(), name, try, err)
		}
	}
	return nil
}

// besideName is the name of a temporary file that GlusterFS keeps where it keeps name.
// It takes .NAME.suffix for what rsync writes before it is called NAME.
func (d directory) besideName(name string) string {
	return "." + name + "." + d.storage.tempName("beside")
}

// isTemp reports whether a name is that of a temporary file.
func isTemp(name string) bool {
	return strings.HasPrefix(name, newPrefix) || strings.HasPrefix(name, ".") && strings.Contains(name, "."+newPrefix)
}

// isAway reports an error of storage that does not answer, or a part of which does not.
func isAway(err error) bool {
	return errors.Is(err, unix.EIO) || isErrno(err, ofTheMoment) && !isFull(err)
}
