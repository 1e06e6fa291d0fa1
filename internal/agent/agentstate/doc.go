// Package agentstate is the execution state machine of an agent: one pure table. The store applies it in the transaction
// that writes the state, and agentplan queries it for the effect of a trigger. No other package knows the rules.
//
//	            Spawn     Connected  Prompt  Result  Exited 0  Crashed  StartTimedOut  UserTerminated  DrainParked  Reconciliation
//	PENDING     STARTING  -          -       -       -         -        -              STOPPED         =            FAILED
//	STARTING    =         IDLE       -       -       FAILED*   FAILED   FAILED         STOPPED         STOPPED      FAILED
//	IDLE        -         =          BUSY    =       STOPPED   FAILED   -              STOPPED         STOPPED      FAILED
//	BUSY        -         =          -       IDLE    FAILED    FAILED   -              STOPPED         STOPPED      FAILED
//	STOPPED     STARTING  -          -       -       =         =        -              =               =            =
//	FAILED      STARTING  -          -       -       =         =        -              STOPPED         =            =
//
// "-" is illegal and nothing may be written; "=" is accepted and changes nothing; "*" is STOPPED where ReadyIsProcess is set.
// A prompt for a BUSY agent is queued, which is no transition. The result of an agent that exits with code 0 afterwards
// first moves it to IDLE, since results are recorded before exits.
package agentstate
