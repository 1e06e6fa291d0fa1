//go:build race

package serve_test

// raceFactor is how many times more memory the race detector takes.
const raceFactor = 4
