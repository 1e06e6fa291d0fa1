// Package acp is the client side of the Agent Client Protocol, version 1, as it runs inside agbox-shim: on one side the inbox,
// whose lines are prompts and interrupts, on the other an agent that speaks JSON-RPC on stdin and stdout. What the agent
// writes is copied as it is to the log, where the decoder of package dialect reads it; the numbers of our requests tell it
// what each answer is about.
//
// The client gives the agent nothing but prompts: it has no files and no terminals to offer, and it allows whatever the agent
// asks permission for, since the sandbox is the boundary. Prompts are given one at a time, in order.
package acp
