// Package testagent is an agent without a model, for tests. It speaks every format and knows nothing but what it was told: in
// this process, in the context that a prompt came with, or in the session of its own that it was asked to resume. So what
// it answers shows which past it was given.
//
// A prompt is a list of commands, one per line:
//
//	remember WORDS      keep them
//	what did I say?     all that was to be remembered, in order
//	pid                 its process
//	echo WORDS          say them
//	count N [MS]        say the numbers up to N, each as a part of its own, with a pause after each
//	sleep SECONDS       work; an interrupt or a nudge ends it
//	ignore              neither interrupts nor nudges nor SIGTERM count for the rest of this process
//	ignore nudges       nudges don't
//	ask                 ask for permission (acp; others have it)
//	checkpoint WORDS    what a later process must know
//	run SCRIPT          run it with sh, and say what it printed
//	raw WORDS           a line of stdout as it is; Go's escapes such as \xff are taken
//	flood MIB           one line of so many MiB
//	exit CODE           end in the middle of the turn
//	crash               die of SIGKILL in the middle of the turn
//
// SIGUSR1 ends it with code 0, whatever it does.
package testagent
