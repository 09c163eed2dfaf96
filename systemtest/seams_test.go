package systemtest

import (
	"context"
	"log/slog"
	"slices"

	"github.com/dmxfs/dmxfs/locks"
	"github.com/dmxfs/dmxfs/locks/engine"
	"github.com/dmxfs/dmxfs/p2p/member"
)

// begin takes the rules of a view.
func (p *proc) begin(v *member.View) {
	rule := p.w.opt.algorithm
	if p.w.opt.rules && v.Policy.Hash != "" {
		rule = names[sourceOf(v.Policy.Hash)%uint64(len(names))]
	}
	if p.rule.Swap(rule) != rule && p.w.opt.bug != "the engine is not told of new rules" {
		p.engine.NewRules()
	}
}

func (p *proc) notice(n member.Notice) {
	p.w.logf("%s: %v", p.name, n)
	if n.Kind == member.Succeeded {
		p.succeeded = true
	}
}

// logHandler is the log of a node. An error in it is one of the program: here
// nothing goes wrong that it would not be made for.
type logHandler proc

func (h *logHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h *logHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *logHandler) WithGroup(string) slog.Handler            { return h }

func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	h.w.logf("%s log: %v %s", h.name, r.Level, text)
	if r.Level >= slog.LevelError && (*proc)(h).alive() {
		h.w.check.failf("%s logs an error: %s", h.name, text)
	}
	return nil
}

// fence is the fence command, or syncfs.
func (p *proc) fence(ctx context.Context, f member.Fence) error {
	if !f.Dead {
		return p.await("fence "+f.Node.String(), func(done func(outcome)) {
			p.w.after(p.w.between(0, 2000*ms), func() {
				p.w.cutOff(f.Node)
				done(outcome{})
			})
		}).err
	}
	if p.w.opt.bug == "no syncfs before a replacement" {
		return nil
	}
	return p.await("syncfs "+f.Node.String(), func(done func(outcome)) { p.host.dirty.whenClean(func() { done(outcome{}) }) }).err
}

// cutOff is what a fence command does: what a node has on its way never reaches
// the storage. Two that fence each other may both come to harm by it, so only
// one that does not reach the storage itself is cut off here.
func (w *world) cutOff(n member.Node) {
	if p := w.holder(n.ID(), n.Peer); !w.opt.cutsOff || p == nil || p.disk.hangUntil <= w.now() {
		return
	}
	w.logf("%v is cut off from the storage", n)
	for _, h := range w.hosts {
		for _, x := range slices.Clone(h.dirty.writes) {
			if x.node == n && w.opt.bug != "a fence command that does nothing" {
				x.landed = true // in the eyes of its host
				h.dirty.settle()
			}
		}
	}
}

// boundEngine is the engine as the driver knows it.
type boundEngine proc

func (b *boundEngine) Freeze() {
	if b.w.opt.bug == "no freeze" {
		return
	}
	b.engine.Freeze()
}

func (b *boundEngine) State() []byte {
	b.stating.Store(true)
	s := b.engine.State()
	b.stating.Store(false)
	if b.w.opt.bug != "a state of before the freeze" {
		return s
	}
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	if before := b.memory.state; before != nil {
		b.memory.state = s
		return before
	}
	b.memory.state = s
	return s
}

func (b *boundEngine) Install(v *locks.View) {
	b.engine.Install(v)
	if b.w.opt.bug == "no barrier of states" {
		for _, m := range v.Members {
			if m != v.Self {
				_ = b.engine.Sync(m, v.Epoch, []byte{0})
			}
		}
	}
}

func (b *boundEngine) Sync(from locks.NodeID, e locks.Epoch, s []byte) error {
	if err := b.engine.Sync(from, e, s); err != nil {
		b.w.check.failf("%s: %v", b.name, err)
		return err
	}
	if b.w.opt.bug == "granting before the last state" && b.memory.synced != e && from != b.self {
		b.memory.synced = e
		for _, m := range b.members {
			_ = b.engine.Sync(m, e, []byte{0})
		}
	}
	return nil
}

func (b *boundEngine) Expelled(why string) {
	p := (*proc)(b)
	if b.w.opt.bug == "the expelled keeps its locks" || b.w.opt.bug == "a successor that is late keeps its locks" && p.legacy != nil && !p.succeeded {
		return
	}
	if !p.alive() {
		return
	}
	held := b.w.check.heldBy(p)
	lost := b.engine.Expelled(why)
	b.w.check.expelled(p, held, lost)
}

func (b *boundEngine) Resume() {
	if b.w.opt.bug != "what waits is not resumed" {
		b.engine.Resume()
	}
}

func (b *boundEngine) ResumeIO() {
	if b.w.opt.bug != "what waits is not resumed" {
		b.engine.ResumeIO()
	}
}

func (b *boundEngine) Ping() { b.engine.Ping() }

// recorder is the journal.
type recorder proc

func (r *recorder) Healthy() error { return nil }

func (r *recorder) Record(ev engine.Event) { r.w.check.record((*proc)(r), ev) }
