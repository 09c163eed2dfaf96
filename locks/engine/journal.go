package engine

import (
	"time"

	"github.com/dmxfs/dmxfs/locks"
)

// event is what differs between the steps of a request.
type event struct {
	at       time.Time // when it was; zero: now
	rng      locks.Range
	wait     time.Duration
	messages int
	reason   string
	token    locks.Token
	final    bool
}

// journal tells the Recorder of each step of a request.
type journal struct{ *base }

func (j *journal) record(s Step, en *entry, req *request, ev event) {
	if s == Released && req.broken != "" {
		s, ev.reason = Lost, req.broken
	}
	var epoch locks.Epoch
	if j.view != nil {
		epoch = j.view.Epoch
	}
	if ev.at.IsZero() {
		ev.at = time.Now()
	}
	var held time.Duration
	if ev.final && (s == Released || s == Lost) && !req.granted.IsZero() {
		held = ev.at.Sub(req.granted)
	}
	j.o.Recorder.Record(Event{
		Step: s, Time: ev.at, Epoch: epoch, Request: req.id, Key: en.key, Path: req.Path, Mode: req.Mode, Range: ev.rng,
		Algorithm: en.alg.Name, Program: req.Program, Token: ev.token, Wait: ev.wait, Held: held, Messages: ev.messages,
		Reason: ev.reason, Final: ev.final,
	})
}

// crowded reports whether pace would wait.
func (j *journal) crowded() bool {
	p, ok := j.o.Recorder.(Pacer)
	return ok && p.Crowded()
}

// pace waits for the journal, if that has much to write; the sooner, if the caller
// has much to add.
func (j *journal) pace(much bool) {
	if p, ok := j.o.Recorder.(Pacer); ok {
		p.Pace(much)
	}
}
