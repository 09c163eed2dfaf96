package top

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/dmxfs/dmxfs/internal/snapshot"
)

// Styles, as ECMA-48 has them. Colours are the terminal's own.
const (
	bold    = "\x1b[1m"
	reverse = "\x1b[7m"
	red     = "\x1b[31m"
	yellow  = "\x1b[33m"
	faint   = "\x1b[2m"
	plain   = "\x1b[0m"
)

// mostHosts is how many hosts are shown.
const mostHosts = 5

// View is of [tea.Model].
func (m Model) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	return v
}

// lines are those of the screen: at most height, each at most width wide.
func (m *Model) lines() []string {
	if m.snap == nil {
		return []string{"dmxfs top: the daemon is asked …"}
	}
	out := m.header()
	if m.mode == telling {
		story := m.story()
		room := max(m.height-len(out)-1, 1)
		first := max(min(m.scroll, len(story)-room), 0)
		for _, l := range story[first:min(first+room, len(story))] {
			out = append(out, m.fit(snapshotText(l)))
		}
	} else {
		out = append(out, m.hosts()...)
		out = append(out, m.table()...)
	}
	for len(out) < m.height-1 {
		out = append(out, "")
	}
	return append(out[:m.height-1], m.foot())
}

// fit cuts a line to the width of the screen.
func (m *Model) fit(line string) string { return ansi.Truncate(line, m.width, "…") }

// snapshotText is a text with what terminals obey spelt out; an empty one stays
// empty.
func snapshotText(s string) string {
	if s == "" {
		return ""
	}
	return snapshot.Printable(s)
}

func (m *Model) header() []string {
	s, r := m.snap.Status, m.rates
	out := []string{
		m.fit(fmt.Sprintf("%sdmxfs%s %s  %s  epoch %d  %d members  %d waits, %d held in the cluster", bold, plain, snapshot.Printable(s.Mount), snapshot.Printable(s.State), s.Epoch, s.Members,
			len(m.snap.Graph.Waits), m.snap.Graph.Held)),
		m.fit(fmt.Sprintf("here, per second: %s grants, %s denied, %s lost, %s messages, %s requests, %sB read, %sB written; mean wait %s",
			number(r.Grants), number(r.Denials), number(r.Losses), number(r.Messages), number(r.Requests), number(r.Read), number(r.Written),
			time.Duration(r.Wait*float64(time.Second)).Round(10*time.Microsecond))),
	}
	alarm := func(format string, args ...any) {
		if len(out) < max(m.height/3, 3) {
			out = append(out, red+m.fit(snapshotText(fmt.Sprintf(format, args...)))+plain)
		}
	}
	if m.snap.Err != nil {
		alarm("this is old, of %s: %v", m.snap.At.Local().Format(time.TimeOnly), m.snap.Err)
	}
	for _, x := range m.snap.Silent() {
		if x.State == "expelled" {
			alarm("host %s was expelled: %s", m.snap.HostName(x.ID, x.Host), x.Error)
		} else {
			alarm("host %s is silent: what its programs hold and wait for is not known (%s)", m.snap.HostName(x.ID, x.Host), x.Error)
		}
	}
	if n := len(m.snap.Graph.Cycles); n > 0 {
		alarm("%d cycles: processes wait for one another, and none of them goes on by itself", n)
	}
	for _, p := range s.Problems {
		alarm("%s", p)
	}
	return out
}

// number is a rate for people.
func number(v float64) string {
	switch {
	case v >= 1e9:
		return fmt.Sprintf("%.1fG", v/1e9)
	case v >= 1e6:
		return fmt.Sprintf("%.1fM", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.1fk", v/1e3)
	case v == 0 || v >= 10:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

func (m *Model) hosts() []string {
	out := []string{m.fit(faint + fmt.Sprintf("%-24s %14s %8s %13s %8s", "HOST", "WAITED FOR BY", "WAITING", "LONGEST WAIT", "HELD") + plain)}
	all := m.snap.Hosts()
	for _, h := range all[:min(len(all), mostHosts, max(m.height/6, 1))] {
		longest := "-"
		if h.Waiting > 0 {
			longest = snapshot.Ago(h.Longest)
		}
		out = append(out, m.fit(fmt.Sprintf("%s %14d %8d %13s %8d", cell(m.snap.HostName(h.Node, h.Host), 24), h.Blocks, h.Waiting, longest, h.Held)))
	}
	return append(out, "")
}

// tableRows is how many rows of the table are on the screen.
func (m *Model) tableRows() int {
	if m.snap == nil {
		return 1
	}
	return max(m.height-len(m.header())-len(m.hosts())-2, 1)
}

// columns of the table: which have an order of their own.
var columns = []struct {
	head, sort string
	width      int
}{{"STATE", "", 8}, {"AGE", "since", 12}, {"HOST", "host", 14}, {"PID", "pid", 8}, {"COMMAND", "command", 14}, {"CLASS", "class", 6}, {"MODE", "-", 5}, {"FILE", "path", 0}}

func (m *Model) table() []string {
	var head strings.Builder
	for _, c := range columns {
		name := c.head
		if c.sort == m.query.Sort {
			name += map[bool]string{false: "▲", true: "▼"}[m.query.Down]
		}
		head.WriteString(cell(name, c.width) + " ")
	}
	out := []string{m.fit(bold + head.String() + plain)}
	n := m.tableRows()
	for i := m.first; i < min(m.first+n, len(m.rows)); i++ {
		l := m.rows[i]
		pid := "-"
		if l.PID != 0 {
			pid = fmt.Sprint(l.PID)
		}
		file := snapshotText(l.Name())
		if len(l.WaitsFor) > 0 {
			b := l.WaitsFor[0]
			file += " ← " + snapshotText(b.Host)
			if b.PID != 0 {
				file += fmt.Sprintf(" %d (%s)", b.PID, snapshotText(b.Command))
			}
			if len(l.WaitsFor) > 1 {
				file += fmt.Sprintf(" and %d more", len(l.WaitsFor)-1)
			}
		}
		line := m.fit(strings.Join([]string{cell(l.State, 8), cell(snapshot.Ago(m.snap.At.Sub(l.Since)), 12), cell(l.Host, 14), cell(pid, 8),
			cell(l.Command, 14), cell(l.Class, 6), cell(l.Mode, 5), file}, " "))
		switch {
		case i == m.at:
			line = reverse + line + plain
		case l.Long(m.snap.At, m.long):
			line = yellow + line + plain
		}
		out = append(out, line)
	}
	if len(m.rows) == 0 {
		out = append(out, faint+"no lock"+plain)
	}
	return out
}

// cell is a text in a column: printable, and as wide as that, if it is not 0.
func cell(text string, width int) string {
	text = snapshotText(text)
	if width == 0 {
		return text
	}
	text = ansi.Truncate(text, width, "…")
	return text + strings.Repeat(" ", max(width-ansi.StringWidth(text), 0))
}

// foot is the last line: what is asked, what came of an order, or the keys.
func (m *Model) foot() string {
	switch {
	case m.mode == searching:
		return m.fit("search: " + snapshotText(m.query.Words) + "█")
	case m.mode == reasoning:
		text := fmt.Sprintf("break %s of %s %d on %s; reason: %s█", m.chosen.Name(), m.chosen.Command, m.chosen.PID, m.chosen.Host, m.reason)
		if m.message != "" {
			text = m.message
		}
		return m.fit(bold + snapshotText(text) + plain)
	case m.mode == asking:
		return m.fit(bold + snapshotText(fmt.Sprintf("%s %d on %s gets EIO on %s until it closes it. Break the lock? [y/N]", m.chosen.Command, m.chosen.PID, m.chosen.Host, m.chosen.Name())) + plain)
	case m.message != "":
		return m.fit(bold + snapshotText(m.message) + plain)
	case m.mode == telling:
		return m.fit(faint + "↑↓ scroll   b break   Esc back" + plain)
	}
	keys := "↑↓ choose   Enter story   b break   s sort   r reverse   h which   / search   q quit"
	if m.query.Words != "" {
		keys = fmt.Sprintf("%d match %q (Esc: all)   ", len(m.rows), m.query.Words) + keys
	}
	return m.fit(faint + keys + plain)
}
