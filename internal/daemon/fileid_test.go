package daemon

import (
	"testing"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/p2p/member"
)

func TestFileIDsOfAView(t *testing.T) {
	t.Parallel()
	inode := fileID{name: "inode 7", open: true}
	for _, c := range []struct {
		own  fileID
		view *member.View
		want fusefs.FileIDs
	}{
		{inode, nil, fusefs.FileIDInode},
		{inode, &member.View{}, fusefs.FileIDInode},
		{inode, &member.View{FileID: member.FileIDPath}, fusefs.FileIDPath},
		{fileID{name: member.FileIDPath}, nil, fusefs.FileIDPath},
	} {
		if got := c.own.in(c.view); got != c.want {
			t.Errorf("%+v in %+v: %v, want %v", c.own, c.view, got, c.want)
		}
	}
}

func TestFileIDOf(t *testing.T) {
	stable, other := fusefs.Storage{StableInodes: true}, fusefs.Storage{}
	for _, x := range []struct {
		option string
		s      fusefs.Storage
		folds  bool
		want   fileID
	}{
		{"auto", stable, true, fileID{"inode 7", false}},
		{"auto", stable, false, fileID{"inode 7", true}}, {"auto", other, false, fileID{"path", false}},
		{"inode", stable, false, fileID{"inode 7", false}}, {"inode", other, false, fileID{"inode 7", false}},
		{"path", stable, false, fileID{"path", false}}, {"path", other, false, fileID{"path", false}},
	} {
		if got := fileIDOf(x.option, x.s, 7, x.folds); got != x.want {
			t.Errorf("%s, stable inodes %v: %+v, want %+v", x.option, x.s.StableInodes, got, x.want)
		}
	}
}
