package server_test

import (
	"context"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/internal/server"
	"github.com/agbox/agbox/store"
)

// drainer drains by word of mouth.
type drainer struct {
	draining bool
	options  store.DrainOptions
}

func (d *drainer) Drain(_ context.Context, o store.DrainOptions) (*agboxv1.DrainStatus, error) {
	if d.draining {
		return nil, &store.Refusal{Reason: "DRAIN_INVALID_STATE", Message: "the daemon is draining already", Class: errdefs.ErrFailedPrecondition}
	}
	d.draining, d.options = true, o
	return d.DrainStatus(), nil
}

func (d *drainer) Undrain(context.Context) (changed bool, err error) {
	changed, d.draining = d.draining, false
	return changed, nil
}

func (d *drainer) DrainStatus() *agboxv1.DrainStatus {
	return &agboxv1.DrainStatus{Draining: d.draining}
}

func TestDrainGoesToTheDrainer(t *testing.T) {
	drained := &drainer{}
	f := newFixture(t, func(d *server.Deps) { d.Drainer = drained })
	ctx := t.Context()
	_, err := f.admin.Drain(ctx, &agboxv1.DrainRequest{Wait: durationpb.New(-1)})
	refused(t, err, codes.InvalidArgument, "INVALID_SPEC", "wait must be a duration from 0 to 45m", nil)
	resp, err := f.admin.Drain(ctx, &agboxv1.DrainRequest{})
	if err != nil || !resp.GetStatus().GetDraining() {
		t.Errorf("got %v, %v", resp, err)
	}
	if want := (store.DrainOptions{Mode: agboxv1.DrainMode_DRAIN_MODE_PARK, Wait: time.Minute, Reason: "drain_requested"}); drained.options != want {
		t.Errorf("got %v, want %v", drained.options, want)
	}
	_, err = f.admin.Drain(ctx, &agboxv1.DrainRequest{})
	refused(t, err, codes.FailedPrecondition, "DRAIN_INVALID_STATE", "the daemon is draining already", nil)
	for _, want := range []bool{true, false} {
		resp, err := f.admin.Undrain(ctx, &agboxv1.UndrainRequest{})
		if err != nil || resp.GetChanged() != want {
			t.Errorf("got %v, %v, want %v", resp, err, want)
		}
	}
	status, err := f.admin.GetDrainStatus(ctx, &agboxv1.GetDrainStatusRequest{})
	if err != nil || status.GetStatus().GetDraining() {
		t.Errorf("got %v, %v", status, err)
	}
}
