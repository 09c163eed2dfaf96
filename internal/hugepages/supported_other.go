//go:build !amd64

package hugepages

import "errors"

// supported: elsewhere the processor may have to be told that code was written, and huge
// pages have other sizes.
func supported() error { return errors.New("not for this processor") }
