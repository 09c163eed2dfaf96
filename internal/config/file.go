package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/spf13/pflag"

	"github.com/dmxfs/dmxfs/internal/exitcode"
	"github.com/dmxfs/dmxfs/policy"
)

// The keys of a TOML file beside the names of the flags: what to mount where, and
// what stands behind -o.
const (
	KeySource     = "source"
	KeyMountpoint = "mountpoint"
	keyOptions    = "options"
)

// FileKeys returns the type of the values of all keys of a TOML file.
func FileKeys(flags *pflag.FlagSet) map[string]reflect.Type {
	text, list := reflect.TypeFor[string](), reflect.TypeFor[[]string]()
	keys := map[string]reflect.Type{KeySource: text, KeyMountpoint: text, keyOptions: list}
	flags.VisitAll(func(f *pflag.Flag) {
		switch f.Value.Type() {
		case "bool":
			keys[f.Name] = reflect.TypeFor[bool]()
		case "int":
			keys[f.Name] = reflect.TypeFor[int64]()
		case "stringSlice", "stringArray":
			keys[f.Name] = list
		case "boolfunc": // another way to give a flag
		default:
			keys[f.Name] = text
		}
	})
	return keys
}

// decodeFile returns the values that a TOML file has: strings, int64s, bools and
// slices of strings. Of what is wrong the error tells the line.
func decodeFile(b []byte, flags *pflag.FlagSet) (map[string]any, error) {
	var fields []reflect.StructField
	for key, typ := range FileKeys(flags) {
		tag := reflect.StructTag(fmt.Sprintf("toml:%q", key))
		fields = append(fields, reflect.StructField{Name: fmt.Sprint("Key", len(fields)), Type: reflect.PointerTo(typ), Tag: tag})
	}
	file := reflect.New(reflect.StructOf(fields))
	if err := toml.NewDecoder(strings.NewReader(string(b))).DisallowUnknownFields().Decode(file.Interface()); err != nil {
		return nil, errors.New(policy.Problem(err))
	}
	values := map[string]any{}
	for i, f := range fields {
		if v := file.Elem().Field(i); !v.IsNil() {
			values[f.Tag.Get("toml")] = v.Elem().Interface()
		}
	}
	return values, nil
}

// readFile sets what the TOML file at path says and no flag has set.
func (c *Config) readFile(path string, flags *pflag.FlagSet) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return exitcode.With(exitcode.Usage, fmt.Errorf("read the configuration: %w", err))
	}
	values, err := decodeFile(b, flags)
	if err != nil {
		return exitcode.With(exitcode.Usage, fmt.Errorf("%s: %w", path, err))
	}
	if s, ok := values[KeySource].(string); ok && c.Source == "" {
		c.Source = s
	}
	if s, ok := values[KeyMountpoint].(string); ok && c.Mountpoint == "" {
		c.Mountpoint = s
	}
	if o, ok := values[keyOptions].([]string); ok {
		c.MountOptions = append(o, c.MountOptions...)
	}
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		value, ok := values[f.Name]
		if !ok || f.Changed {
			return
		}
		all, ok := value.([]string)
		if !ok {
			all = []string{fmt.Sprint(value)}
		}
		for _, v := range all {
			if err := flags.Set(f.Name, v); err != nil {
				errs = append(errs, exitcode.With(exitcode.Usage, fmt.Errorf("%s: %s: %w", path, f.Name, err)))
				return
			}
		}
	})
	return errors.Join(errs...)
}
