package controller

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
)

func TestMakeRoomOnlyAfterENOSPCOrEDQUOT(t *testing.T) {
	rooms := 0
	c := &Controller{cfg: Config{MakeRoom: func() bool { rooms++; return true }}}
	for _, step := range []struct {
		err  error
		want int
	}{
		{nil, 0}, {errors.New("other"), 0}, {syscall.EIO, 0},
		{fmt.Errorf("write cancel: %w", syscall.EDQUOT), 1}, {syscall.ENOSPC, 2},
	} {
		if got := c.makeRoom(step.err); !errors.Is(got, step.err) || rooms != step.want {
			t.Errorf("%v: got %v, and room was made %d times, want %d", step.err, got, rooms, step.want)
		}
	}
}
