package nodestate

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/p2p/member"
)

const viewFile = "view.json"

// View is what a state directory has of the last view: what it takes to make the directory
// of the cluster anew, if somebody removes that (dmxfs cluster restore), but for the secret
// (see [Secrets]).
type View struct {
	Cluster string `json:"cluster"`
	Stored  bool   `json:"secret_on_storage"`
	Root    Marks  `json:"root"`
	View    string `json:"view"` // as on the storage
}

// Marks tell the shared directory from the bare one on which the storage is
// not mounted.
type Marks struct {
	Type  int64  `json:"type"`
	Inode uint64 `json:"inode"`
}

// MarksOf are those of the directory that is open as root.
func MarksOf(root *os.File) (Marks, error) {
	var fs unix.Statfs_t
	var st unix.Stat_t
	err := errors.Join(unix.Fstatfs(int(root.Fd()), &fs), unix.Fstat(int(root.Fd()), &st))
	return Marks{int64(fs.Type), st.Ino}, err
}

// ReadView reads what [Membership.KeepView] has kept in a state directory.
func ReadView(state string) (k View, v *member.View, err error) {
	b, err := os.ReadFile(filepath.Join(state, viewFile))
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	if err == nil {
		v, err = member.ParseView([]byte(k.View), k.Cluster)
	}
	if err != nil {
		return k, nil, fmt.Errorf("what is known of the cluster in the state directory: %w", err)
	}
	return k, v, nil
}
