package register

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/p2p/member"
)

// A machine can be cloned with all that runs on it: a snapshot with its memory is
// resumed twice. Both daemons are one member then, in one incarnation, and no view
// and no message tells them apart. So a member writes a mark again and again, a
// new random number each time. Who finds one of its own incarnation that it has
// not written is not the only one.

// markSuffix is that of the name of a mark, after the peer ID; no peer ID has it.
const markSuffix = ".mark"

// ErrCloned: another process is this member, too.
var ErrCloned = errors.New("another process is this member, too")

// Marker writes the marks of a member.
type Marker struct {
	*storage
	inc member.Inc
	own []string // the last ones that it wrote, or tried to
}

// NewMarker makes the marker of the node whose register d is.
func (d *Dir) NewMarker() *Marker { return &Marker{storage: d.storage} }

// ownMarks is how many of its marks a marker knows again: what is read may be old.
const ownMarks = 1024

// Renew writes a mark of the member with this incarnation. If the error is
// [ErrCloned] there is one of another process, and nothing was written: of two
// that renew their marks one at most gets no such error. Any other error says
// nothing about clones.
func (k *Marker) Renew(inc member.Inc) error {
	if k.inc != inc {
		k.inc, k.own = inc, nil
	}
	name := k.peer + markSuffix
	dir, err := k.open(peersDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	b, err := dir.read(name, 1<<10)
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if of, mark, ok := strings.Cut(strings.TrimSuffix(string(b), "\n"), " "); ok && of == inc.String() && len(mark) == markSize && !slices.Contains(k.own, mark) {
		return fmt.Errorf("%s: %w: %s/%s", k.source, ErrCloned, peersDir, name)
	}
	fresh := make([]byte, markSize/2)
	rand.Read(fresh)
	mark := hex.EncodeToString(fresh)
	// Whatever becomes of it: it may be written late.
	k.own = append(k.own, mark)
	k.own = k.own[max(len(k.own)-ownMarks, 0):]
	mode, err := k.fileMode()
	if err != nil {
		return err
	}
	// In its place, and always as long as before: nothing is left behind.
	f, err := dir.openFile(name, unix.O_WRONLY|unix.O_CREAT|unix.O_NONBLOCK, mode)
	if err != nil {
		return dir.wrap("open", name, err)
	}
	if err := k.finish(f, []byte(inc.String()+" "+mark+"\n"), mode); err != nil {
		return dir.wrap("write", name, err)
	}
	return nil
}

// markSize is the length of a mark, in hexadecimal digits.
const markSize = 32
