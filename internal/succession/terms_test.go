package succession

import (
	"strings"
	"testing"

	"github.com/dmxfs/dmxfs/fusefs"
	"github.com/dmxfs/dmxfs/internal/config"
)

// A program does not go on with options that it does not know, if they say anything.
func TestUnknownOptionsAreRefused(t *testing.T) {
	t.Parallel()
	x := termsOf(config.Config{Mountpoint: "/mnt"}, fusefs.Greeting{})
	text, err := x.text()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		config  string
		unknown bool
	}{
		{`"Mountpoint":"/mnt"`, false},
		{`"Mountpoint":"/mnt","Newer":true`, true},
	} {
		other := strings.Replace(string(text), `"Mountpoint":"/mnt"`, tt.config, 1)
		a, err := Agree([]byte(other))
		if err != nil || a.Refusal == "" || strings.Contains(a.Refusal, `unknown field "Newer"`) != tt.unknown {
			t.Errorf("%s: %+v, %v", tt.config, a, err)
		}
	}
	if strings.Contains(string(text), "Restored") {
		t.Errorf("options without a value: %s", text)
	}
}
