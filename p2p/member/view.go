package member

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dmxfs/dmxfs/locks"
)

// Bounds of a view. A view file, and so the message VIEW, is at most
// [MaxViewSize] long; a view within the other bounds always fits.
const (
	MaxMembers  = 128
	MaxAddrs    = 16  // addresses of one member
	MaxAddr     = 128 // bytes of an address
	MaxName     = 128 // bytes of a peer ID, host, version, boot ID, hash
	MaxWhy      = 256 // bytes of a reason in words
	MaxRevoked  = 256
	MaxPolicy   = 64 << 10
	MaxReplaced = 64
	MaxViewSize = 1 << 20
)

// MaxEpoch is the last epoch. A fencing token has room for 2^24 epochs
// ([locks.TokenFloor]): at one view a second, half a year without a pause.
const MaxEpoch = locks.Epoch(1)<<24 - 1

// Inc is an incarnation: a random number that a peer draws when it starts, and
// again whenever it learns a view above its base that it is not in. Zero is none.
type Inc uint64

func (i Inc) String() string { return fmt.Sprintf("%016x", uint64(i)) }

// MarshalText is the form in files: 16 hexadecimal digits.
func (i Inc) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (i *Inc) UnmarshalText(b []byte) error {
	if len(b) != 16 {
		return fmt.Errorf("%q is not 16 hexadecimal digits", b)
	}
	v, err := strconv.ParseUint(string(b), 16, 64)
	if err != nil || Inc(v).String() != string(b) {
		return fmt.Errorf("%q is not 16 small hexadecimal digits", b)
	}
	*i = Inc(v)
	return nil
}

// Node is one incarnation of a peer.
type Node struct {
	Peer string `json:"peer"` // libp2p peer ID in its text form
	Inc  Inc    `json:"inc"`
}

// Compare orders nodes by peer, then by incarnation.
func (n Node) Compare(o Node) int {
	if c := cmp.Compare(n.Peer, o.Peer); c != 0 {
		return c
	}
	return cmp.Compare(n.Inc, o.Inc)
}

// IsZero reports whether n is no node at all.
func (n Node) IsZero() bool { return n == Node{} }

// ID is the name of n for the lock algorithms. Names sort as nodes do.
func (n Node) ID() locks.NodeID { return locks.NodeID(n.Peer + "." + n.Inc.String()) }

func (n Node) String() string { return string(n.ID()) }

// ParseNode is the inverse of [Node.ID].
func ParseNode(id locks.NodeID) (Node, error) {
	peer, inc, ok := strings.Cut(string(id), ".")
	var n Node
	if !ok {
		return n, fmt.Errorf("%q is not a node: no incarnation", id)
	}
	if err := n.Inc.UnmarshalText([]byte(inc)); err != nil {
		return Node{}, fmt.Errorf("%q is not a node: %w", id, err)
	}
	n.Peer = peer
	return n, n.validate()
}

func (n Node) validate() error {
	if !ValidPeer(n.Peer) {
		return fmt.Errorf("%q is not a peer ID", n.Peer)
	}
	if n.Inc == 0 {
		return fmt.Errorf("%s has no incarnation", n.Peer)
	}
	return nil
}

// ValidPeer reports whether s can be a peer ID: letters and digits, so that it
// can be part of a file name.
func ValidPeer(s string) bool {
	if s == "" || len(s) > MaxName {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// LockFile identifies the file that a daemon keeps an exclusive flock on for
// as long as it lives. Zero is none.
type LockFile struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

// Member is what the others know of a member.
type Member struct {
	Node
	Host    string   `json:"host"`
	Addrs   []string `json:"addrs"` // multiaddrs
	Version string   `json:"version"`
	// Boot and Lock are for the proof of death: with the same boot ID on the
	// same host, and the lock free, the daemon that took it is dead.
	Boot string   `json:"boot"`
	Lock LockFile `json:"lock"`
	// Cache is S: how old a listing of the storage may be for this member, in
	// milliseconds.
	Cache int64 `json:"cache_ms"`
}

// Name is how the member is called in messages for people.
func (m *Member) Name() string {
	if m.Host == "" {
		return m.Peer
	}
	return m.Host + " (" + m.Peer + ")"
}

// ClipAddrs are the first addresses of list that fit a record.
func ClipAddrs(list []string) []string {
	var fit []string
	for _, a := range list {
		if validText(a, MaxAddr) && len(fit) < MaxAddrs {
			fit = append(fit, a)
		}
	}
	return fit
}

func (m *Member) validate() error {
	if err := m.Node.validate(); err != nil {
		return err
	}
	if len(m.Addrs) > MaxAddrs {
		return fmt.Errorf("%s has %d addresses, over %d", m.Peer, len(m.Addrs), MaxAddrs)
	}
	for _, a := range m.Addrs {
		if !validText(a, MaxAddr) {
			return fmt.Errorf("an address of %s is over %d bytes or no plain text", m.Peer, MaxAddr)
		}
	}
	if !validText(m.Host, MaxName) || !validText(m.Version, MaxName) || !validText(m.Boot, MaxName) {
		return fmt.Errorf("host, version or boot ID of %s is over %d bytes or no plain text", m.Peer, MaxName)
	}
	if m.Cache < 0 || m.Cache > maxDuration {
		return fmt.Errorf("%s has listings of %d ms, not between 0 and %d", m.Peer, m.Cache, maxDuration)
	}
	return nil
}

// Why a view was made, or a member dropped.
const (
	ReasonJoin       = "join"       // it adds members, or founds the cluster
	ReasonDrop       = "drop"       // members were silent
	ReasonLeave      = "leave"      // its maker leaves
	ReasonReplace    = "replace"    // members are proved to be dead
	ReasonPolicy     = "policy"     // the policy changed
	ReasonAdmin      = "admin"      // an admin removed a member, or revoked a peer
	ReasonUnreadable = "unreadable" // the view before it cannot be read
	ReasonRestored   = "restored"   // the storage has lost the views before it, see Config.Restored
)

var reasons = []string{ReasonJoin, ReasonDrop, ReasonLeave, ReasonReplace, ReasonPolicy, ReasonAdmin, ReasonUnreadable, ReasonRestored}

// Dropped is a former member and why it is none any more.
type Dropped struct {
	Node
	Why string `json:"why"`
}

// Policy is which algorithm serves which path. It is opaque here.
type Policy struct {
	Hash string `json:"hash"`
	TOML string `json:"toml"`
	// Replaced are the hashes of the policies that were changed into this one
	// while the cluster ran, the newest first. A node that asks for one of
	// them is started as it was before that change, and gets this one; to
	// refuse it would keep every node out whose options nobody has edited.
	Replaced []string `json:"replaced,omitempty"`
}

// Serves reports whether a node that asks for the policy named hash gets this
// one. Nothing is what a node asks for that takes any.
func (p *Policy) Serves(hash string) bool {
	return hash == "" || hash == p.Hash || slices.Contains(p.Replaced, hash)
}

// change is p after it was changed into to.
func (p *Policy) change(to Policy) Policy {
	to.Replaced = nil
	for _, h := range append([]string{p.Hash}, p.Replaced...) {
		if h != "" && h != to.Hash && !slices.Contains(to.Replaced, h) && len(to.Replaced) < MaxReplaced {
			to.Replaced = append(to.Replaced, h)
		}
	}
	return to
}

func (p *Policy) validate() error {
	if !validText(p.Hash, MaxName) {
		return fmt.Errorf("hash of the policy is over %d bytes or no plain text", MaxName)
	}
	if len(p.TOML) > MaxPolicy {
		return fmt.Errorf("policy has %d bytes, over %d", len(p.TOML), MaxPolicy)
	}
	if !validText(strings.NewReplacer("\n", "", "\t", "", "\r", "").Replace(p.TOML), MaxPolicy) {
		return errors.New("policy is no plain text")
	}
	if len(p.Replaced) > MaxReplaced {
		return fmt.Errorf("policy replaced %d others, over %d", len(p.Replaced), MaxReplaced)
	}
	for _, h := range p.Replaced {
		if h == "" || !validText(h, MaxName) {
			return errors.New("hash of a policy that was replaced is empty, too long or no plain text")
		}
	}
	return nil
}

// View is an epoch and its members. Once it is linked it never changes. A
// View that a Machine was given, or gave, must not be changed by anybody.
type View struct {
	Cluster string      `json:"cluster"`
	Epoch   locks.Epoch `json:"epoch"`
	Nonce   Inc         `json:"nonce"` // tells proposals of one maker apart
	By      Node        `json:"by"`
	Reason  string      `json:"reason"`
	Made    string      `json:"made"`    // RFC 3339, for people
	Members []Member    `json:"members"` // sorted, each once
	Dropped []Dropped   `json:"dropped"` // of the view before it, sorted
	Revoked []string    `json:"revoked"` // peers that may not join, sorted
	Policy  Policy      `json:"policy"`
	Timing  Timing      `json:"timing"`
	// Protocol is the generation of the messages of all members, see [Protocol];
	// 0 is one before 2.
	Protocol int `json:"protocol,omitempty"`
	// FileID is what all members tell files apart by, see Config.FileID.
	FileID string `json:"file_id,omitempty"`
	// Unsure: members of a view that nobody could read may be alive. Who
	// installs this view promises and grants nothing until they cannot be.
	Unsure bool `json:"unsure,omitempty"`
}

// Index is the place of n among the members, or -1.
func (v *View) Index(n Node) int {
	i, ok := slices.BinarySearchFunc(v.Members, n, func(m Member, n Node) int { return m.Node.Compare(n) })
	if !ok {
		return -1
	}
	return i
}

// Has reports whether n is a member.
func (v *View) Has(n Node) bool { return v.Index(n) >= 0 }

// HasPeer reports whether an incarnation of peer is a member.
func (v *View) HasPeer(peer string) bool {
	return slices.ContainsFunc(v.Members, func(m Member) bool { return m.Peer == peer })
}

// IsRevoked reports whether peer may not join.
func (v *View) IsRevoked(peer string) bool {
	_, ok := slices.BinarySearch(v.Revoked, peer)
	return ok
}

// Why is what v says about the dropping of n; empty if it says nothing.
func (v *View) Why(n Node) string {
	for _, d := range v.Dropped {
		if d.Node == n {
			return d.Why
		}
	}
	return ""
}

// Locks is v as the lock algorithms see it.
func (v *View) Locks(self Node) *locks.View {
	l := &locks.View{Epoch: v.Epoch, Self: self.ID(), Members: make([]locks.NodeID, len(v.Members))}
	for i := range v.Members {
		l.Members[i] = v.Members[i].ID()
	}
	return l
}

// same reports whether v and o are one proposal.
func (v *View) same(o *View) bool {
	return v.Epoch == o.Epoch && v.Nonce == o.Nonce && v.By == o.By
}

func (v *View) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d{", v.Epoch)
	for i := range v.Members {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(v.Members[i].String())
	}
	fmt.Fprintf(&b, "} by %v, %s", v.By, v.Reason)
	return b.String()
}

// next is the beginning of a view after v: the same but for what a change of
// any kind makes anew.
func (v *View) next(by Node, reason string) *View {
	w := *v
	w.Epoch++
	w.By, w.Reason = by, reason
	w.Dropped = nil
	return &w
}

// add puts m among the members.
func (v *View) add(m Member) {
	i, found := slices.BinarySearchFunc(v.Members, m.Node, func(m Member, n Node) int { return m.Node.Compare(n) })
	if found {
		return
	}
	v.Members = slices.Insert(slices.Clip(v.Members), i, m)
}

// drop takes n out of the members and says why.
func (v *View) drop(n Node, why string) {
	i := v.Index(n)
	if i < 0 {
		return
	}
	v.Members = slices.Delete(slices.Clone(v.Members), i, i+1)
	j, _ := slices.BinarySearchFunc(v.Dropped, n, func(d Dropped, n Node) int { return d.Node.Compare(n) })
	v.Dropped = slices.Insert(slices.Clip(v.Dropped), j, Dropped{n, clipText(why, MaxWhy)})
}

// maxCache is the largest S of the members.
func (v *View) maxCache() int64 {
	var s int64
	for i := range v.Members {
		s = max(s, v.Members[i].Cache)
	}
	return s
}

// validate checks that v is in the form and in the bounds that the rest relies on.
func (v *View) validate() error {
	switch {
	case !validHex(v.Cluster, 32):
		return fmt.Errorf("cluster %q is not 32 hexadecimal digits", v.Cluster)
	case v.Epoch == 0 || v.Epoch > MaxEpoch:
		return fmt.Errorf("epoch %d is not between 1 and %d", v.Epoch, MaxEpoch)
	case !slices.Contains(reasons, v.Reason):
		return fmt.Errorf("unknown reason %q", v.Reason)
	case !validText(v.Made, MaxName):
		return fmt.Errorf("time of making is over %d bytes or no plain text", MaxName)
	case len(v.Members) > MaxMembers:
		return fmt.Errorf("%d members, over %d", len(v.Members), MaxMembers)
	case len(v.Dropped) > MaxMembers:
		return fmt.Errorf("%d dropped, over %d", len(v.Dropped), MaxMembers)
	case len(v.Revoked) > MaxRevoked:
		return fmt.Errorf("%d revoked, over %d", len(v.Revoked), MaxRevoked)
	}
	if !validText(v.FileID, MaxName) {
		return fmt.Errorf("kind of file IDs is over %d bytes or no plain text", MaxName)
	}
	if err := v.Policy.validate(); err != nil {
		return err
	}
	if err := v.By.validate(); err != nil {
		return fmt.Errorf("maker: %w", err)
	}
	for i := range v.Members {
		if err := v.Members[i].validate(); err != nil {
			return fmt.Errorf("member: %w", err)
		}
		if i > 0 && v.Members[i-1].Node.Compare(v.Members[i].Node) >= 0 {
			return errors.New("members are not sorted")
		}
	}
	for i, d := range v.Dropped {
		if err := d.Node.validate(); err != nil {
			return fmt.Errorf("dropped: %w", err)
		}
		if !validText(d.Why, MaxWhy) {
			return fmt.Errorf("reason for dropping %s is over %d bytes or no plain text", d.Peer, MaxWhy)
		}
		if i > 0 && v.Dropped[i-1].Node.Compare(d.Node) >= 0 {
			return errors.New("dropped are not sorted")
		}
		if v.Has(d.Node) {
			return fmt.Errorf("%s is both a member and dropped", d.Node)
		}
	}
	for i, r := range v.Revoked {
		if !ValidPeer(r) || i > 0 && v.Revoked[i-1] >= r {
			return errors.New("revoked peers are malformed or not sorted")
		}
	}
	return nil
}

// validText reports whether s is at most n bytes of text in one line: JSON then
// gives back the same, and at most doubles it.
func validText(s string, n int) bool {
	if len(s) > n || !utf8.ValidString(s) {
		return false
	}
	for _, c := range []byte(s) {
		if c < ' ' {
			return false
		}
	}
	return true
}

// clipText makes s fit validText.
func clipText(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	for len(s) > n {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}

func validHex(s string, n int) bool {
	if len(s) != n {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
