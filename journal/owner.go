package journal

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// ClusterOf is the cluster whose journal is in a directory; empty if none is,
// or none that can be understood.
func ClusterOf(path string) (string, error) {
	b, err := os.ReadFile(filepath.Join(path, identityFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var id identity
	if err == nil && json.Unmarshal(b, &id) != nil {
		return "", nil // Open says what is wrong
	}
	return id.Cluster, err
}
