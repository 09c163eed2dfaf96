package statedir

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/dmxfs/dmxfs/p2p/member"
)

// The incarnations of the nodes that had this state directory are in its file
// lives, one in a line, the newest last. Whoever holds the lock writes it. A
// member with an incarnation that is not there was never a daemon of this
// directory, whatever else it has in common with one: it may be a clone.

const (
	LivesFile = "lives"
	maxLives  = 64
)

// Lives are the incarnations that can be read; without them there is no proof of death,
// and the others wait longer.
func (s *Dir) Lives() []member.Inc {
	b, err := os.ReadFile(s.File(LivesFile))
	if err != nil {
		return nil
	}
	var list []member.Inc
	for line := range strings.Lines(string(b)) {
		var inc member.Inc
		if inc.UnmarshalText([]byte(strings.TrimSpace(line))) == nil {
			list = append(list, inc)
		}
	}
	return list
}

// AddLife adds an incarnation, the newest.
func (s *Dir) AddLife(inc member.Inc) error {
	list := append(s.Lives(), inc)
	return s.setLives(list[max(len(list)-maxLives, 0):])
}

// DropLife forgets an incarnation, which is no proof of a death from then on. Where
// there is no room for that, as on a full disk, all of them are forgotten: without
// proof the others only wait longer.
func (s *Dir) DropLife(inc member.Inc) error {
	err := s.setLives(slices.DeleteFunc(s.Lives(), func(x member.Inc) bool { return x == inc }))
	if err == nil {
		return nil
	}
	if gone := os.Remove(s.File(LivesFile)); gone == nil || errors.Is(gone, fs.ErrNotExist) {
		return nil
	}
	if os.Truncate(s.File(LivesFile), 0) == nil {
		return nil
	}
	return err
}

func (s *Dir) setLives(list []member.Inc) error {
	var b strings.Builder
	for _, x := range list {
		b.WriteString(x.String() + "\n")
	}
	tmp := s.File(LivesFile + ".new")
	if err := os.WriteFile(tmp, []byte(b.String()), 0o600); err != nil {
		if s.overwriteLives(b.String()) == nil {
			return nil
		}
		return err
	}
	return os.Rename(tmp, s.File(LivesFile))
}

// overwriteLives writes the file in its place: what fits into the block that it has
// is written on a full disk, too. Lines that are empty, or of which a part is missing
// because the machine died, name nobody.
func (s *Dir) overwriteLives(text string) error {
	f, err := os.OpenFile(s.File(LivesFile), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	text += strings.Repeat("\n", max(0, int(st.Size())-len(text)))
	_, err = f.WriteAt([]byte(text), 0)
	return err
}
