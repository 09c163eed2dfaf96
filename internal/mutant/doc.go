// Package mutant plants bugs for tests: it builds a package with places of its
// source written otherwise, by go build's -overlay. So nothing of the package is
// made for testing, and a test that must find a bug runs in a build that has it.
package mutant
