package register

import (
	"crypto/rand"
	"encoding/hex"
	"os"

	"github.com/dmxfs/dmxfs/internal/writegate"
)

// Dir is a [Register] in a directory, and what else a node keeps there. Init
// comes first. The methods of Register are for one goroutine; those for peer
// records may be called by any.
type Dir struct {
	*storage
	*trials
	*founder
	*secrets
	*views
	*asks
	*records
	*pruner
	*restorer
}

var _ Register = (*Dir)(nil)

// WriteThrough has all that is written from now on pass g. It is called before
// anything else.
func (d *Dir) WriteThrough(g *writegate.Gate) { d.storage.writes = g }

// NewDir is the register below root, which stays the caller's, and must stay
// open. Source is the name of root for people; peer is this node's.
func NewDir(root *os.File, source, peer string) *Dir {
	session := make([]byte, 6)
	rand.Read(session)
	s := &storage{root: int(root.Fd()), source: source, peer: peer, session: hex.EncodeToString(session), link: linkIn, stat: statIn, openFile: openAt}
	d := &Dir{storage: s, trials: &trials{s}, secrets: &secrets{s}, asks: &asks{s}}
	room := &room{storage: s}
	d.records = &records{s, room}
	d.views = &views{storage: s, room: room}
	d.pruner = &pruner{s, room}
	d.founder = &founder{storage: s, trials: d.trials, secrets: d.secrets, views: d.views, room: room}
	d.restorer = &restorer{s}
	return d
}
