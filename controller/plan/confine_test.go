package plan

import (
	"slices"
	"testing"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
)

// Rules are set before anything may run, never keep a sandbox from stopping, and are left alone where the network goes.
func TestConfine(t *testing.T) {
	const stale, fine = "net-stale", "net-fine"
	world := World{Networks: []Network{{ID: fine}, {ID: stale, Unconfined: true}}}
	start, create := Step{Kind: StartContainer, ID: "c"}, Step{Kind: CreateNetwork}
	set := Step{Kind: ConfineNetwork, ID: stale, Reason: BecausePolicy}
	run := Record{Desired: storev1.RunState_RUN_STATE_RUN, Wanted: Wanted{Confined: true}}
	stop := Record{Desired: storev1.RunState_RUN_STATE_STOP}
	failed := run
	failed.State = agboxv1.SandboxState_SANDBOX_STATE_FAILED
	open := Record{Desired: storev1.RunState_RUN_STATE_RUN}
	for _, tt := range []struct {
		name   string
		record Record
		world  World
		steps  []Step
		want   []Step
	}{
		{"before a start", run, world, []Step{start}, []Step{set, start}},
		{"of a network that the pass creates", run, World{}, []Step{create, start}, []Step{create, {Kind: ConfineNetwork, Reason: BecausePolicy}, start}},
		{"none for an open one", open, World{}, []Step{create, start}, []Step{create, start}},
		{"removed from an open one", open, world, nil, []Step{set}},
		{"after a stop", stop, world, []Step{{Kind: StopContainer}}, []Step{{Kind: StopContainer}, set}},
		{"after the stops of a failed one", failed, world, []Step{{Kind: StopContainer}}, []Step{{Kind: StopContainer}, set}},
		{"not of a network that goes", failed, world, []Step{{Kind: RemoveNetwork, ID: stale}}, []Step{{Kind: RemoveNetwork, ID: stale}}},
		{"not of a deleted one", Record{Desired: storev1.RunState_RUN_STATE_DELETE}, world, nil, nil},
		{"not of an unknown one", Record{Standing: NeverReserved, Desired: storev1.RunState_RUN_STATE_RUN}, world, nil, nil},
	} {
		if got := confine(tt.record, tt.world, Plan{Steps: tt.steps}).Steps; !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
