// Package dockertest supports tests of packages that use dockerx: Fake, a Docker engine in memory, and Conform, the suite that
// both Fake and the real engine pass.
package dockertest
