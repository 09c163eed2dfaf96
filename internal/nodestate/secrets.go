package nodestate

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dmxfs/dmxfs/p2p/register"
)

const secretsFile = "secrets"

// Secret is one of them: it counts when the storage says so.
type Secret struct {
	Generation uint64 `json:"generation"`
	Secret     string `json:"secret"`
}

// Secrets are those that a state directory has: the secrets of the cluster that count, or
// may come to count.
type Secrets struct {
	Current Secret   `json:"current"`
	Next    []Secret `json:"next,omitempty"`
}

// ReadSecrets reads what a former daemon has kept; nothing if there is nothing.
func ReadSecrets(state string) (Secrets, error) {
	var k Secrets
	b, err := os.ReadFile(filepath.Join(state, secretsFile))
	if errors.Is(err, os.ErrNotExist) {
		return k, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	if err != nil {
		return Secrets{}, fmt.Errorf("the secrets in the state directory: %w", err)
	}
	return k, nil
}

// All are the secrets that may count.
func (k Secrets) All() [][]byte {
	var list [][]byte
	for _, n := range append([]Secret{k.Current}, k.Next...) {
		if n.Secret != "" {
			list = append(list, []byte(n.Secret))
		}
	}
	return list
}

// RefuseFormer is the error of a storage on which a secret counts that was given
// up before: it was restored, or made anew by a host that did not know better.
func (k Secrets) RefuseFormer(source string, c *register.Cluster) error {
	if k.Current.Generation <= c.Generation {
		return nil
	}
	return fmt.Errorf("%s: on the storage generation %d of the cluster's secret counts, and this host has %d: the storage was restored from a copy, or by a host that was away when the secret was changed; "+
		"whoever has the former secret, and peers that were revoked since, could come back. To go on with it mount with --restored on this host, and then change it (dmxfs secret rotate) and revoke again whom you do not want",
		source, c.Generation, k.Current.Generation)
}

// Write keeps k in a state directory. When it returns nil that is so whatever happens.
func (k Secrets) Write(state string) error {
	b, err := json.Marshal(k)
	if err != nil {
		return err
	}
	if err := writeWhole(filepath.Join(state, secretsFile), append(b, '\n')); err != nil {
		return fmt.Errorf("keep the secret in the state directory: %w", err)
	}
	return nil
}

// writeWhole gives a file new content, all at once and for good, which only its
// owner can read.
func writeWhole(file string, b []byte) error {
	tmp := file + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(tmp, file)
	}
	if err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
