package web

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// chromium is a headless browser with one page. It is spoken to by the DevTools
// protocol over pipes, which needs no port and no library: objects of JSON, each
// with a zero byte behind it.
type chromium struct {
	t       *testing.T
	in      io.Writer
	session string

	mu      sync.Mutex
	last    int
	waiting map[int]chan answer
	gone    error
	trouble []string // alerts, exceptions, what the content policy refused
}

type answer struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// startChromium starts a browser that reaches 127.0.0.1 only; the test is skipped
// where there is none.
func startChromium(t *testing.T) *chromium {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil && program == "" {
			program = p
		}
	}
	if program == "" {
		t.Skip("no Chromium here: install the package chromium")
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions", "--no-proxy-server",
		"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--hide-scrollbars", "--user-data-dir="+t.TempDir(), "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut} // 3 and 4
	var log strings.Builder
	cmd.Stderr = &log
	cmd.WaitDelay = 5 * time.Second // its children may keep the log open
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	c := &chromium{t: t, in: in, waiting: map[int]chan answer{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.read(out)
	}()
	t.Cleanup(func() {
		c.mu.Lock()
		crashed := c.gone != nil
		c.mu.Unlock()
		// It ends when the pipe does, and its children with it.
		in.Close()
		kill := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		<-done
		_ = cmd.Wait()
		kill.Stop()
		out.Close()
		if t.Failed() && crashed {
			t.Logf("Chromium: %s", log.String())
		}
	})
	var target struct{ TargetID string }
	c.do("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	c.do("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	c.session = session.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		c.do(domain+".enable", nil, nil)
	}
	c.size(1280, 800)
	return c
}

func (c *chromium) read(out io.Reader) {
	r := bufio.NewReader(out)
	for {
		b, err := r.ReadBytes(0)
		var a answer
		if err == nil {
			err = json.Unmarshal(b[:len(b)-1], &a)
		}
		c.mu.Lock()
		switch {
		case err != nil:
			c.gone = err
			for _, w := range c.waiting {
				close(w)
			}
			c.waiting = map[int]chan answer{}
		case a.ID != 0:
			if w := c.waiting[a.ID]; w != nil {
				delete(c.waiting, a.ID)
				w <- a
			}
		case a.Method == "Page.javascriptDialogOpening", a.Method == "Runtime.exceptionThrown", a.Method == "Log.entryAdded":
			if !strings.Contains(string(a.Params), "/favicon.ico") { // asked for beside answers that are no pages
				c.trouble = append(c.trouble, a.Method+" "+string(a.Params))
			}
		}
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// do gives an order, and decodes the answer into v if that is not nil.
func (c *chromium) do(method string, params, v any) {
	c.t.Helper()
	if err := c.try(method, params, v); err != nil {
		c.t.Fatalf("%s: %v", method, err)
	}
}

// try is do for orders that a page refuses on its way to another one.
func (c *chromium) try(method string, params, v any) error {
	c.t.Helper()
	c.mu.Lock()
	if c.gone != nil {
		c.mu.Unlock()
		c.t.Fatalf("%s: Chromium has ended: %v", method, c.gone)
	}
	c.last++
	m := map[string]any{"id": c.last, "method": method}
	if params != nil {
		m["params"] = params
	}
	if c.session != "" {
		m["sessionId"] = c.session
	}
	w := make(chan answer, 1)
	c.waiting[c.last] = w
	b, err := json.Marshal(m)
	if err == nil {
		_, err = c.in.Write(append(b, 0))
	}
	c.mu.Unlock()
	if err != nil {
		c.t.Fatalf("%s: %v", method, err)
	}
	select {
	case a, ok := <-w:
		switch {
		case !ok:
			c.t.Fatalf("%s: Chromium has ended", method)
		case a.Error != nil:
			return errors.New(a.Error.Message)
		case v != nil:
			if err := json.Unmarshal(a.Result, v); err != nil {
				c.t.Fatalf("%s: %v: %s", method, err, a.Result)
			}
		}
	case <-time.After(60 * time.Second):
		c.t.Fatalf("%s: no answer", method)
	}
	return nil
}

// eval is the value of an expression, or of a promise, on the page.
func (c *chromium) eval(js string, v any) {
	c.t.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	c.do("Runtime.evaluate", map[string]any{"expression": js, "awaitPromise": true, "returnByValue": true}, &r)
	if r.ExceptionDetails != nil {
		c.t.Fatalf("%s: %s %s", js, r.ExceptionDetails.Text, r.ExceptionDetails.Exception.Description)
	}
	if v != nil {
		if err := json.Unmarshal(r.Result.Value, v); err != nil {
			c.t.Fatalf("%s: %v", js, err)
		}
	}
}

// open goes to a URL, and waits until the page is there.
func (c *chromium) open(url string) {
	c.t.Helper()
	c.do("Page.navigate", map[string]any{"url": url}, nil)
	c.until(`document.readyState === "complete" && (location.href === "about:blank") === ` + fmt.Sprint(url == "about:blank"))
}

// until waits until something is true of the page, whichever that is by then.
func (c *chromium) until(js string) {
	c.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); ; <-tick.C {
		var r struct{ Result struct{ Value bool } }
		err := c.try("Runtime.evaluate", map[string]any{"expression": `!!(` + js + `)`, "returnByValue": true}, &r)
		if err == nil && r.Result.Value {
			return
		}
		if time.Now().After(end) {
			var text string
			c.eval(`document.body.innerText`, &text)
			c.t.Fatalf("never true: %s (%v); the page is:\n%s", js, err, text)
		}
	}
}

func (c *chromium) key(key string) {
	c.t.Helper()
	c.do("Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": key, "text": key}, nil)
	c.do("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key}, nil)
}

func (c *chromium) size(width, height int) {
	c.t.Helper()
	c.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
}

// scheme is what the page is told that the user prefers: dark or light.
func (c *chromium) scheme(name string) {
	c.t.Helper()
	c.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": name}}}, nil)
}

// shoot writes a picture of the page.
func (c *chromium) shoot(file string) {
	c.t.Helper()
	var r struct{ Data string }
	c.do("Page.captureScreenshot", map[string]any{"format": "png", "optimizeForSpeed": false}, &r)
	b, err := base64.StdEncoding.DecodeString(r.Data)
	if err == nil {
		err = os.WriteFile(file, b, 0o644)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// clean fails the test if the page did what it should not.
func (c *chromium) clean() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.trouble {
		c.t.Error(x)
	}
	c.trouble = nil
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprint("a string is no JSON: ", err))
	}
	return string(b)
}
