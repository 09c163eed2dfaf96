package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/dmxfs/dmxfs/internal/admin"
	"github.com/dmxfs/dmxfs/internal/ask"
	"github.com/dmxfs/dmxfs/internal/printing"
)

func newSecretCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "secret", Short: "Change the secret of the cluster, or show it",
		Long: `The secret keeps out who does not belong to the cluster. The first host makes it
and leaves it on the shared directory, in .dmxfs/secret, unless it is given one
with --secret.

After it was changed it is not on the shared directory any more. Members keep it
in their state directories; a host that joins later, or was not mounted when it
was changed, needs it in a file, for --secret.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newSecretRotateCommand(s), newSecretShowCommand(s))
	return c
}

func newSecretRotateCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "rotate [MOUNTPOINT]", Short: "Give the whole cluster a new secret",
		Long: `Give all members a new secret, while they go on: no lock is lost. All of them
must answer; if one does not, nothing is changed, and it says which. Who has the
old secret only, such as a peer that was revoked, cannot connect any more, under
whatever identity. A host that is not mounted now needs the new one by hand
("dmxfs secret show"), and so does each that joins later.`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
	}
	reason := c.Flags().String("reason", "", "why, for the journal")
	asJSON := c.Flags().Bool("json", false, "print JSON for programs")
	clientFor := ask.TimeoutFlag(c.Flags(), admin.OrderTime)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, r, err := clientFor(args)
		if err != nil {
			return err
		}
		fmt.Fprintln(s.err, "all members get a new secret")
		q := url.Values{"reason": {*reason}, "timeout": {(cl.Timeout * 3 / 4).String()}} // there is time left for what can be done then
		resp, err := cl.Do(c.Context(), http.MethodPost, "/secret/rotate?"+q.Encode())
		if err != nil {
			return ask.NoDaemon(err, r)
		}
		defer resp.Body.Close()
		var v admin.Rotated
		if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
			return fmt.Errorf("the daemon's answer cannot be read: %w", err)
		}
		if *asJSON {
			return printing.JSON(s.out, v)
		}
		var rows [][]string
		for _, m := range v.Members {
			rows = append(rows, []string{m.ID, m.Host, m.State, v.Fingerprint})
		}
		return printing.Table(s.out, []string{"ID", "HOST", "SECRET", "FINGERPRINT"}, rows)
	}
	return c
}

func newSecretShowCommand(s streams) *cobra.Command {
	c := &cobra.Command{
		Use: "show [MOUNTPOINT]", Short: "Print the secret of the cluster",
		Long: `Print the secret that counts, for a file on another host:

  umask 077; dmxfs secret show /mnt/shared > secret

Who has it can join the cluster, unless it is changed.`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
	}
	asJSON := c.Flags().Bool("json", false, "print JSON for programs")
	clientFor := ask.TimeoutFlag(c.Flags(), admin.OrderTime)
	c.RunE = func(c *cobra.Command, args []string) error {
		cl, r, err := clientFor(args)
		if err != nil {
			return err
		}
		var v admin.Secret
		if err := cl.Get(c.Context(), "/secret", &v); err != nil {
			return ask.NoDaemon(err, r)
		}
		if *asJSON {
			return printing.JSON(s.out, v)
		}
		_, err = fmt.Fprintln(s.out, v.Secret)
		return err
	}
	return c
}
