// Package upgrade compares two versions of agboxd on one data directory: what a daemon answers about everything that it has on record,
// as JSON that can be kept in a file, and data directories in small archives.
package upgrade
