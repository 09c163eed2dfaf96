// Package looktest has tests only: what programs on two hosts see of each other's
// changes while their kernels keep names and attributes. Both mounts are served by
// a child process, with a lock service that both ask.
package looktest
