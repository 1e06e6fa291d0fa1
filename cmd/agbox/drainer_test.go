package main

import (
	"context"
	"time"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/controller"
	"github.com/agbox/agbox/store"
)

// drainer gives agents little time to save their work.
type drainer struct{ *controller.Controller }

func (d drainer) Drain(ctx context.Context, o store.DrainOptions) (*agboxv1.DrainStatus, error) {
	o.SaveEach, o.SaveAll = time.Second, time.Second
	return d.Controller.Drain(ctx, o)
}
