package member

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/dmxfs/dmxfs/locks"
)

// A view file is one line and the view as JSON:
//
//	dmxfs-view 1 <length of the JSON> <crc32c of the JSON, 8 hexadecimal digits>\n
//
// The file is linked whole, so what does not fit its first line was damaged by
// the storage, or is not shown whole by a cache.

const (
	viewMagic  = "dmxfs-view"
	viewFormat = 1
)

var (
	// ErrUnreadable: the file is damaged, or not there in full. Reading it
	// again may help.
	ErrUnreadable = errors.New("view is damaged")
	// ErrNewer: the file is whole, but this version does not understand it.
	// It is never taken over.
	ErrNewer = errors.New("view was made by a newer dmxfs")
	// ErrForeign: the view belongs to another cluster.
	ErrForeign = errors.New("view belongs to another cluster")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// EncodeView is the content of the file of v, and of the message VIEW. It
// returns an error if v is out of bounds.
func EncodeView(v *View) ([]byte, error) {
	if err := v.validate(); err != nil {
		return nil, fmt.Errorf("view %d: %w", v.Epoch, err)
	}
	c := *v
	c.Members = nonNil(c.Members)
	c.Dropped = nonNil(c.Dropped)
	c.Revoked = nonNil(c.Revoked)
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(&c); err != nil {
		return nil, fmt.Errorf("view %d: %w", v.Epoch, err)
	}
	head := fmt.Sprintf("%s %d %d %08x\n", viewMagic, viewFormat, body.Len(), crc32.Checksum(body.Bytes(), castagnoli))
	if len(head)+body.Len() > MaxViewSize {
		return nil, fmt.Errorf("view %d: %d bytes, over %d", v.Epoch, len(head)+body.Len(), MaxViewSize)
	}
	return append([]byte(head), body.Bytes()...), nil
}

// nonNil makes an empty list "[]" in JSON, not "null".
func nonNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// ParseView reads what EncodeView wrote. Its errors wrap [ErrUnreadable],
// [ErrNewer] or [ErrForeign]; the last is not for an empty cluster.
func ParseView(b []byte, cluster string) (*View, error) {
	line, body, ok := bytes.Cut(b, []byte("\n"))
	if !ok || len(line) > 64 {
		return nil, fmt.Errorf("%w: no first line", ErrUnreadable)
	}
	f := strings.Split(string(line), " ")
	if len(f) < 2 || f[0] != viewMagic {
		return nil, fmt.Errorf("%w: it does not begin with %q", ErrUnreadable, viewMagic)
	}
	format, err := strconv.ParseUint(f[1], 10, 16)
	if err != nil || format == 0 {
		return nil, fmt.Errorf("%w: bad format number %q", ErrUnreadable, f[1])
	}
	if format > viewFormat {
		return nil, fmt.Errorf("%w: format %d, this version knows %d%s", ErrNewer, format, viewFormat, writers(body))
	}
	if len(f) != 4 {
		return nil, fmt.Errorf("%w: bad first line", ErrUnreadable)
	}
	size, err := strconv.ParseUint(f[2], 10, 31)
	if err != nil || size != uint64(len(body)) {
		return nil, fmt.Errorf("%w: %d bytes instead of %s", ErrUnreadable, len(body), f[2])
	}
	if sum := fmt.Sprintf("%08x", crc32.Checksum(body, castagnoli)); sum != f[3] {
		return nil, fmt.Errorf("%w: checksum %s instead of %s", ErrUnreadable, sum, f[3])
	}

	// The file is as it was written. What is wrong from here on was written
	// by something that knows more than this version, or less than it should:
	// no reason to take over.
	v := new(View)
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return nil, fmt.Errorf("%w: %v%s", ErrNewer, err, writers(body))
	}
	if rest := bytes.TrimSpace(body[dec.InputOffset():]); len(rest) > 0 {
		return nil, fmt.Errorf("%w: %d bytes behind the view", ErrNewer, len(rest))
	}
	if cluster != "" && v.Cluster != cluster {
		return nil, fmt.Errorf("%w: %s, not %s", ErrForeign, v.Cluster, cluster)
	}
	if err := v.validate(); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrNewer, err)
	}
	return v, nil
}

// ViewName is the name of the file of the view of epoch e.
func ViewName(e locks.Epoch) string { return fmt.Sprintf("%020d", uint64(e)) }

// ParseViewName is the inverse of ViewName. Names that no node ever links, an
// epoch over [MaxEpoch] among them, are no views.
func ParseViewName(s string) (locks.Epoch, bool) {
	if len(s) != 20 {
		return 0, false
	}
	e, err := strconv.ParseUint(s, 10, 64)
	if err != nil || e == 0 || locks.Epoch(e) > MaxEpoch || ViewName(locks.Epoch(e)) != s {
		return 0, false
	}
	return locks.Epoch(e), true
}
