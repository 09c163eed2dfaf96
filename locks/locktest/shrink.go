package locktest

import (
	"fmt"
	"runtime/debug"
	"strings"

	"dmxfs/locks"
)

func stack() []byte { return debug.Stack() }

// replay does ops in a new world of n nodes and leaves out what is not
// possible. It returns what was done and what went wrong. A run that ends well
// is brought to rest, so that what went wrong at the end still does.
func replay(alg locks.Algorithm, opt Options, n int, ops []Op) (done []Op, err error) {
	w := newWorld(alg, opt, n)
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
func shortest(alg locks.Algorithm, opt Options, n int, ops []Op) string {
	done, err := replay(alg, opt, n, ops)
	if err == nil {
		return "(replayed, the run does not fail)"
	}
	for size := max(1, len(done)/2); size > 0; {
		shorter := false
		for at := 0; at+size <= len(done); {
			cut := append(append([]Op(nil), done[:at]...), done[at+size:]...)
			if d, e := replay(alg, opt, n, cut); e != nil && len(d) < len(done) {
				done, err, shorter = d, e, true
			} else {
				at += size
			}
		}
		if !shorter || size > 1 && size > len(done) {
			size /= 2
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "The shortest run found (%d steps):\n\nnodes %d\n----\n", len(done), n)
	for _, o := range done {
		fmt.Fprintf(&b, "\n%v\n----\n", o)
	}
	fmt.Fprintf(&b, "\n%v\n", err)
	return b.String()
}
