// Package agentstate is the execution state machine of an agent: one table, pure. The store applies it in the transaction
// that writes the state, and the planner of agents asks it what a trigger would do. Nothing else knows the rules.
//
//	            Spawn     Connected  Prompt  Result  Exited 0  Crashed  StartTimedOut  UserTerminated  DrainParked  Reconciliation
//	PENDING     STARTING  -          -       -       -         -        -              STOPPED         =            FAILED
//	STARTING    =         IDLE       -       -       FAILED*   FAILED   FAILED         STOPPED         STOPPED      FAILED
//	IDLE        -         =          BUSY    =       STOPPED   FAILED   -              STOPPED         STOPPED      FAILED
//	BUSY        -         =          -       IDLE    FAILED    FAILED   -              STOPPED         STOPPED      FAILED
//	STOPPED     STARTING  -          -       -       =         =        -              =               =            =
//	FAILED      STARTING  -          -       -       =         =        -              STOPPED         =            =
//
// "-" is illegal and nothing may be written; "=" is accepted and changes nothing; "*" is STOPPED where a started process is
// all that readiness means. A prompt that comes while the agent is BUSY is queued, which is no transition. An agent that
// ends with code 0 after its result is first moved to IDLE by that result, since results are taken in before ends.
package agentstate
