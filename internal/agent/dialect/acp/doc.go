// Package acp is the client of the Agent Client Protocol, version 1, that runs inside agbox-shim, between the inbox, whose
// lines are prompts and interrupts, and an agent that speaks JSON-RPC on stdin and stdout. The agent's output is copied
// unchanged to the log, where the decoder of package dialect reads it; the request IDs identify what each response answers.
//
// The client sends the agent only prompts, one at a time, in order: it offers no files and no terminals, and it grants every
// permission that the agent requests, since the sandbox is the boundary.
package acp
