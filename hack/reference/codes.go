package main

// code is one error word of the API.
type code struct{ Name, When string }

// errorReasons lists the reasons of refused calls.
var errorReasons = []code{
	{"INVALID_SPEC", "a field is wrong; the metadata has `field`, its path"},
	{"SANDBOX_NOT_FOUND", "no sandbox has the ID or name, or its history was purged"},
	{"SANDBOX_ID_ALREADY_EXISTS", "the ID is in use, or was at any time"},
	{"SANDBOX_NAME_ALREADY_EXISTS", "a live sandbox has the name"},
	{"SANDBOX_PORT_ALREADY_IN_USE", "a live sandbox publishes the same port of the host"},
	{"SANDBOX_NOT_READY", "execs need a READY sandbox"},
	{"SANDBOX_ADOPTED", "an older daemon created the sandbox; its container has no agbox-shim, so it takes no execs and no agents"},
	{"SANDBOX_INVALID_STATE", "the call does not fit the state of the sandbox; the message names what it needs"},
	{"SANDBOX_ALREADY_PAUSED", "the sandbox is PAUSED"},
	{"SANDBOX_FIELD_IMMUTABLE", "an update changes fields that do not change in place; the metadata has `fields`"},
	{"SANDBOX_EVENT_SEQUENCE_EXPIRED", "the subscription starts outside of the retained history"},
	{"VOLUME_NOT_FOUND", "the sandbox name has no such volume"},
	{"VOLUME_IN_USE", "a live sandbox has the volume in its spec, or a container mounts it"},
	{"EXEC_NOT_FOUND", "no exec has the ID"},
	{"EXEC_ID_ALREADY_EXISTS", "the ID is in use, or was at any time, in any sandbox"},
	{"EXEC_ALREADY_TERMINAL", "the exec has ended"},
	{"AGENT_NOT_FOUND", "no agent has the ID or name"},
	{"AGENT_ID_ALREADY_EXISTS", "the ID is in use, or was at any time"},
	{"AGENT_NAME_ALREADY_EXISTS", "a live agent has the name"},
	{"AGENT_INVALID_STATE", "the call does not fit the state of the agent"},
	{"AGENTS_FULL", "the sandbox has the maximum number of agents"},
	{"PROMPT_NOT_FOUND", "the agent has never had a prompt with this ID"},
	{"AGENT_PROMPTS_FULL", "the maximum number of prompts is queued for the agent"},
	{"AGENT_EVENT_SEQUENCE_EXPIRED", "the subscription starts outside of the agent's retained history"},
	{"PROMPT_ID_ALREADY_EXISTS", "the ID was used for another prompt"},
	{"DRAIN_INVALID_STATE", "the call does not fit the state of the drain"},
	{"DRAINING", "agboxd drains and ends the stream"},
	{"DISK_FULL", "a disk has less than `disk.low_water`; try again when there is room"},
}

// failureCodes lists the codes of failed sandboxes, services and execs.
var failureCodes = []code{
	{"SANDBOX_CREATE_FAILED", "the create failed with an error that a retry does not fix"},
	{"SANDBOX_RESUME_FAILED", "the same, at a resume"},
	{"SANDBOX_SERVICE_FAILED", "a service can't be started or is not healthy"},
	{"CONTAINER_DIED", "the container ended without a request"},
	{"CONTAINER_OOM", "the container was killed: out of memory"},
	{"CONTAINER_NOT_RUNNING", "the container does not run, and the engine has no record of its end"},
	{"CONTAINER_MISSING", "the container is missing: agboxd did not remove it"},
	{"NETWORK_MISSING", "the network is missing and can't be created again: agboxd did not remove it"},
	{"EXEC_RUN_FAILED", "the command ended with a code other than 0, or by a signal"},
	{"EXEC_START_FAILED", "the command was never started"},
	{"EXEC_LOST", "the command's supervisor died; the result of the command is unknown"},
	{"EXEC_TIMEOUT", "the command was ended because it ran longer than its `timeout`"},
	{"EXEC_LOG_LIMIT", "the command was ended because its output reached `artifacts.exec_log_max_bytes`"},
}
