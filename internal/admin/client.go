package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmxfs/dmxfs/internal/exitcode"
)

// Client speaks to the daemon of a state directory.
type Client struct {
	state string
	http  http.Client
	// Messages is told when there is no answer for as long as Patience.
	Messages io.Writer
	Patience time.Duration
	// Timeout is how long an exchange may take until the answer begins.
	Timeout time.Duration
	// Why says what is known of a daemon that does not answer; empty if that is nothing.
	Why func() string
}

// answer is one that may stop in its middle.
type answer struct {
	io.ReadCloser
	method string
}

func (a answer) Read(b []byte) (int, error) {
	n, err := a.ReadCloser.Read(b)
	if err != nil && err != io.EOF {
		err = ended(a.method, err)
	}
	return n, err
}

// NewClient is a client of the daemon whose state directory state is.
func NewClient(state string) *Client {
	c := &Client{state: state, Messages: os.Stderr, Patience: 5 * time.Second, Timeout: OrderTime, Why: func() string { return "" }}
	c.http.Transport = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			path, done, err := SocketPath(state, SocketName)
			if err != nil {
				return nil, err
			}
			defer done()
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
		DisableKeepAlives: true,
	}
	return c
}

// ErrNoDaemon says that nobody answers on the socket.
var ErrNoDaemon = errors.New("no dmxfs daemon answers")

// ErrEnded says that the daemon has ended after it had, or could have had, the request.
var ErrEnded = errors.New("the daemon has ended before it had answered")

// ended is err, but where that is the end of the connection: then it says what that means, and
// what is to be done.
func ended(method string, err error) error {
	// What net/http has for an end before it has written anything is not exported.
	lost := err != nil && strings.Contains(err.Error(), "server closed idle connection")
	for _, e := range []error{io.EOF, io.ErrUnexpectedEOF, unix.ECONNRESET, unix.EPIPE} {
		lost = lost || errors.Is(err, e)
	}
	switch {
	case !lost:
		return err
	case method == http.MethodGet:
		return fmt.Errorf("%w: ask again", ErrEnded)
	}
	return fmt.Errorf("%w, so that it is not known whether it has done it: see how things are (dmxfs status), and give the order again if need be", ErrEnded)
}

// Do sends a request and returns the open answer.
func (c *Client) Do(ctx context.Context, method, path string) (*http.Response, error) {
	return c.Send(ctx, method, path, nil)
}

// Send is Do with a body.
func (c *Client) Send(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	begun := time.Now()
	late := time.AfterFunc(c.Timeout, func() { cancel(c.noAnswer(c.Timeout)) })
	defer late.Stop()
	req, err := http.NewRequestWithContext(ctx, method, "http://dmxfs"+path, body)
	if err != nil {
		return nil, err
	}
	impatient := time.AfterFunc(c.Patience, func() {
		fmt.Fprintf(c.Messages, "dmxfs: the daemon has not answered for %v: %s; still waiting (Ctrl-C ends that)\n",
			c.Patience, cmp.Or(c.Why(), "it is busy, or stopped, or the storage hangs"))
	})
	defer impatient.Stop()
	resp, err := c.http.Do(req)
	if err != nil {
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
			return nil, exitcode.With(exitcode.NoMount, ErrNoDaemon)
		}
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if lost := ended(method, err); errors.Is(lost, ErrEnded) {
			return nil, lost
		}
		if errors.Is(err, context.DeadlineExceeded) { // of who calls; or of Get, where late was still later
			err = c.noAnswer(min(time.Since(begun).Round(time.Millisecond), c.Timeout))
		}
		return nil, fmt.Errorf("ask the daemon: %w", err)
	}
	resp.Body = answer{resp.Body, method}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	var p problem
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || p.Error == "" {
		return nil, fmt.Errorf("the daemon answers: %s", resp.Status)
	}
	return nil, exitcode.With(p.Code, errors.New(p.Error))
}

func (c *Client) noAnswer(d time.Duration) error {
	return fmt.Errorf("no answer for %v (--timeout): %s", d, cmp.Or(c.Why(), "is the daemon stopped, or does the storage hang?"))
}

// Get asks for path and decodes the answer.
func (c *Client) Get(ctx context.Context, path string, v any) error {
	ctx, cancel := context.WithTimeout(ctx, 2*c.Timeout) // an answer that stops in its middle
	defer cancel()
	resp, err := c.Do(ctx, http.MethodGet, path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(v); err != nil {
		return fmt.Errorf("the daemon's answer cannot be read: %w", err)
	}
	return nil
}

const (
	// OrderTime is how long a command waits for a daemon to carry out an order.
	OrderTime = 30 * time.Second
	// WishTime is how long the members have to carry out what an admin wants of all.
	WishTime = 30 * time.Second
	// FenceTime is how long a fence command may take. Meanwhile the node that it
	// fences is promised nothing, and its locks stay.
	FenceTime = time.Minute
	// RemovalTime is OrderTime for an order that a member is dropped by, which the
	// fence command may hold up.
	RemovalTime = WishTime + FenceTime + OrderTime
)

// Break has the daemon break locks, on whatever host they are held.
func (c *Client) Break(ctx context.Context, r BreakOrder) (Broken, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return Broken{}, err
	}
	resp, err := c.Send(ctx, http.MethodPost, "/locks/break", bytes.NewReader(body))
	if err != nil {
		return Broken{}, err
	}
	defer resp.Body.Close()
	var a Broken
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return Broken{}, fmt.Errorf("the daemon's answer cannot be read: %w", err)
	}
	AllReceived(a.Broken)
	return a, nil
}
