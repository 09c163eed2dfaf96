package systemtest

import (
	"strings"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// bugMemory is what planted bugs remember.
type bugMemory struct {
	state  []byte
	synced locks.Epoch
	heard  map[string]member.HB // the newest of each peer
	at     map[string]locks.Epoch
}

// twistReceived is where bugs change what a node is told.
func (p *proc) twistReceived(from string, b []byte) []byte {
	switch p.w.opt.bug {
	case "promises while proposing":
		e, hb, ok := p.heartbeat(from, p.name, b)
		if ok {
			p.w.mu.Lock()
			if p.memory.heard == nil {
				p.memory.heard, p.memory.at = map[string]member.HB{}, map[string]locks.Epoch{}
			}
			p.memory.heard[from], p.memory.at[from] = hb, e.Epoch
			p.w.mu.Unlock()
		}
	case "tenure from receipt":
		if e, hb, ok := p.heartbeat(from, p.name, b); ok && hb.Prom > 0 {
			hb.Prom = p.clock()
			return reencode(e, hb, b)
		}
	}
	return b
}

// twistSent is where bugs change what a node says.
func (p *proc) twistSent(to string, b []byte) []byte {
	if p.w.opt.bug != "promises while proposing" {
		return b
	}
	e, hb, ok := p.heartbeat(p.name, to, b)
	if !ok || p.status().Proposal == nil {
		return b
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if last, ok := p.memory.heard[to]; ok && p.memory.at[to] == e.Epoch {
		hb.Prom = last.T
	}
	return reencode(e, hb, b)
}

func (p *proc) heartbeat(from, to string, b []byte) (member.Envelope, member.HB, bool) {
	e, err := member.Decode(from, to, strings.Repeat("c", 32), b)
	if err != nil {
		return e, member.HB{}, false
	}
	hb, ok := e.Msg.(member.HB)
	return e, hb, ok
}

func reencode(e member.Envelope, hb member.HB, b []byte) []byte {
	e.Msg = hb
	if out, err := member.Encode(e); err == nil {
		return out
	}
	return b
}
