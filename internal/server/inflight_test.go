package server

import "testing"

// TestACallThatArrivesDuringTheWaitIsWaitedFor: a shutdown that waits for the open calls delays no later one, and does not cut it off.
func TestACallThatArrivesDuringTheWaitIsWaitedFor(t *testing.T) {
	var f inflight
	f.add(1)
	idle := f.idle()
	f.add(1) // arrives
	f.add(-1)
	select {
	case <-idle:
		t.Fatal("one of two calls is open")
	default:
	}
	f.add(-1)
	<-idle
	<-f.idle()
}
