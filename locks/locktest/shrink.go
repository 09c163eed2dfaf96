package locktest

import (
	"fmt"
	"runtime/debug"

	"github.com/dmxfs/dmxfs/locks"
)

func stack() []byte { return debug.Stack() }

// replay does ops in a new world and leaves out what is not
// possible. It returns what was done and what went wrong. A run that ends well
// is brought to rest, so that what went wrong at the end still does.
func replay(alg locks.Algorithm, opt Options, p plan, ops []Op) (done []Op, err error) {
	w := newWorld(alg, opt, p.nodes)
	w.fair = p.fair
	do := func(o Op) error {
		err := w.apply(o)
		if err == errSkip {
			return nil
		}
		done = append(done, o)
		if err == nil && w.quiet() {
			err = w.oracle.idle(w)
		}
		return err
	}
	for _, o := range ops {
		if err := do(o); err != nil {
			return done, err
		}
	}
	if n := w.nodes[0]; p.oneWriter && n.data.read > 0 {
		return done, fmt.Errorf("%s read its own writes in again", n.id)
	}
	return done, finish(w, do)
}

// finish ends a run: all epochs are changed, all are resumed, all that is held
// is released, and all that is kept is given back.
func finish(w *world, do func(Op) error) error {
	for _, kind := range []string{opFreeze, opRestore, opResume} {
		for _, n := range w.nodes {
			if err := do(Op{Kind: kind, Node: n.index}); err != nil {
				return err
			}
		}
	}
	for range 10000 {
		if err := settle(w, do); err != nil {
			return err
		}
		var first *ticket
		for _, t := range w.oracle.tickets {
			if t.status == held {
				first = t
				break
			}
		}
		if first == nil {
			break
		}
		if err := do(Op{Kind: opReplace, Node: first.node.index, Old: []locks.TicketID{first.ID}}); err != nil {
			return err
		}
	}
	return rest(w, do)
}

// shortest is a run that fails, made of ops by leaving out as many as possible,
// as an interaction file.
func shortest(alg locks.Algorithm, opt Options, p plan, ops []Op) string {
	if !*flagShrink {
		return fileText(p.nodes, ops)
	}
	done, err := replay(alg, opt, p, ops)
	if err == nil {
		return "(replayed, the run does not fail)"
	}
	budget := 300_000 // steps; a run without end would take for ever
	for size := max(1, len(done)/2); size > 0; {
		shorter := false
		for at := 0; at+size <= len(done) && budget > 0; {
			cut := append(append([]Op(nil), done[:at]...), done[at+size:]...)
			d, e := replay(alg, opt, p, cut)
			budget -= len(d)
			if e != nil && len(d) < len(done) {
				done, err, shorter = d, e, true
			} else {
				at += size
			}
		}
		if !shorter || size > 1 && size > len(done) {
			size /= 2
		}
	}
	return fmt.Sprintf("The shortest run found (%d steps):\n\n%s\n%v\n", len(done), fileText(p.nodes, done), err)
}
