// Package dialect decodes the output of agents into the events of a conversation, and encodes prompts for agents. It is pure:
// a decoder is a function of a line and a small state, so decoding a stored log again gives the same result.
//
// All input was written inside a sandbox and may be hostile. No line is an error or makes a decoder panic, and the output
// is bounded and valid UTF-8 for any input. No line can impersonate the user: decoders emit only the assistant's role,
// since the daemon records prompts itself.
//
// Rules that hold in every format:
//
//   - One message is open at a time. A new one, or a result, completes the one before.
//   - Message IDs are "m.1", "m.2" and so on, counted within an incarnation: incarnation and ID together are unique, whatever
//     the program calls its messages. The store must give the user's messages other IDs.
//   - A text that arrives in pieces is emitted in snapshots that grow by a quarter each, so all snapshots together have at
//     most about five times its size. The rest follows with the next event of another kind, or with End.
//   - A text part of pieces ends at 24 KiB and continues in the next part, which keeps the state small: adjacent text parts
//     of one message are one text, with nothing between them.
//   - A result also reports the agent as ready, if that was not reported before.
package dialect
