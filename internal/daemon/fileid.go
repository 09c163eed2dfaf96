package daemon

import (
	"fmt"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// fileID is what this host would tell files apart by.
type fileID struct {
	name string // for the other members: path, or inode and what this host sees
	open bool   // path will do as well, if that is what the cluster has
}

// fileIDOf is the answer of --file-id on a storage. Two hosts that both go by
// inode numbers must see the same ones: inode is that of a file that both see.
// Folds: names that differ in case only are one file there.
func fileIDOf(option string, s fusefs.Storage, inode uint64, folds bool) fileID {
	byInode := fmt.Sprintf("inode %d", inode)
	switch kind := fusefs.FileIDs(option); {
	case kind == fusefs.FileIDInode:
		return fileID{name: byInode}
	case kind == fusefs.FileIDAuto && s.StableInodes:
		return fileID{name: byInode, open: !folds}
	}
	return fileID{name: member.FileIDPath}
}

// in is what the members of a view tell files apart by.
func (f fileID) in(v *member.View) fusefs.FileIDs {
	name := f.name
	if v != nil && v.FileID != "" {
		name = v.FileID
	}
	if name == member.FileIDPath {
		return fusefs.FileIDPath
	}
	return fusefs.FileIDInode
}
