package top

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/dmxfs/dmxfs/internal/snapshot"
	"github.com/dmxfs/dmxfs/internal/waitgraph"
)

// mode is what keys are for.
type mode int

const (
	listing   mode = iota // the table
	searching             // words are typed
	telling               // a lock's story is shown
	reasoning             // a reason is typed, to break a lock
	asking                // a break is to be confirmed
)

// Model is the state of the view.
type Model struct {
	snap  *snapshot.Snapshot // nil: there is none yet
	rates Rates
	long  time.Duration

	width, height int
	mode          mode
	query         snapshot.Query
	sort          int // of sorts
	rows          []*snapshot.Lock
	at            int // the row that is chosen
	first         int // the first row that is shown
	scroll        int // of a story

	chosen  *snapshot.Lock // of a story or an order
	reason  string
	message string // what came of an order
	busy    bool   // an order is under way

	breakLock func(l snapshot.Lock, reason string) tea.Cmd
}

// sorts are the columns that the table is sorted by, in turn. The first is by
// state, waits before locks that are held, and those by age.
var sorts = []string{"", "since", "path", "host", "pid", "command", "class"}

// taken is a snapshot, and the rates since the one before.
type taken struct {
	snap  *snapshot.Snapshot
	rates Rates
}

// done is what came of an order.
type done struct {
	text string
	err  error
}

// NewModel makes the state of a view in which waits as long as that stand out.
// Who breaks locks is breakLock.
func NewModel(long time.Duration, breakLock func(l snapshot.Lock, reason string) tea.Cmd) Model {
	return Model{long: long, width: 80, height: 24, breakLock: breakLock}
}

// Init is of [tea.Model].
func (m Model) Init() tea.Cmd { return nil }

// Update is of [tea.Model].
func (m Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = max(msg.Width, 20), max(msg.Height, 8)
	case taken:
		m.snap, m.rates = msg.snap, msg.rates
		m.refill()
	case done:
		m.busy = false
		if m.message = msg.text; msg.err != nil {
			m.message = "that failed: " + msg.err.Error()
		}
	case tea.PasteMsg:
		m.typed(msg.Content)
	case tea.KeyPressMsg:
		return m.key(msg)
	}
	m.frame()
	return m, nil
}

func (m Model) key(k tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	if k.String() == "ctrl+c" {
		return m, tea.Quit
	}
	var cmd tea.Cmd
	switch m.mode {
	case listing:
		cmd = m.list(k.String())
	case telling:
		m.tell(k.String())
	case searching, reasoning:
		m.edit(k)
	case asking:
		cmd = m.answer(k.String())
	}
	m.frame()
	return m, cmd
}

// list takes a key in the table.
func (m *Model) list(key string) tea.Cmd {
	switch key {
	case "q":
		return tea.Quit
	case "up", "k":
		m.at--
	case "down", "j":
		m.at++
	case "pgup":
		m.at -= m.tableRows()
	case "pgdown", "space":
		m.at += m.tableRows()
	case "home", "g":
		m.at = 0
	case "end", "G":
		m.at = len(m.rows)
	case "s":
		m.sort = (m.sort + 1) % len(sorts)
		m.query.Sort = sorts[m.sort]
		m.refill()
	case "r":
		m.query.Down = !m.query.Down
		m.refill()
	case "h":
		next := map[string]string{"": snapshot.Waiting, snapshot.Waiting: snapshot.Held, snapshot.Held: "all", "all": ""}
		m.query.State = next[m.query.State]
		m.refill()
	case "/":
		m.mode = searching
	case "esc":
		m.query.Words, m.message = "", ""
		m.refill()
	case "enter":
		if l := m.current(); l != nil {
			m.chosen, m.mode, m.scroll = l, telling, 0
		}
	case "b":
		m.beginBreak()
	}
	return nil
}

// beginBreak asks for the reason to break the lock that is chosen.
func (m *Model) beginBreak() {
	l := m.chosen
	if m.mode == listing {
		l = m.current()
	}
	switch {
	case l == nil:
	case m.busy:
		m.message = "an order is under way: wait for what comes of it"
	case l.State != snapshot.Held:
		m.message = "only a lock that a program holds can be broken: choose the one in the way"
	default:
		m.chosen, m.mode, m.reason, m.message = l, reasoning, "", ""
	}
}

// tell takes a key in a story.
func (m *Model) tell(key string) {
	switch key {
	case "q", "esc", "enter", "left":
		m.mode = listing
	case "up", "k":
		m.scroll--
	case "down", "j":
		m.scroll++
	case "pgup":
		m.scroll -= m.height / 2
	case "pgdown", "space":
		m.scroll += m.height / 2
	case "b":
		m.beginBreak()
	}
}

// maxReason is how many characters a reason may have.
const maxReason = 500

// edit takes a key in a line that is typed.
func (m *Model) edit(k tea.KeyPressMsg) {
	switch key := k.String(); key {
	case "esc":
		if m.mode == searching {
			m.query.Words = ""
			m.refill()
		} else {
			m.message = "nothing was broken"
		}
		m.mode = listing
	case "enter":
		switch {
		case m.mode == searching:
			m.mode = listing
		case strings.TrimSpace(m.reason) == "":
			m.message = "give a reason: it goes to the journals (Esc: break nothing)"
		default:
			m.mode, m.message = asking, ""
		}
	case "backspace":
		text := m.line()
		_, n := utf8.DecodeLastRuneInString(*text)
		*text = (*text)[:len(*text)-n]
		m.refill()
	default:
		m.typed(k.Text)
	}
}

// line is the text that is typed.
func (m *Model) line() *string {
	if m.mode == reasoning {
		return &m.reason
	}
	return &m.query.Words
}

func (m *Model) typed(text string) {
	if m.mode != searching && m.mode != reasoning {
		return
	}
	line := m.line()
	for _, r := range text {
		if unicode.IsPrint(r) && utf8.RuneCountInString(*line) < maxReason {
			*line += string(r)
		}
	}
	m.refill()
}

// answer takes a key when a break is to be confirmed.
func (m *Model) answer(key string) tea.Cmd {
	m.mode = listing
	if key != "y" && key != "Y" {
		m.message = "nothing was broken"
		return nil
	}
	m.busy, m.message = true, "breaking it …"
	return m.breakLock(*m.chosen, strings.TrimSpace(m.reason))
}

// current is the lock that is chosen in the table.
func (m *Model) current() *snapshot.Lock {
	if m.at < 0 || m.at >= len(m.rows) {
		return nil
	}
	return m.rows[m.at]
}

// refill makes the rows anew; the one that was chosen stays so.
func (m *Model) refill() {
	if m.snap == nil {
		return
	}
	was := m.current()
	m.rows = m.snap.Find(m.query)
	if m.query.Sort == "" {
		slices.SortStableFunc(m.rows, func(a, b *snapshot.Lock) int {
			c := strings.Compare(b.State, a.State) // waiting, held, cached
			if c == 0 {
				c = a.Since.Compare(b.Since)
			}
			if m.query.Down {
				c = -c
			}
			return c
		})
	}
	if was != nil {
		if i := slices.IndexFunc(m.rows, func(l *snapshot.Lock) bool { return l.Same(*was) }); i >= 0 {
			m.at = i
		}
	}
	if m.chosen == nil {
		return
	}
	// The story goes on.
	if i := slices.IndexFunc(m.snap.Locks, func(l snapshot.Lock) bool { return l.Same(*m.chosen) }); i >= 0 {
		m.chosen = &m.snap.Locks[i]
	}
}

// frame keeps what is chosen within the table, and that on the screen.
func (m *Model) frame() {
	m.at = max(min(m.at, len(m.rows)-1), 0)
	n := m.tableRows()
	m.first = max(min(m.first, m.at), m.at-n+1, 0)
	m.scroll = max(m.scroll, 0)
}

// story is what is told of the lock that is chosen.
func (m *Model) story() []string {
	l := m.chosen
	there := slices.ContainsFunc(m.snap.Locks, func(x snapshot.Lock) bool { return x.Same(*l) })
	out := []string{
		fmt.Sprintf("%s (%s, %s, bytes %s)", l.Name(), l.Class, l.Mode, snapshot.Span(l.Start, l.End)),
		fmt.Sprintf("%s %d on %s, user %d: %s for %s, since %s", l.Command, l.PID, l.Host, l.UID, l.State, snapshot.Ago(m.snap.At.Sub(l.Since)),
			l.Since.Local().Format(time.DateTime)),
		fmt.Sprintf("algorithm %s, request %d, token %d, file %s", l.Algorithm, l.Request, l.Token, l.File), "",
	}
	if !there {
		return append(out, "It is no longer there: dmxfs journal tells what became of it.")
	}
	if l.State == snapshot.Waiting && l.PID != 0 {
		out = append(out, m.snap.Graph.Why(waitgraph.Target{PID: l.PID, Host: l.Node}).Lines()...)
	}
	behind := 0
	for i := range m.snap.Graph.Waits {
		w := &m.snap.Graph.Waits[i]
		if w.File == l.File && w.Class == l.Class && slices.ContainsFunc(w.For, func(b waitgraph.Blocker) bool { return b.Node == l.Node && b.PID == l.PID && l.PID != 0 }) {
			if behind++; behind == 1 {
				out = append(out, "Who waits for it:")
			}
			out = append(out, fmt.Sprintf("  %s %d on %s, for %s", w.Command, w.PID, w.Host, snapshot.Ago(m.snap.At.Sub(w.Since))))
		}
	}
	if behind == 0 && l.State == snapshot.Held {
		out = append(out, "Nobody waits for it.")
	}
	return out
}

// breaker makes the order to break a lock.
func breaker(ctx context.Context, from snapshot.Source, who string) func(snapshot.Lock, string) tea.Cmd {
	return func(l snapshot.Lock, reason string) tea.Cmd {
		return func() tea.Msg {
			b, err := from.Break(ctx, []snapshot.Lock{l}, fmt.Sprintf("%s (asked for in dmxfs top by %s)", reason, who))
			switch {
			case err != nil:
				return done{err: err}
			case len(b.Errors) > 0:
				return done{err: fmt.Errorf("%s", strings.Join(b.Errors, "; "))}
			case len(b.Broken) == 0:
				return done{text: "nothing was broken: the program gave the lock up meanwhile"}
			}
			return done{text: fmt.Sprintf("broken: %s, held by %s %d on %s", l.Name(), l.Command, l.PID, l.Host)}
		}
	}
}
