// Package agentplan decides: from the record of an agent, its observed process and output, and the time to the next step. It is pure. Any
// pass may be the first after a crash, may be repeated, may be late.
package agentplan
