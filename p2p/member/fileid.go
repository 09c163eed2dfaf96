package member

import "fmt"

// FileIDPath is the [Config.FileID] of nodes that tell files apart by path.
const FileIDPath = "path"

// fileID is what this node tells files apart by, if it joins on top of v. Once
// it has joined it cannot change: programs hold locks by those names.
func (m *Machine) fileID(v *View) string {
	if m.cfg.TakesPath && !m.joined && v.FileID == FileIDPath {
		return FileIDPath
	}
	return m.cfg.FileID
}

// agrees reports whether a node with this answer can be in v. Where v says
// nothing a former version made it.
func (v *View) agrees(fileID string) bool { return v.FileID == "" || v.FileID == fileID }

// bringFileID makes w, in which this node joins, a view with its kind of file
// IDs, if nobody else is in it.
func (m *Machine) bringFileID(w *View) {
	if mine := m.fileID(w); w.FileID == "" || m.alone(w) {
		w.FileID = mine
	}
}

// fixFileID ends the choice that Config.TakesPath leaves: w is the first view
// of this process.
func (m *Machine) fixFileID(w *View) { m.cfg.FileID = m.fileID(w) }

// fileIDCode is how a node ends whose cluster tells files apart by something else.
// One that was a member did so as well: since then the directory of the cluster was
// made anew, and what counts now is for a new process to see.
func (m *Machine) fileIDCode() EndCode {
	if m.joined {
		return EndLost
	}
	return EndFileID
}

const allByPath = "to have all tell files apart by path, unmount the cluster on all hosts, and mount it with --file-id=path on the first one"

// fileIDText says what makes a node agree with its cluster.
func fileIDText(cluster, mine string) string {
	switch {
	case cluster == FileIDPath:
		return fmt.Sprintf("one file would be two here and there: the cluster tells files apart by path, this node by %s; mount with --file-id=path, or without --file-id", mine)
	case mine == FileIDPath:
		return fmt.Sprintf("one file would be two here and there: the cluster tells files apart by their inode numbers, this node by path, as its --file-id says or because its storage is not known to show all hosts the same numbers; "+
			"if it does, mount with --file-id=inode; %s", allByPath)
	}
	return fmt.Sprintf("one file would be two here and there: the storage shows this host other inode numbers than the cluster has (.dmxfs/cluster is %s here, %s there), or other storage is mounted here; %s", mine, cluster, allByPath)
}
