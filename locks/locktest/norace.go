//go:build !race

package locktest

const race = false
