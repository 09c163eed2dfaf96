package p2p

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/sys/unix"
)

// identityFile is the name of the key file in the state directory.
const identityFile = "identity.key"

// maxIdentity bounds what is read of a key file; an Ed25519 key in the libp2p
// form has 68 bytes.
const maxIdentity = 4096

// Identity is the key pair of a node. The peer ID is made from its public part.
type Identity struct {
	key crypto.PrivKey
	id  peer.ID
}

// ID is the peer ID.
func (i Identity) ID() peer.ID { return i.id }

// IsZero reports whether there is no key.
func (i Identity) IsZero() bool { return i.key == nil }

// NewIdentity makes a new Ed25519 key pair.
func NewIdentity() (Identity, error) {
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	if err != nil {
		return Identity{}, fmt.Errorf("p2p: identity: %w", err)
	}
	return identity(key)
}

func identity(key crypto.PrivKey) (Identity, error) {
	id, err := peer.IDFromPrivateKey(key)
	if err != nil {
		return Identity{}, fmt.Errorf("p2p: identity: %w", err)
	}
	return Identity{key: key, id: id}, nil
}

// LoadIdentity reads the key file of the state directory dir, which must
// exist, or makes one on first use. It is an error when the file can be read
// or written by others than its owner, or does not hold an Ed25519 key: a key
// that others had, or a new one put in its place unasked, would be no identity.
//
// Two callers that make the file at the same time get the same key.
func LoadIdentity(dir string) (Identity, error) {
	name := filepath.Join(dir, identityFile)
	id, err := readIdentity(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return id, err
	}
	if err := createIdentity(dir, name); err != nil {
		return Identity{}, err
	}
	return readIdentity(name)
}

func readIdentity(name string) (Identity, error) {
	// Not blocking, so that a FIFO in this place can't hold up the start.
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return Identity{}, fmt.Errorf("p2p: identity: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return Identity{}, fmt.Errorf("p2p: identity: %w", err)
	}
	switch {
	case !st.Mode().IsRegular():
		return Identity{}, fmt.Errorf("p2p: identity: %s is not a regular file", name)
	case st.Mode().Perm()&0o077 != 0:
		return Identity{}, fmt.Errorf("p2p: identity: %s has mode %#o, so that others can use this node's key (chmod 600 it, or remove it to become another node)", name, st.Mode().Perm())
	case st.Size() > maxIdentity:
		return Identity{}, fmt.Errorf("p2p: identity: %s has %d bytes and is no key file (remove it to become another node)", name, st.Size())
	}
	b := make([]byte, st.Size())
	if _, err := f.ReadAt(b, 0); err != nil && len(b) > 0 {
		return Identity{}, fmt.Errorf("p2p: identity: %w", err)
	}
	key, err := crypto.UnmarshalPrivateKey(b)
	if err == nil && key.Type() != crypto.Ed25519 {
		err = fmt.Errorf("the key is of type %v, not Ed25519", key.Type())
	}
	if err != nil {
		return Identity{}, fmt.Errorf("p2p: identity: %s is corrupt: %w (restore it, or remove it to become another node)", name, err)
	}
	return identity(key)
}

// createIdentity writes the whole file under another name and links it, so
// that a crash leaves no half of a key and the first of two creators wins.
func createIdentity(dir, name string) (err error) {
	id, err := NewIdentity()
	if err != nil {
		return err
	}
	b, err := crypto.MarshalPrivateKey(id.key)
	if err != nil {
		return fmt.Errorf("p2p: identity: %w", err)
	}
	f, err := os.CreateTemp(dir, ".identity-*") // mode 0600
	if err != nil {
		return fmt.Errorf("p2p: identity: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Link(f.Name(), name)
		if errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("p2p: identity: %w", err)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
