// Package soak judges whether what was measured of a running installation for hours stays flat: memory, goroutines, open
// files, API requests, ECS calls and objects.
package soak
