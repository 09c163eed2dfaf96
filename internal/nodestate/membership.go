package nodestate

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"

	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// Membership keeps what a node has to know of its membership when it starts anew. It is
// of one cluster: what is kept of another one is as nothing.
type Membership struct {
	State   *statedir.Dir
	Cluster string // its ID
	Stored  bool   // the secret is on the storage
	Marks   Marks  // of the shared directory
	Log     *slog.Logger
}

// saved is the file member.json.
type saved struct {
	member.Saved
	Cluster string `json:"cluster"`
}

// Load reads what the membership wants to survive the process.
func (k *Membership) Load() member.Saved {
	var s saved
	b, err := os.ReadFile(k.State.File("member.json"))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.Log.Warn("what was kept of the last membership cannot be read", "err", err)
	}
	if s.Cluster != "" && s.Cluster != k.Cluster {
		return member.Saved{} // it was another one
	}
	return s.Saved
}

// Save keeps that. It replaces what was kept before, or changes nothing.
func (k *Membership) Save(s member.Saved) error {
	b, err := json.Marshal(saved{s, k.Cluster})
	if err != nil {
		return err
	}
	tmp := k.State.File("member.json.new")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, k.State.File("member.json"))
}

// KeepView keeps a view that this node is in. If that fails the one before stays, which
// will do.
func (k *Membership) KeepView(v *member.View) {
	b, err := member.EncodeView(v)
	if err == nil {
		b, err = json.Marshal(View{k.Cluster, k.Stored, k.Marks, string(b)})
	}
	tmp := k.State.File(viewFile + ".new")
	if err == nil {
		err = os.WriteFile(tmp, b, 0o600)
	}
	if err == nil {
		err = os.Rename(tmp, k.State.File(viewFile))
	}
	if err != nil {
		k.Log.Debug("the view cannot be kept in the state directory", "err", err) // one that is older will do
	}
}
