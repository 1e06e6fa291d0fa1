// Package conversation reconstructs turns from an agent's events, and builds from them the context for a new process. It is
// pure and deterministic: the same events and policy give the same bytes.
//
// The output of agents is hostile input here as well: a message must not be able to end the frame that quotes it, or to open
// another. All quoted text is escaped, see Escape, and the result stays within the policy's budget.
package conversation
