package recent

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Name is a name in a directory, as all hosts know it.
type Name struct {
	Dir   uint64 `json:"dir"` // the number of the directory; or of a file, see Content
	Exact hash   `json:"exact"`
	Folds uint64 `json:"folds"` // the same for names that differ in case only
	Odd   bool   `json:"odd"`   // it is not of ASCII: which other names are the same, nobody knows
}

// hash is the beginning of a SHA-256.
type hash [16]byte

func (h hash) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(h[:])), nil }

func (h *hash) UnmarshalText(b []byte) error {
	if len(b) != 2*len(h) {
		return fmt.Errorf("%q is not the hash of a name", b)
	}
	_, err := hex.Decode(h[:], b)
	return err
}

// NameOf is the name in the directory with that inode number. It allocates nothing.
func NameOf(dir uint64, name string) Name {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a
	var b [8 + 256]byte
	binary.LittleEndian.PutUint64(b[:], dir)
	n := Name{Dir: dir, Folds: offset}
	whole := b[:8+copy(b[8:], name)]
	if len(name) > len(b)-8 { // no file system has such a name
		whole = append(b[:8:8], name...)
	}
	for _, c := range whole[8:] {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		n.Odd = n.Odd || c >= 0x80
		n.Folds = (n.Folds ^ uint64(c)) * prime
	}
	sum := sha256.Sum256(whole)
	copy(n.Exact[:], sum[:])
	return n
}

// Content stands for the content and the attributes of the file with that inode number.
func Content(file uint64) Name { return Name{Dir: file} }

// isSame reports whether n and o are one name.
func (n *Name) isSame(o *Name) bool { return n.Dir == o.Dir && n.Exact == o.Exact }

// mayBeSame reports whether storage may take n and o for one name though they are not; wide:
// for whatever reason.
func (n *Name) mayBeSame(o *Name, wide bool) bool {
	return n.Dir == o.Dir && n.Exact != o.Exact && (wide || n.Odd || o.Odd || n.Folds == o.Folds)
}
