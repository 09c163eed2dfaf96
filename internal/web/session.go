package web

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"sync"
	"time"
)

const (
	// sessionIdle is how long a session lives that is not used.
	sessionIdle = 12 * time.Hour
	cookieName  = "dmxfs"
)

// sessions are who may use the page.
type sessions struct {
	mu sync.Mutex
	// token is the next one that opens a session; each does so once.
	token string
	// open has them by the hash of the cookie, so that no comparison tells how
	// much of one was right.
	open map[[sha256.Size]byte]*session
}

type session struct {
	csrf string
	used time.Time
}

func newSessions() *sessions {
	return &sessions{token: rand.Text(), open: map[[sha256.Size]byte]*session{}}
}

// next is the token that opens the next session.
func (s *sessions) next() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.token
}

// exchange turns the one-time token into the secret of a session.
func (s *sessions) exchange(token string, now time.Time) (cookie string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) != 1 {
		return "", false
	}
	s.token = rand.Text()
	for k, x := range s.open {
		if now.Sub(x.used) > sessionIdle {
			delete(s.open, k)
		}
	}
	cookie = rand.Text()
	s.open[sha256.Sum256([]byte(cookie))] = &session{csrf: rand.Text(), used: now}
	return cookie, true
}

// of is the CSRF token of the session that a request belongs to; ok is false if
// it belongs to none.
func (s *sessions) of(r *http.Request, now time.Time) (csrf string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range r.CookiesNamed(cookieName) {
		x := s.open[sha256.Sum256([]byte(c.Value))]
		if x != nil && now.Sub(x.used) <= sessionIdle {
			x.used = now
			return x.csrf, true
		}
	}
	return "", false
}
