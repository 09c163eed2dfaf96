package web

import (
	"bufio"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dmxfs/dmxfs/internal/snapshot"
	"github.com/dmxfs/dmxfs/internal/waitgraph"
)

var allPaths = []string{"", "locks", "files", "members", "policy", "journal", "events", "app.js", "style.css", "member?id=B", "lock?request=1&pid=11&start=0"}

func TestNothingWithoutTheToken(t *testing.T) {
	t.Parallel()
	f := twoHosts(false)
	s := newSite(t, f, true)
	for _, p := range allPaths {
		for _, prefix := range []string{s.base, "/"} {
			if code, body := s.ask("GET", prefix+p, nil); code != http.StatusForbidden || strings.Contains(body, "writer") {
				t.Errorf("GET %s: %d %q, want 403 and nothing else", prefix+p, code, body)
			}
		}
	}
	for _, p := range []string{"break", "remove"} {
		if code, _ := s.ask("POST", s.base+p, url.Values{"id": {"B"}, "reason": {"x"}, "csrf": {""}}); code != http.StatusForbidden {
			t.Errorf("POST %s: %d, want 403", p, code)
		}
	}
	for _, token := range []string{"", "x", s.sessions.next() + "x"} {
		if code, _ := s.ask("GET", "/?token="+url.QueryEscape(token), nil); code != http.StatusForbidden {
			t.Errorf("token %q: %d, want 403", token, code)
		}
	}
	if code, _ := s.ask("GET", s.base, nil, func(r *http.Request) { r.AddCookie(&http.Cookie{Name: cookieName, Value: "guess"}) }); code != http.StatusForbidden {
		t.Errorf("with a guessed cookie: %d, want 403", code)
	}
	if len(f.removed)+len(f.broken) > 0 {
		t.Error("an order was carried out")
	}
}

func TestATokenOpensOneSession(t *testing.T) {
	t.Parallel()
	s := newSite(t, twoHosts(false), false)
	first := s.URL()
	r, err := s.client.Get(first)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	c := r.Cookies()
	if len(c) != 1 || !c[0].HttpOnly || c[0].SameSite != http.SameSiteStrictMode || c[0].Path != s.base {
		t.Errorf("cookies %v: want one, HttpOnly, SameSite=Strict, for %s only", c, s.base)
	}
	if r.StatusCode != http.StatusOK || r.Header.Get("Location") != "" {
		t.Errorf("%s %v: want a page that leads on", r.Status, r.Header)
	}
	if !strings.Contains(s.page(""), "writer") {
		t.Error("the session does not see the page")
	}
	s.client.Jar = nil
	if code, _ := s.ask("GET", first, nil); code != http.StatusForbidden {
		t.Errorf("the token a second time: %d, want 403", code)
	}
	if s.URL() == first {
		t.Error("the next URL is that of before")
	}
}

func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	s := newSessions()
	now := time.Now()
	cookie, _ := s.exchange(s.next(), now)
	r := httptest.NewRequest("GET", "/", nil)
	r.AddCookie(&http.Cookie{Name: cookieName, Value: cookie})
	now = now.Add(sessionIdle - time.Minute)
	if _, ok := s.of(r, now); !ok {
		t.Error("a session ended early")
	}
	now = now.Add(sessionIdle - time.Minute)
	if _, ok := s.of(r, now); !ok {
		t.Error("a session that is used ended")
	}
	if _, ok := s.of(r, now.Add(sessionIdle+time.Minute)); ok {
		t.Error("a session that is not used goes on")
	}
}

func TestNamesOfOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, twoHosts(false), false).enter()
	s.opts.Names = []string{"admin.example"}
	at, err := url.Parse(s.http.URL + s.base)
	if err != nil {
		t.Fatal(err)
	}
	mine := s.client.Jar.Cookies(at)
	s.client.Jar = nil // which goes by the name
	for host, want := range map[string]int{
		"127.0.0.1:1": 200, "localhost:1": 200, "[::1]:1": 200, "Admin.Example": 200,
		"evil.example": 421, "127.0.0.1.evil.example:80": 421, "localhost.evil.example": 421, "": 200,
	} {
		code, _ := s.ask("GET", s.base, nil, func(r *http.Request) {
			r.Host = host
			r.AddCookie(mine[0])
		})
		if code != want {
			t.Errorf("Host %q: %d, want %d", host, code, want)
		}
	}
}

func TestWhatABrowserMayDo(t *testing.T) {
	t.Parallel()
	s := newSite(t, twoHosts(true), true).enter()
	for _, p := range allPaths {
		if p == "events" {
			continue
		}
		r, err := s.client.Get(s.http.URL + s.base + p)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s", p, r.Status, b)
		}
		csp := r.Header.Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: policy %q", p, csp)
		}
		// What the policy forbids, the pages do not use; and nothing is elsewhere.
		if m := regexp.MustCompile(`(?i)<style|\sstyle=|\son[a-z]+=|<script[^>]*>[^<]|(src|href)="?(https?:|//)`).FindString(string(b)); m != "" && !strings.HasSuffix(p, ".js") {
			t.Errorf("%s has %q", p, m)
		}
	}
}

func TestOrdersNeedAdminReasonAndForm(t *testing.T) {
	t.Parallel()
	f := twoHosts(false)
	lock := url.Values{"node": {"A"}, "file": {"idb"}, "class": {"flock"}, "request": {"1"}, "pid": {"11"}, "start": {"0"}}
	order := func(s *site, csrf, reason string, change ...func(*http.Request)) (int, string) {
		v := url.Values{"csrf": {csrf}, "reason": {reason}}
		for k, x := range lock {
			v[k] = x
		}
		return s.ask("POST", s.base+"break", v, change...)
	}
	s := newSite(t, f, true).enter()
	csrf := s.csrf()
	if code, _ := order(s, "", "why"); code != http.StatusForbidden {
		t.Errorf("without the token of the form: %d", code)
	}
	if code, _ := order(s, csrf+"x", "why"); code != http.StatusForbidden {
		t.Errorf("with a wrong token: %d", code)
	}
	if code, _ := order(s, csrf, "why", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }); code != http.StatusForbidden {
		t.Errorf("from another site: %d", code)
	}
	if code, _ := order(s, csrf, "why", func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }); code != http.StatusForbidden {
		t.Errorf("from another origin: %d", code)
	}
	if code, body := order(s, csrf, "  "); code != http.StatusUnprocessableEntity || !strings.Contains(body, "give a reason") {
		t.Errorf("without a reason: %d", code)
	}
	if code, _ := order(s, csrf, strings.Repeat("x", maxReason+1)); code != http.StatusUnprocessableEntity {
		t.Errorf("with a reason that is too long: %d", code)
	}
	if len(f.broken) > 0 {
		t.Fatal("a lock was broken")
	}
	code, body := order(s, csrf, "it hangs")
	if code != http.StatusOK || !strings.Contains(body, "broken: db, class flock, W, process 11 (writer) on one") {
		t.Errorf("in order: %d %s", code, body)
	}
	if len(f.broken) != 1 || f.broken[0].PID != 11 || f.reasons[0] != "it hangs (asked for on the page by user root on one)" {
		t.Errorf("broken %v, reasons %q", f.broken, f.reasons)
	}
	if code, body := s.ask("POST", s.base+"remove", url.Values{"csrf": {csrf}, "reason": {"gone"}, "id": {"B"}}); code != http.StatusOK || !strings.Contains(body, "two (B) is removed") {
		t.Errorf("remove: %d %s", code, body)
	}
	if code, _ := s.ask("POST", s.base+"remove", url.Values{"csrf": {csrf}, "reason": {"gone"}, "id": {"A"}}); code != http.StatusUnprocessableEntity || len(f.removed) != 1 {
		t.Errorf("remove this node: %d, removed %v", code, f.removed)
	}
	// A lock that is not held any more, and one that only waits.
	lock.Set("request", "77")
	if code, _ := order(s, csrf, "why"); code != http.StatusUnprocessableEntity {
		t.Errorf("a lock that is gone: %d", code)
	}
	lock = url.Values{"node": {"B"}, "file": {"idb"}, "class": {"flock"}, "request": {"1"}, "pid": {"22"}, "start": {"0"}}
	if code, _ := order(s, csrf, "why"); code != http.StatusUnprocessableEntity || len(f.broken) != 1 {
		t.Errorf("a lock that is waited for: %d, broken %v", code, f.broken)
	}
}

func TestWithoutAdminThePageOnlyShows(t *testing.T) {
	t.Parallel()
	f := twoHosts(false)
	s := newSite(t, f, false).enter()
	for _, p := range allPaths {
		if p != "events" && strings.Contains(s.page(p), `method="post"`) {
			t.Errorf("%s has a form for orders", p)
		}
	}
	var csrf string
	for _, x := range s.sessions.open {
		csrf = x.csrf
	}
	for _, p := range []string{"break", "remove"} {
		v := url.Values{"csrf": {csrf}, "reason": {"why"}, "id": {"B"}, "node": {"A"}, "file": {"idb"}, "class": {"flock"}, "request": {"1"}, "pid": {"11"}, "start": {"0"}}
		if code, body := s.ask("POST", s.base+p, v); code != http.StatusForbidden || !strings.Contains(body, "--admin") {
			t.Errorf("%s: %d %s", p, code, body)
		}
	}
	if len(f.broken)+len(f.removed) > 0 {
		t.Error("an order was carried out")
	}
}

// hostile is a name that means something to HTML, scripts, URLs and terminals.
const hostile = "</title></script><script>alert(1)</script>\"' onload=x &amp;\x1b[31m\u202e\x00\xff javascript:x?a=b#c%2e"

func TestHostileNames(t *testing.T) {
	t.Parallel()
	f := twoHosts(true)
	for i := range f.rows {
		f.rows[i].Member.Host = hostile
		f.rows[i].Member.Why = hostile
		f.peers[i].Host, f.peers[i].Addrs, f.peers[i].Version = hostile, []string{hostile}, hostile
		for j := range f.rows[i].Rows {
			r := &f.rows[i].Rows[j]
			r.Path, r.Command, r.File = hostile+r.Path, hostile, hostile+r.File
		}
	}
	f.rows = append(f.rows, waitgraph.Answer{Member: waitgraph.Member{ID: hostile, Host: hostile, State: "silent", Error: hostile}})
	f.records = []snapshot.Record{{Event: "note", Path: hostile, Command: hostile, Reason: hostile, File: hostile, PID: 1, WaitMS: 3}}
	s := newSite(t, f, true).enter()
	link := regexp.MustCompile(`href="(lock\?[^"]*)"`).FindStringSubmatch(s.page("locks"))
	if link == nil {
		t.Fatal("no link to a lock")
	}
	lock := html.UnescapeString(link[1])
	for _, p := range []string{"", "locks", "locks?q=" + url.QueryEscape("script") + "&file=" + url.QueryEscape(hostile), "files", "members", "member?id=A",
		"journal?path=" + url.QueryEscape(hostile) + "&q=" + url.QueryEscape(hostile), "locks?sort=" + url.QueryEscape(hostile), lock} {
		body := s.page(p)
		if n := strings.Count(body, "<script"); n != 1 {
			t.Errorf("%s: %d scripts, want the page's own", p, n)
		}
		// A form has what was asked for, as it is, where nobody sees it.
		body = regexp.MustCompile(`value="[^"]*"`).ReplaceAllString(body, "")
		if i := strings.IndexFunc(body, func(r rune) bool { return r != '\n' && r != '\t' && (r < ' ' || r == 0x7f || r == '\u202e') }); i >= 0 {
			t.Errorf("%s has a character that is obeyed: %q", p, body[max(i-30, 0):i+10])
		}
		if !strings.Contains(body, `&lt;/title&gt;`) && p != "member?id=A" {
			t.Errorf("%s does not show the name: %s", p, body)
		}
	}
	// A link still leads to the lock that it is of.
	if body := s.page(lock); strings.Contains(body, "no longer there") {
		t.Error("the link of a lock with a hostile name leads nowhere")
	}
}

// The journal is asked for what happened to a file by a pattern for its name alone,
// whatever is in that.
func TestNamesThatLookLikePatterns(t *testing.T) {
	t.Parallel()
	f := twoHosts(false)
	f.rows[0].Rows[0].Path = "x[*\xc3\xa4"
	f.records = []snapshot.Record{{Event: "granted", Path: "x[*\xc3\xa4", WaitMS: 3}}
	s := newSite(t, f, false).enter()
	link := regexp.MustCompile(`href="(lock\?[^"]*)"`).FindStringSubmatch(s.page("locks?q=writer"))
	if link == nil {
		t.Fatal("no link to a lock")
	}
	s.page(html.UnescapeString(link[1]))
	f.mu.Lock()
	got := f.filters[len(f.filters)-1].Get("path")
	f.mu.Unlock()
	if want := `x\[\*` + "\xc3\xa4"; got != want {
		t.Errorf("the journal is asked for %q, want %q", got, want)
	}
	if body := s.page("files"); !strings.Contains(body, "journal?path="+url.QueryEscape(`x\[\*`+"\xc3\xa4")) && !strings.Contains(body, `journal?path=x%5c%5b%5c%2a%c3%a4`) {
		t.Errorf("files have no link to the journal with the pattern: %s", body)
	}
}

func TestCycleAndLongWait(t *testing.T) {
	t.Parallel()
	f := twoHosts(false)
	f.rows[1].Rows[0].Since = time.Now().Add(-time.Minute)
	s := newSite(t, f, false).enter()
	body := s.page("")
	if strings.Contains(body, "cycle:") || !strings.Contains(body, `class="edge waits long"`) || !strings.Contains(body, "reader 22") {
		t.Errorf("a long wait does not stand out: %s", body)
	}
	s = newSite(t, twoHosts(true), false).enter()
	body = s.page("")
	if !strings.Contains(body, "1 cycle: processes wait for one another") || strings.Count(body, `class="node process cycle"`) != 2 ||
		strings.Count(body, `<g class="edge waits cycle"`) != 2 || strings.Count(body, `<g class="edge holds cycle"`) != 2 {
		t.Errorf("the cycle is not marked: %s", body)
	}
}

func TestASilentMemberIsTold(t *testing.T) {
	t.Parallel()
	f := twoHosts(false)
	f.rows[0] = waitgraph.Answer{Member: waitgraph.Member{ID: "A", Host: "one", State: "silent", Error: "no answer within 700ms"}}
	s := newSite(t, f, false).enter()
	for _, p := range []string{"", "locks", "members", "journal"} {
		if body := s.page(p); !strings.Contains(body, "<strong>one</strong> is silent") {
			t.Errorf("%q does not tell of the member that is silent", p)
		}
	}
	if body := s.page("member?id=A"); !strings.Contains(body, "does not answer: what it holds is not known") {
		t.Error("the member's page says that it holds nothing")
	}
}

func TestAnOldPictureIsToldOf(t *testing.T) {
	t.Parallel()
	f := twoHosts(false)
	s := newSite(t, f, false).enter()
	s.page("")
	f.set(func(f *fake) { f.err = errors.New("no dmxfs daemon answers") })
	for {
		body := s.page("")
		if strings.Contains(body, "What is shown may be old") {
			if !strings.Contains(body, "writer") {
				t.Error("what was known is gone")
			}
			return
		}
		if t.Context().Err() != nil {
			t.Fatal("the page does not tell that the daemon is gone")
		}
	}
}

// TestEvents: a change is told to who listens, soon, and the part of the page has
// it.
func TestEvents(t *testing.T) {
	t.Parallel()
	f := twoHosts(false)
	s := newSite(t, f, false).enter()
	s.client.Timeout = time.Minute // an event that never comes is a failure
	r, err := s.client.Get(s.http.URL + s.base + "events")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	lines := bufio.NewScanner(r.Body)
	next := func() {
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "data:") {
				return
			}
		}
		t.Fatalf("the events ended: %v", lines.Err())
	}
	next()
	f.set(func(f *fake) {
		f.rows[0].Rows = append(f.rows[0].Rows, waiting("log", 33, "latecomer", 9, "B"))
	})
	began := time.Now()
	for {
		next()
		code, body := s.ask("GET", s.base, nil, func(r *http.Request) { r.Header.Set("X-Fragment", "1") })
		if code != http.StatusOK || strings.Contains(body, "<html") {
			t.Fatalf("a part: %d %s", code, body)
		}
		if strings.Contains(body, "latecomer 33") {
			t.Logf("seen after %v", time.Since(began))
			return
		}
	}
}

// many are n locks of 10 hosts.
func many(n int) *fake {
	f := &fake{}
	for h := range 10 {
		id := fmt.Sprintf("N%d", h)
		a := waitgraph.Answer{Member: member(id, fmt.Sprintf("host%d", h))}
		for i := range n / 10 {
			a.Rows = append(a.Rows, held(fmt.Sprintf("some/folder%d/of/files/file-%05d.db", i%37, h*n/10+i), 1000+i, "postgres", uint64(i+1)))
		}
		f.rows = append(f.rows, a)
		f.peers = append(f.peers, snapshot.Peer{ID: id, Host: a.Member.Host, State: "live"})
	}
	return f
}

func TestSearchInManyLocks(t *testing.T) {
	t.Parallel()
	s := newSite(t, many(10000), false).enter()
	if body := s.page("locks"); !strings.Contains(body, "10000 found, 1 to 100 shown") || !strings.Contains(body, `rel="next"`) {
		t.Error("the table has not its first window")
	}
	if body := s.page("locks?from=9999&sort=path"); !strings.Contains(body, "9901 to 10000 shown") || strings.Contains(body, `rel="next"`) {
		t.Error("the table has not its last window")
	}
	began := time.Now()
	body := s.page("locks?q=HOST7+file-0742")
	took := time.Since(began)
	if !strings.Contains(body, "10 found") {
		t.Errorf("the search finds something else: %s", regexp.MustCompile(`\d+ found`).FindString(body))
	}
	t.Logf("a search in 10000 locks took %v", took)
	if took > 2*time.Second { // loaded, with the race detector; some ms else
		t.Errorf("a search in 10000 locks took %v", took)
	}
}

func BenchmarkSearch(b *testing.B) {
	f := many(10000)
	snap := snapshot.Take(b.Context(), f, nil, time.Second)
	for b.Loop() {
		if n := len(snap.Find(snapshot.Query{Words: "host7 file-0742", Sort: "path"})); n != 10 {
			b.Fatal(n)
		}
	}
}

func TestJournalFilters(t *testing.T) {
	t.Parallel()
	f := twoHosts(false)
	f.records = []snapshot.Record{{Seq: 1, Event: "granted", Path: "db", Command: "writer"}, {Seq: 2, Event: "lost", Path: "log", Reason: "broken by an admin"}}
	s := newSite(t, f, false).enter()
	body := s.page("journal?q=ADMIN&path=/db&event=lost&pid=11&since=2h")
	if strings.Contains(body, ">granted</td>") || !strings.Contains(body, "broken by an admin") {
		t.Errorf("the words do not filter: %s", body)
	}
	got := f.filters[len(f.filters)-1]
	if got.Get("path") != "db" || got.Get("event") != "lost" || got.Get("pid") != "11" || got.Get("since") == "" || got.Get("last") == "" {
		t.Errorf("the daemon is asked for %v", got)
	}
	for _, q := range []string{"event=x", "pid=x", "pid=-1", "since=x", "until=x"} {
		if code, body := s.ask("GET", s.base+"journal?"+q, nil); code != http.StatusBadGateway || !strings.Contains(body, "That failed") {
			t.Errorf("%s: %d", q, code)
		}
	}
}
