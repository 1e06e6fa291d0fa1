// Package dialect turns what agents print into the events of a conversation, and prompts into what agents read. It is pure:
// a decoder is a function of a line and a small state, so it can be run again over a stored log and says the same.
//
// Everything that is decoded was written inside a sandbox and may be hostile. No line is an error, none makes a decoder
// panic, and what comes out is bounded and valid UTF-8 whatever goes in. No line can speak as the user: the only role that
// decoders know is the assistant's, since prompts are recorded by the daemon.
//
// Rules that hold in every format:
//
//   - One message is open at a time. A new one, or a result, completes the one before.
//   - Message IDs are "m.1", "m.2" and so on, counted within an incarnation: incarnation and ID together are unique, whatever
//     the program calls its messages. The store must name the user's messages otherwise.
//   - A text that arrives in pieces is told in snapshots that grow by a quarter each, so all of them together are at most
//     about five times the text. What was not told yet follows with the next event of another kind, or with End.
//   - A text part of pieces ends at 24 KiB and goes on in the next part, for the state must stay small: adjacent text parts
//     of one message are one text, with nothing between them.
//   - A result says that the agent is ready, if it had not said so.
package dialect
