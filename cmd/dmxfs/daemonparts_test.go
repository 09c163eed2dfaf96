package main

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
