package register

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/p2p/member"
)

const (
	maxRecord  = 64 << 10
	maxRecords = 4096 // of one reading
)

// records are the address records of the peers.
type records struct {
	*storage
	room *room
}

// WriteRecord keeps this node's signed address record where others find it. It
// should be written again whenever it changes, and once a day: records that are
// a month old are removed.
func (r *records) WriteRecord(record []byte) error {
	if len(record) > maxRecord {
		return fmt.Errorf("%s: a peer record of %d bytes is over %d", r.source, len(record), maxRecord)
	}
	if err := r.replaceIn(peersDir, r.peer, record); err != nil {
		return err
	}
	// Room that was used up is made up for though there is no new view, and so
	// no Prune, which would tell what fails here.
	_ = r.room.fill()
	return nil
}

// Record is the record of one peer; nil if there is none.
func (r *records) Record(peer string) ([]byte, error) {
	if !member.ValidPeer(peer) {
		return nil, fmt.Errorf("%q is not a peer ID", peer)
	}
	dir, err := r.open(peersDir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	b, err := dir.read(peer, maxRecord)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return b, err
}

// Records are the records of all peers, this one included, by peer. What they
// say is not checked here. A record that cannot be read is left out.
func (r *records) Records() (map[string][]byte, error) {
	dir, err := r.open(peersDir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var peers []string
	err = dir.names(func(name string) {
		if member.ValidPeer(name) && len(peers) < maxRecords {
			peers = append(peers, name)
		}
	})
	records := make(map[string][]byte, len(peers))
	for _, p := range peers {
		if b, err := dir.read(p, maxRecord); err == nil {
			records[p] = b
		}
	}
	return records, err
}

// Recorded are the peers that have a record, this one among them: all that have ever been
// members, but for those that have left in good order, and those of whom nothing was heard for
// a month.
func (r *records) Recorded() ([]string, error) {
	dir, err := r.open(peersDir)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var peers []string
	err = dir.names(func(name string) {
		if member.ValidPeer(name) {
			peers = append(peers, name)
		}
	})
	return peers, err
}

// Forget removes the record of another peer, which will never come back as it was.
func (r *records) Forget(peer string) error {
	if !member.ValidPeer(peer) {
		return fmt.Errorf("%q is not a peer ID", peer)
	}
	dir, err := r.open(peersDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.remove(peer)
}

// RemoveRecord removes this node's record: it has left in good order, and changes nothing any
// more.
func (r *records) RemoveRecord() error {
	dir, err := r.open(peersDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.removeOwn(r.peer)
}
