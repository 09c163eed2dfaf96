package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dmxfs/dmxfs/internal/snapshot"
)

// maxReason is how long a reason may be.
const maxReason = 1000

// outcome is what came of an order.
type outcome struct {
	Failed bool
	Lines  []string
}

var errNoAdmin = errors.New("this page only shows: start dmxfs web with --admin to give orders")

// reason is the one that a form gives, with who asked, for the journals.
func (s *Server) reason(r *http.Request) (string, error) {
	if !s.opts.Admin {
		return "", errNoAdmin
	}
	why := strings.TrimSpace(strings.ToValidUTF8(r.PostFormValue("reason"), "\ufffd"))
	switch {
	case why == "":
		return "", errors.New("give a reason: it goes to the journals")
	case utf8.RuneCountInString(why) > maxReason:
		return "", fmt.Errorf("the reason is longer than %d characters", maxReason)
	}
	return fmt.Sprintf("%s (asked for on the page by %s)", why, s.opts.Who), nil
}

// breakLock takes a lock away from its program.
func (s *Server) breakLock(w http.ResponseWriter, r *http.Request) {
	s.order(w, r, func(ctx context.Context, why string) ([]string, error) {
		k, err := readKey(r.PostFormValue)
		if err != nil {
			return nil, err
		}
		// As it is now: the page may be old.
		now, err := s.opts.Source.Locks(ctx, 3*time.Second)
		if err != nil {
			return nil, err
		}
		var meant []snapshot.Lock
		for _, l := range now.Locks {
			if keyOf(&l) == k && l.State == snapshot.Held {
				meant = append(meant, l)
			}
		}
		if len(meant) == 0 {
			return nil, errors.New("nothing was broken: the program does not hold that lock any more, or its host does not answer")
		}
		done, err := s.opts.Source.Break(ctx, meant, why)
		if err != nil {
			return nil, err
		}
		var lines []string
		for _, l := range done.Broken {
			lines = append(lines, fmt.Sprintf("broken: %s, class %s, %s, process %d (%s) on %s", l.Name(), l.Class, l.Mode, l.PID, l.Command, l.Host))
		}
		if len(done.Errors) > 0 {
			return lines, errors.New(strings.Join(done.Errors, "; "))
		}
		if len(lines) == 0 {
			return nil, errors.New("nothing was broken: the program gave the lock up meanwhile")
		}
		return lines, nil
	})
}

// removeMember drops a member.
func (s *Server) removeMember(w http.ResponseWriter, r *http.Request) {
	s.order(w, r, func(ctx context.Context, why string) ([]string, error) {
		id := r.PostFormValue("id")
		v, err := s.opts.Source.Peers(ctx)
		if err != nil {
			return nil, err
		}
		if id == v.Self {
			return nil, errors.New("that is this node: unmount it")
		}
		for _, m := range v.Members {
			if m.ID != id {
				continue
			}
			if err := s.opts.Source.Remove(ctx, id, why); err != nil {
				return nil, err
			}
			return []string{fmt.Sprintf("%s (%s) is removed", m.Host, m.ID)}, nil
		}
		return nil, fmt.Errorf("%s is not a member", id)
	})
}

// order carries out do, and tells what came of it. It goes on when the browser
// has gone: what is half done is not known to anybody.
func (s *Server) order(w http.ResponseWriter, r *http.Request, do func(ctx context.Context, why string) ([]string, error)) {
	snap, version := s.poll.get(r.Context())
	code := http.StatusOK
	var o outcome
	why, err := s.reason(r)
	if err == nil {
		o.Lines, err = do(context.WithoutCancel(r.Context()), why)
	}
	if err != nil {
		o.Failed, code = true, http.StatusUnprocessableEntity
		if errors.Is(err, errNoAdmin) {
			code = http.StatusForbidden
		}
		o.Lines = append(o.Lines, err.Error())
	}
	s.poll.poke()
	s.render(w, r, code, "done", "Done", snap, version, o)
}
