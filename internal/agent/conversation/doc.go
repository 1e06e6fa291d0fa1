// Package conversation makes turns of an agent's events, and of turns the text by which a new process learns of its past. It
// is pure and deterministic: the same events and policy give the same bytes, whenever and wherever.
//
// What agents said is hostile input here as well: a message must not be able to end the frame it is quoted in, or to open
// another. Everything quoted is escaped, see Escape, and the whole stays within the budget of the policy.
package conversation
