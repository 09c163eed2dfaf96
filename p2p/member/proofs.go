package member

import "maps"

// proofs know which members are dead.
type proofs struct {
	*position
	dead map[Node]string // how the driver has found each to be dead
}

func (p *proofs) take(in Dead) { p.dead[in.Node] = in.How }

// members are those that are proved to be dead.
func (p *proofs) members() []Node {
	var dead []Node
	for i := range p.view.Members {
		if y := &p.view.Members[i]; p.how(y.Node) != "" {
			dead = append(dead, y.Node)
		}
	}
	return dead
}

// how is the proof that a member is dead; empty if there is none. A former
// life of this node is dead if it held the lock that this one holds now, in
// the same boot of the same kernel. Another boot ID is no proof: the state
// directory may be a copy. See isFormer.
func (p *proofs) how(n Node) string {
	if n == p.me {
		return ""
	}
	if how := p.dead[n]; how != "" {
		return how
	}
	if n == p.cfg.Bury {
		return "its process has ended"
	}
	if n == p.cfg.Succeeds {
		return "its daemon was replaced"
	}
	i := p.view.Index(n)
	if i < 0 {
		return ""
	}
	y, s := &p.view.Members[i], &p.cfg.Self
	if y.Boot == s.Boot && y.Boot != "" && y.Lock == s.Lock && y.Lock != (LockFile{}) && p.isFormer(y) {
		if p.cfg.Heir != nil && p.cfg.Heir.has(n) {
			return "its daemon was killed, and another one takes its place"
		}
		return "it was restarted"
	}
	return ""
}

// forget drops what is about nodes that are not in w.
func (p *proofs) forget(w *View) {
	maps.DeleteFunc(p.dead, func(n Node, _ string) bool { return !w.Has(n) })
}
