//go:build docker

package dockerx

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

// A container prints more than the engine keeps, and its last words are there all the same: at each moment the newest half is.
func TestReadLogsHasTheNewestOutputOfAnEndedContainer(t *testing.T) {
	_, e := private(t)
	id, err := e.CreateContainer(t.Context(), ContainerSpec{
		Name: uniqueName(), Image: "busybox:1",
		Cmd: []string{"sh", "-c", "i=0; while [ $i -lt 12000 ]; do echo line $i of a service that says much; i=$((i+1)); done; echo the end >&2; printf half; exit 3"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := e.ReadLogs(t.Context(), id, 0); err != nil || len(got) != 0 {
		t.Errorf("before its start: %v, %v", got, err)
	}
	if err := e.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); detail(t, e, id).Running; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not end")
		}
	}
	all, err := e.ReadLogs(t.Context(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	size, outs, errs := 0, []string{}, []string{}
	for _, r := range all {
		size += len(r.Text)
		if r.Stderr {
			errs = append(errs, string(r.Text))
		} else {
			outs = append(outs, string(r.Text))
		}
	}
	if fmt.Sprint(errs) != "[the end\n]" || outs[len(outs)-1] != "half" || !strings.HasPrefix(outs[len(outs)-2], "line 11999 ") {
		t.Errorf("%q, %q", errs, outs[len(outs)-2:])
	}
	if size < 100<<10 || len(all) > 11000 {
		t.Errorf("%d records of %d bytes", len(all), size)
	}
	if got, err := e.ReadLogs(t.Context(), id, 2); err != nil || len(got) != 2 {
		t.Errorf("the last two: %v, %v", got, err)
	}
	if _, err := e.ReadLogs(t.Context(), uniqueName(), 0); !errdefs.IsNotFound(err) {
		t.Errorf("of no container: %v", err)
	}
}
