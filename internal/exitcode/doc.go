// Package exitcode has the numbers with which dmxfs ends, and how an error says
// with which.
package exitcode
