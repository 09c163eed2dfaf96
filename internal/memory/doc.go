// Package memory tells how much memory a process may still have.
//
// What a daemon takes for speed alone it should do without where the kernel would end it for
// that, or another program.
package memory
