// Package config is the settings of a mount: each is written once, and can be
// given as a flag, behind -o, or as a key of a TOML file. What is wrong with them
// is said before anything is done.
package config
