//go:build race

package main

// The race detector keeps memory of its own for all that was ever in use.
func init() { raced = true }
