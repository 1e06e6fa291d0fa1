// Package dockertest is for tests of what stands on dockerx: Fake, a Docker engine in memory, and Conform, the suite that
// both it and the real one pass.
package dockertest
