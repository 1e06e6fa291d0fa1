// Package validate holds the rules for what clients may ask agboxd for. It is pure: it reads messages only, never
// at the host. Whether a mount source exists is therefore the daemon's to check.
//
// All rules of a message are checked and all broken ones are returned, in the order of the fields. No text contains
// the value of an environment variable.
package validate
