package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/p2p/member"
)

// A node keeps in its state directory what it takes to make the directory of its
// cluster anew, if somebody removes that: see restorecmd.go. The secret is in the
// file of secrets.

const keptViewFile = "view.json"

// keptView is the content of the file.
type keptView struct {
	Cluster string    `json:"cluster"`
	Stored  bool      `json:"secret_on_storage"`
	Root    rootMarks `json:"root"`
	View    string    `json:"view"` // as on the storage
}

// rootMarks tell the shared directory from the bare one on which the storage is
// not mounted.
type rootMarks struct {
	Type  int64  `json:"type"`
	Inode uint64 `json:"inode"`
}

func marksOf(root *os.File) (rootMarks, error) {
	var fs unix.Statfs_t
	var st unix.Stat_t
	err := errors.Join(unix.Fstatfs(int(root.Fd()), &fs), unix.Fstat(int(root.Fd()), &st))
	return rootMarks{int64(fs.Type), st.Ino}, err
}

// readKeptView reads what a daemon has kept.
func readKeptView(state string) (k keptView, v *member.View, err error) {
	b, err := os.ReadFile(filepath.Join(state, keptViewFile))
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
