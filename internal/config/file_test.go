package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/pflag"
)

// sample is a value for a flag that is not its default.
func sample(t *testing.T, f *pflag.Flag) any {
	switch f.Value.Type() {
	case "bool":
		return f.DefValue != "true"
	case "int":
		return int64(77)
	case "stringSlice", "stringArray":
		return []string{"one", "two"}
	case "string":
		return "something"
	case "duration":
		return "77s"
	}
	t.Fatalf("--%s is of a type that is new here: %s", f.Name, f.Value.Type())
	return nil
}

// Each flag of a mount is a key of the configuration, with the same effect.
func TestAllFlagsAreKeysOfTheConfiguration(t *testing.T) {
	var byFlags Config
	flags := byFlags.Flags()
	file := map[string]any{KeySource: "/a", KeyMountpoint: "/b", keyOptions: []string{"ro"}}
	byFlags.Source, byFlags.Mountpoint, byFlags.MountOptions = "/a", "/b", []string{"ro"}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Value.Type() == "boolfunc" {
			return
		}
		v := sample(t, f)
		file[f.Name] = v
		all, ok := v.([]string)
		if !ok {
			all = []string{fmt.Sprint(v)}
		}
		for _, s := range all {
			if err := flags.Set(f.Name, s); err != nil {
				t.Fatal(err)
			}
		}
	})
	text, err := toml.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.toml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var byFile Config
	if err := byFile.readFile(path, byFile.Flags()); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(byFile, byFlags) {
		t.Errorf("by a file\n%+v\nby flags\n%+v", byFile, byFlags)
	}
}

func TestFlagsGoBeforeTheConfiguration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.toml")
	if err := os.WriteFile(path, []byte("wait = '5s'\nlisten = ['/ip4/127.0.0.1/tcp/1']\nmountpoint = '/there'\noptions = ['ro']\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Config{Mountpoint: "/here", MountOptions: []string{"noexec"}}
	flags := c.Flags()
	if err := flags.Parse([]string{"--wait=7s"}); err != nil {
		t.Fatal(err)
	}
	if err := c.readFile(path, flags); err != nil {
		t.Fatal(err)
	}
	if c.Wait.String() != "7s" || c.Mountpoint != "/here" || !reflect.DeepEqual(c.Listen, []string{"/ip4/127.0.0.1/tcp/1"}) || !reflect.DeepEqual(c.MountOptions, []string{"ro", "noexec"}) {
		t.Errorf("%+v", c)
	}
}

func TestWrongConfigurations(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"join = true\nmountpiont = '/x'\n", `line 2: unknown key "mountpiont"`},
		{"\nmax-locks = 'many'\n", "line 2: a value of type string is here: it must be a number"},
		{"join = 1\n", "line 1: a value of type integer is here: it must be true or false"},
		{"listen = '/ip4/0.0.0.0/tcp/1'\n", "line 1: a value of type string is here: it must be an array of strings"},
		{"wait = 5\n", "line 1: a value of type integer is here: it must be a string"},
		{"wait = 'soon'\n", `wait: invalid argument "soon" for "--wait" flag: "soon" is no time such as 10s or 5m, nor "none"`},
		{"no-restart = true\n", `unknown key "no-restart"`},
		{"wait = \n", "line 1: "},
	} {
		path := filepath.Join(t.TempDir(), "m.toml")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		var cfg Config
		err := cfg.readFile(path, cfg.Flags())
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), path+": ") {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
	}
}

// A daemon that is killed is succeeded, unless that is refused or can't be.
func TestTakeoverIsTheDefault(t *testing.T) {
	for _, tt := range []struct {
		args []string
		file string
		want bool
		err  string
	}{
		{want: true},
		{args: []string{"--takeover=false"}},
		{file: "takeover = false\n"},
		{args: []string{"--no-restart"}},
		{args: []string{"--journal=required"}},
		{file: "restart = false\n"},
		{args: []string{"--takeover", "--no-restart"}, err: "--takeover and --no-restart"},
		{args: []string{"--no-restart"}, file: "takeover = true\n", err: "--takeover and --no-restart"},
		{args: []string{"--takeover", "--journal=required"}, err: "--takeover and --journal required"},
	} {
		c := Config{Mountpoint: t.TempDir(), Source: t.TempDir()}
		flags := c.Flags()
		if err := flags.Parse(tt.args); err != nil {
			t.Fatal(err)
		}
		path := ""
		if tt.file != "" {
			path = filepath.Join(t.TempDir(), "m.toml")
			if err := os.WriteFile(path, []byte(tt.file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := c.Complete(flags, nil, path)
		if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q %q: %v", tt.args, tt.file, err)
		}
		if err == nil && c.Takeover != tt.want {
			t.Errorf("%q %q: %v", tt.args, tt.file, c.Takeover)
		}
	}
}
