package register

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// Link writes a view to a file of its own, in full, and links that to the name
// of the view, which only one can make; see [Register].
//
// The source of the link stays until a look shows a view of its epoch: the
// machine tries the same link until it knows the outcome. It is written once.
// After an error it may be the view itself, by its second name, so it must
// not be written again.
func (vs *views) Link(v *member.View, file []byte) error {
	dir, err := vs.open(viewsDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	vs.room.sawView(len(file))
	temp := fmt.Sprintf("%s%s-%s", newPrefix, v.By.Peer, v.Nonce)
	if _, written := vs.sources.Load(temp); !written {
		mode, err := vs.fileMode()
		if err != nil {
			return err
		}
		if err := vs.room.writeView(dir, temp, file, mode); err != nil {
			return err
		}
		vs.sources.Store(temp, v.Epoch)
	}
	name := member.ViewName(v.Epoch)
	switch err := vs.room.linkView(dir, temp, name); {
	case err == nil:
	case errors.Is(err, unix.EEXIST):
		return fmt.Errorf("%s: link %s/%s: %w", vs.source, viewsDir, name, member.ErrExists)
	case errors.Is(err, unix.ENOENT): // somebody removed the source
		vs.sources.Delete(temp)
		fallthrough
	default:
		return vs.wrap("link", viewsDir+"/"+name, err)
	}
	vs.sources.remove(dir, temp)
	return dir.syncNames()
}

// sources are the files of which links of views are made, written in full:
// epochs, by name.
type sources struct{ sync.Map }

// remove removes one. A file that stays is removed by Prune, in a day.
func (s *sources) remove(dir directory, name string) {
	if dir.remove(name) == nil {
		s.Delete(name)
	}
}

// removeTo removes those whose outcome a look has shown, with newest.
func (s *sources) removeTo(dir directory, newest locks.Epoch) {
	s.Range(func(name, e any) bool {
		if e.(locks.Epoch) <= newest {
			s.remove(dir, name.(string))
		}
		return true
	})
}
