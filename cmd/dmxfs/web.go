package main

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/ask"
	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/internal/web"
)

func newWebCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "web [MOUNTPOINT]", Short: "Show the cluster in a browser: who waits for whom, locks, members, the journal",
		Long: `Serve a page about the cluster until Ctrl-C: who waits for whom as a graph, all
locks, the files that are waited for most, members and their history, the rules,
and this node's journal. It goes on by itself, and loads nothing from elsewhere.

It prints a URL that opens one browser, once; when it is used, the next one is
printed. Without that nothing is shown. It listens on this host only. From another
one, go by ssh:

  ssh -t -o ExitOnForwardFailure=yes -L 7690:127.0.0.1:7690 HOST dmxfs web --listen 127.0.0.1:7690

It runs as who started it, and sees what "dmxfs locks" shows that user. With
--admin, locks can be broken and members removed from the page; both ask for a
reason, which goes to the journals with the name of that user.`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
	}
	listen := c.Flags().String("listen", "127.0.0.1:0", "`address` to listen on; port 0: any that is free")
	orders := c.Flags().Bool("admin", false, "allow orders: to break a lock, to remove a member")
	names := c.Flags().StringSlice("name", nil, "host names by which browsers reach it, besides localhost and addresses")
	long := c.Flags().Duration("long", 10*time.Second, "how long a wait is that stands out")
	c.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "web-admin" {
			name = "admin"
		}
		return pflag.NormalizedName(name)
	})
	c.RunE = func(c *cobra.Command, args []string) error {
		if *long <= 0 {
			return exitcode.With(exitcode.Usage, fmt.Errorf("--long %v: must be more than 0", *long))
		}
		cl, r, err := ask.Client(args)
		if err != nil {
			return err
		}
		var v admin.Status
		if err := cl.Get(c.Context(), "/status", &v); err != nil {
			return ask.NoDaemon(err, r)
		}
		l, err := net.Listen("tcp", *listen)
		if err != nil {
			return fmt.Errorf("listen on %s: %w (choose another address with --listen)", *listen, err)
		}
		defer l.Close()
		addr, host := shownAddress(l.Addr())
		if !addr.Addr().IsLoopback() {
			fmt.Fprintln(s.err, "dmxfs: others on the network can read what the browser is sent, since it is not encrypted: better listen on 127.0.0.1, and go by ssh -L")
		}
		srv, err := web.New(web.Options{
			Source: ask.NewView(r.State), Addr: host, Names: *names, Admin: *orders, Who: ask.Who(), Long: *long,
			Entered: func(url string) { fmt.Fprintf(s.err, "dmxfs: a browser was let in; the next one by %s\n", url) },
		})
		if err != nil {
			return err
		}
		fmt.Fprintln(s.out, srv.URL())
		return srv.Serve(c.Context(), l)
	}
	return c
}

// shownAddress is where a browser finds what listens on a: on all addresses, it
// does so on this host's name.
func shownAddress(a net.Addr) (netip.AddrPort, string) {
	p, err := netip.ParseAddrPort(a.String())
	if err != nil || !p.Addr().IsUnspecified() {
		return p, a.String()
	}
	return p, net.JoinHostPort("127.0.0.1", strconv.Itoa(int(p.Port())))
}
