package member

import "fmt"

// FileIDPath is the [Config.FileID] of nodes that tell files apart by path.
const FileIDPath = "path"

// agrees reports whether a node with this answer can be in v. Where v says
// nothing a former version made it.
func (v *View) agrees(fileID string) bool { return v.FileID == "" || v.FileID == fileID }

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
