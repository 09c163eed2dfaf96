package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"

	"github.com/dmxfs/dmxfs/internal/statedir"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// memory is what a node keeps of its membership in the state directory.
type memory struct {
	state   *statedir.Dir
	cluster string    // its ID
	stored  bool      // the secret is on the storage
	marks   rootMarks // of the shared directory
	log     *slog.Logger
}

// saved is the file member.json.
type saved struct {
	member.Saved
	Cluster string `json:"cluster"`
}

// loadSaved reads what the membership wants to survive the process.
func (k *memory) loadSaved() member.Saved {
	var s saved
	b, err := os.ReadFile(k.state.File("member.json"))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.log.Warn("what was kept of the last membership cannot be read", "err", err)
	}
	if s.Cluster != "" && s.Cluster != k.cluster {
		return member.Saved{} // it was another one
	}
	return s.Saved
}

func (k *memory) save(s member.Saved) error {
	b, err := json.Marshal(saved{s, k.cluster})
	if err != nil {
		return err
	}
	tmp := k.state.File("member.json.new")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, k.state.File("member.json"))
}

// keepView keeps a view that this node is in.
func (k *memory) keepView(v *member.View) {
	b, err := member.EncodeView(v)
	if err == nil {
		b, err = json.Marshal(keptView{k.cluster, k.stored, k.marks, string(b)})
	}
	tmp := k.state.File(keptViewFile + ".new")
	if err == nil {
		err = os.WriteFile(tmp, b, 0o600)
	}
	if err == nil {
		err = os.Rename(tmp, k.state.File(keptViewFile))
	}
	if err != nil {
		k.log.Debug("the view cannot be kept in the state directory", "err", err) // one that is older will do
	}
}
