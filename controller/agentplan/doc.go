// Package agentplan decides: from the record of an agent, what was observed of its process and its output, and the time, to
// the one step that comes next. It is pure. Any pass may be the first after a crash, may be repeated, may be late.
package agentplan
