package member

import "fmt"

// terms are what members have to agree on: the policy, the times, the protocol,
// and what they tell files apart by. They say whether this node can be in a
// view, and whether a newcomer can.
type terms struct {
	*position
	fileID string // Config.FileID, or what TakesPath made of it
}

const revokedText = "an admin revoked this peer; `dmxfs peers revoke --undo` on a member lets it in again"

const policyText = "the cluster has another policy: start with the same one or with none, or change it on a member"

func timingText(cluster, mine Timing) string {
	return fmt.Sprintf("the cluster's times are %v; this node's are %v: start it with the same --heartbeat, --tenure and --tenure-margin, or --fast", cluster, mine)
}

func cacheText(cluster Timing, mine int64) string {
	return fmt.Sprintf("listings of the storage may be %d ms old here; the cluster was founded with a limit of %d ms", mine, cluster.CacheMax)
}

// unmet ends a machine that has no place in the newest view; nil if it has.
func (t *terms) unmet() *End {
	v := t.view
	switch {
	case !t.cfg.Bury.IsZero(): // it does not want in
	case v.IsRevoked(t.me.Peer):
		return &End{Code: EndRevoked, Text: revokedText}
	case len(v.Members) == 0:
	case v.Protocol != Protocol && !t.alone(v):
		return &End{Code: EndNewer, Text: versionText(v, t.cfg.Self.Version), Nodes: v.Members}
	case !v.Timing.same(t.p.Timing):
		return &End{Code: EndTiming, Text: timingText(v.Timing, t.p.Timing)}
	case t.cfg.Self.Cache > v.Timing.CacheMax:
		return &End{Code: EndTiming, Text: cacheText(v.Timing, t.cfg.Self.Cache)}
	case !v.Policy.Serves(t.asksFor()) && !t.alone(v):
		return &End{Code: EndPolicy, Text: policyText}
	case t.joined && v.Reason == ReasonRestored && v.FileID == "":
		return &End{Code: EndLost, Text: "the directory of the cluster was made anew: this process knows the one before"}
	case !v.agrees(t.fileIDFor(v)) && !t.alone(v):
		return &End{Code: t.fileIDCode(), Text: fileIDText(v.FileID, t.fileIDFor(v))}
	}
	return nil
}

// refused is what a node ends with that a member has refused; nil if what is in
// the way may pass. A former member goes on asking.
func (t *terms) refused(y *Member, r Refused, former bool) *End {
	code, why := EndRefused, r.Text
	switch r.Code {
	case RefusedRevoked:
		code = EndRevoked
	case RefusedTiming:
		code = EndTiming
	case RefusedFileID:
		code, why = t.fileIDCode(), fileIDText(t.view.FileID, t.fileIDFor(t.view)) // whole
	case RefusedPolicy:
		code = EndPolicy
		if former && t.asksFor() == "" {
			return nil
		}
	default:
		if former {
			return nil
		}
	}
	return &End{Code: code, Text: fmt.Sprintf("refused by %s: %s", y.Name(), why), Nodes: []Member{*y}}
}

// refusal is why a newcomer cannot join; the code is 0 if it can.
func (t *terms) refusal(h Hello) (Refusal, string) {
	v := t.view
	switch {
	case v.IsRevoked(h.Member.Peer):
		return RefusedRevoked, revokedText
	case !v.Timing.same(h.Timing):
		return RefusedTiming, timingText(v.Timing, h.Timing)
	case h.Member.Cache > v.Timing.CacheMax:
		return RefusedTiming, cacheText(v.Timing, h.Member.Cache)
	case !v.Policy.Serves(h.Policy):
		return RefusedPolicy, policyText
	case !v.agrees(h.FileID):
		return RefusedFileID, fileIDText(v.FileID, h.FileID)
	case len(v.Members) >= MaxMembers:
		return RefusedFull, fmt.Sprintf("the cluster has %d members, and cannot have more", MaxMembers)
	}
	return 0, ""
}

// hello is what this node asks the members with.
func (t *terms) hello(ready bool) Hello {
	return Hello{Ready: ready, Member: t.record(), Timing: t.p.Timing, Policy: t.asksFor(), FileID: t.fileIDFor(t.view)}
}

// asksFor is the hash of the policy without which this node does not want to
// be in the view. It is asked for until the process is a member for the first
// time: after that programs use its mount, and it takes what there is.
func (t *terms) asksFor() string {
	if t.cfg.Policy == nil || t.joined {
		return ""
	}
	return t.cfg.Policy.Hash
}

// bring makes w, in which this node joins, what it would have of its own, if
// nobody else is in it. A policy that was changed since keeps the change.
func (t *terms) bring(w *View) {
	if t.alone(w) && !w.Policy.Serves(t.asksFor()) {
		w.Policy = *t.cfg.Policy
	}
	t.bringFileID(w)
}

// bringFileID makes w, in which this node joins, a view with its kind of file
// IDs, if nobody else is in it.
func (t *terms) bringFileID(w *View) {
	if mine := t.fileIDFor(w); w.FileID == "" || t.alone(w) {
		w.FileID = mine
	}
}

// fileIDFor is what this node tells files apart by, if it joins on top of v. Once
// it has joined it cannot change: programs hold locks by those names.
func (t *terms) fileIDFor(v *View) string {
	if t.cfg.TakesPath && !t.joined && v.FileID == FileIDPath {
		return FileIDPath
	}
	return t.fileID
}

// fixFileID ends the choice that Config.TakesPath leaves: w is the first view
// of this process.
func (t *terms) fixFileID(w *View) { t.fileID = t.fileIDFor(w) }

// fileIDCode is how a node ends whose cluster tells files apart by something else.
// One that was a member did so as well: since then the directory of the cluster was
// made anew, and what counts now is for a new process to see.
func (t *terms) fileIDCode() EndCode {
	if t.joined {
		return EndLost
	}
	return EndFileID
}
