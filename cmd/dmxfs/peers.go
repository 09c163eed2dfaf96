package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/ask"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/printing"
)

func newPeersCommand(s streams) *cobra.Command {
	c := show(s, "peers", "List the members of the cluster, and who went",
		`List the members of the cluster: the state that each one says it is in, or, if
it does not answer, what this node knows of it; the round trip time; when it was
last heard; and its version. Then who left or was expelled since this daemon began, who wants
to join, and who is revoked.

  live           grants locks
  synchronizing  a new epoch begins: the members tell each other what they hold
  suspended      not sure of the others or of the storage: grants nothing, I/O under locks waits
  silent         does not answer; it will be dropped when its locks must have ended`,
		"/peers", func(v admin.Peers) ([]string, [][]string) {
			return peerHeads, peerRows(v, time.Now())
		})
	c.AddCommand(newPeersRemoveCommand(s), newPeersRevokeCommand(s), newPeersForgetCommand(s))
	return c
}

var peerHeads = []string{"ID", "HOST", "STATE", "RTT", "LAST HEARD", "VERSION", "ADDRESSES"}

func peerRows(v admin.Peers, now time.Time) [][]string {
	var rows [][]string
	for _, m := range v.Members {
		rtt, heard := "-", "-"
		if m.RTTMS != nil {
			rtt = strconv.FormatFloat(*m.RTTMS, 'f', 2, 64) + " ms"
		}
		if m.LastHeardMS != nil {
			heard = (time.Duration(*m.LastHeardMS) * time.Millisecond).String()
		}
		host := m.Host
		if m.ID == v.Self {
			host += " (this node)"
		}
		rows = append(rows, []string{m.ID, host, m.State, rtt, heard, cmp.Or(m.Version, "-"), strings.Join(m.Addrs, " ")})
	}
	for _, j := range v.Joining {
		rows = append(rows, []string{j.ID, j.Host, j.State, "-", "-", "-", strings.Join(j.Addrs, " ")})
	}
	for _, g := range v.Gone {
		rows = append(rows, []string{g.ID, g.Host, g.State, "-", printing.Ago(g.At, now), "-", g.Why})
	}
	for _, r := range v.Revoked {
		rows = append(rows, []string{r, "-", "revoked", "-", "-", "-", "-"})
	}
	return rows
}

// findPeer is the member with an ID or, if there is only one, a host name.
func findPeer(v admin.Peers, name string) (admin.Peer, error) {
	var found []admin.Peer
	for _, m := range v.Members {
		if m.ID == name {
			return m, nil
		}
		if m.Host == name {
			found = append(found, m)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return admin.Peer{}, fmt.Errorf("%s is not a member: see dmxfs peers", name)
	}
	return admin.Peer{}, exitcode.With(exitcode.Usage, fmt.Errorf("%d members are on host %s: give the ID", len(found), name))
}

func newPeersRemoveCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "remove ID|HOST [MOUNTPOINT]", Short: "Drop a member that hangs or is lost, and free its locks",
		Long: `Drop a member, and free its locks for the others. It takes as long as the member
could still believe that it has them, some 5 s, or until the fence command has
succeeded. A member that is well finds out, its programs get EIO on files under
locks, and it joins again by itself: to keep it out, revoke it.`,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
	}
	reason := c.Flags().String("reason", "", "why, for the journals of all members (needed)")
	yes := c.Flags().Bool("yes", false, "do not ask")
	clientFor := ask.TimeoutFlag(c.Flags(), admin.RemovalTime)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, m, err := chosenPeer(c, clientFor, args, *reason)
		if err != nil {
			return err
		}
		warn := `What its kernel keeps of its writes may reach the storage later, over what the
next holders write: be sure that the host is off, or cannot reach the storage.`
		if m.State == "live" {
			warn = "It is live: its programs get errors, and it joins again by itself."
		}
		if err := askRemoval(c, s, cl, m, *yes, warn, "Remove it?"); err != nil {
			return err
		}
		if err := post(c, cl, "/peers/remove", url.Values{"peer": {m.ID}, "reason": {*reason}}); err != nil {
			return err
		}
		fmt.Fprintf(s.out, "%s (%s) is removed\n", printing.Text(m.Host), m.ID)
		return nil
	}
	return c
}

func newPeersRevokeCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "revoke ID|HOST [MOUNTPOINT]", Short: "Keep a peer out for good",
		Long: `Keep a peer out of the cluster. If it is a member it leaves, or is dropped if it
does not answer; its mount stays and fails. A peer is the key in a state
directory: who knows the cluster's secret can come again with another one, until
the secret is changed ("dmxfs secret rotate").`,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
	}
	reason := c.Flags().String("reason", "", "why, for the journal (needed)")
	yes := c.Flags().Bool("yes", false, "do not ask")
	undo := c.Flags().Bool("undo", false, "let the peer in again")
	clientFor := ask.TimeoutFlag(c.Flags(), admin.RemovalTime)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, m, err := chosenPeer(c, clientFor, args, *reason)
		known := err == nil
		if err != nil && cl == nil || exitcode.Of(err) == exitcode.Usage {
			return err
		}
		if !known { // no member: its ID will do
			m.ID, m.Host = args[0], "a peer"
		}
		q := url.Values{"peer": {m.ID}, "reason": {*reason}}
		if *undo {
			q.Set("undo", "1")
		} else if known {
			if err := askRemoval(c, s, cl, m, *yes, "It leaves, and its mount fails from then on.", "Revoke it?"); err != nil {
				return err
			}
		}
		if err := post(c, cl, "/peers/revoke", q); err != nil {
			return err
		}
		what := "is revoked"
		if *undo {
			what = "may join again"
		}
		fmt.Fprintf(s.out, "%s (%s) %s\n", printing.Text(m.Host), m.ID, what)
		return nil
	}
	return c
}

func newPeersForgetCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "forget ID|HOST [MOUNTPOINT]", Short: "Have all members forget a host that is gone for good",
		Long: `Have all members forget a host that was a member, and has neither left in good
order nor come back. As long as they remember it, it may be cut off from them only,
and its programs make and remove names; so a mkdir, rename and so on that was under
way when a daemon was killed can fail with EIO. Say so only of a host that is off, or
that cannot reach the storage, until it is started anew. It has no locks any more,
and may join again.`,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
	}
	reason := c.Flags().String("reason", "", "why, for the journals of all members (needed)")
	yes := c.Flags().Bool("yes", false, "do not ask")
	clientFor := ask.TimeoutFlag(c.Flags(), admin.OrderTime)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, m, err := chosenPeer(c, clientFor, args, *reason)
		if cl == nil || exitcode.Of(err) == exitcode.Usage {
			return err
		}
		if err != nil { // no member
			var v admin.Peers
			if err := cl.Get(c.Context(), "/peers", &v); err != nil {
				return err
			}
			m = admin.Peer{ID: args[0], Host: "a peer"}
			for _, g := range v.Gone {
				if g.ID == args[0] || g.Host == args[0] {
					m.ID, m.Host = g.ID, g.Host
				}
			}
			fmt.Fprintf(s.err, "If %s (%s) runs still, and reaches the storage, a lock that programs make by a name (mkdir, O_EXCL) can have two holders when a daemon is killed.\n",
				printing.Text(m.Host), printing.Text(m.ID))
			if err := confirm(c.Context(), s, *yes, "Is it off?"); err != nil {
				return err
			}
		}
		if err := post(c, cl, "/peers/forget", url.Values{"peer": {m.ID}, "reason": {*reason}}); err != nil {
			return err
		}
		fmt.Fprintf(s.out, "%s (%s) is forgotten\n", printing.Text(m.Host), printing.Text(m.ID))
		return nil
	}
	return c
}

// chosenPeer finds the member that args name. The client is nil if there is no
// daemon to ask.
func chosenPeer(c *cobra.Command, clientFor ask.Clients, args []string, reason string) (*admin.Client, admin.Peer, error) {
	if strings.TrimSpace(reason) == "" {
		return nil, admin.Peer{}, exitcode.With(exitcode.Usage, errors.New("give the --reason: it goes to the journal"))
	}
	cl, r, err := clientFor(args[1:])
	if err != nil {
		return nil, admin.Peer{}, err
	}
	var v admin.Peers
	if err := cl.Get(c.Context(), "/peers", &v); err != nil {
		return nil, admin.Peer{}, ask.NoDaemon(err, r)
	}
	m, err := findPeer(v, args[0])
	if err == nil && m.ID == v.Self {
		err = exitcode.With(exitcode.Usage, errors.New("that is this node: unmount it"))
	}
	return cl, m, err
}

// askRemoval says what becomes free when a member goes, and asks.
func askRemoval(c *cobra.Command, s streams, cl *admin.Client, m admin.Peer, yes bool, warn, question string) error {
	var v admin.Locks
	if err := cl.Get(c.Context(), "/locks", &v); err != nil {
		return err
	}
	var its []admin.Lock
	for _, l := range v.Locks {
		if l.Node == m.ID && l.State != "cached" {
			its = append(its, l)
		}
	}
	fmt.Fprintf(s.err, "%s (%s) is %s.\n", printing.Text(m.Host), m.ID, m.State)
	answered := true
	for _, x := range v.Missing {
		answered = answered && !strings.Contains(x, m.ID)
	}
	switch {
	case !answered:
		fmt.Fprintln(s.err, "What it holds is not known, since it does not answer; it becomes free for the others.")
	case len(its) == 0:
		fmt.Fprintln(s.err, "It holds no lock.")
	default:
		fmt.Fprintln(s.err, "These end, and become free for the others:")
		if err := printing.Table(s.err, lockHeads, lockRows(its, false, time.Now())); err != nil {
			return err
		}
	}
	fmt.Fprintln(s.err, warn)
	return confirm(c.Context(), s, yes, question)
}

// post asks the daemon to do something.
func post(c *cobra.Command, cl *admin.Client, path string, q url.Values) error {
	resp, err := cl.Do(c.Context(), http.MethodPost, path+"?"+q.Encode())
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
