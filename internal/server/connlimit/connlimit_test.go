package connlimit_test

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/agbox/agbox/internal/server/connlimit"
)

// site is a limited listener whose accepted connections are kept open.
type site struct {
	*testing.T
	addr     string
	accepted chan net.Conn
}

func listen(t *testing.T, limit func(net.Listener, int) net.Listener, n int) *site {
	t.Helper()
	s := &site{t, filepath.Join(t.TempDir(), "s"), make(chan net.Conn, 100)}
	raw, err := net.Listen("unix", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	l := limit(raw, n)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.accepted <- c
		}
	}()
	return s
}

func (s *site) dial() net.Conn {
	s.Helper()
	c, err := net.Dial("unix", s.addr)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { c.Close() })
	return c
}

// closed waits for the other side to close c.
func (s *site) closed(c net.Conn) bool {
	s.Helper()
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	_, err := c.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

// open says that the other side does not close c.
func (s *site) open(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func TestOneMoreClosesTheOldest(t *testing.T) {
	s := listen(t, connlimit.Oldest, 2)
	first, second := s.dial(), s.dial()
	<-s.accepted
	<-s.accepted
	third := s.dial()
	<-s.accepted
	if !s.closed(first) || !s.open(second) || !s.open(third) {
		t.Error("the oldest is not the one that was closed")
	}
}

func TestOneMoreIsRefusedAndAClosedOneMakesRoom(t *testing.T) {
	s := listen(t, connlimit.Newest, 2)
	first, second := s.dial(), s.dial()
	mine := <-s.accepted
	<-s.accepted
	if third := s.dial(); !s.closed(third) || !s.open(first) || !s.open(second) {
		t.Error("the newest is not the one that was closed")
	}
	mine.Close()
	mine.Close() // counted once
	if fourth := s.dial(); !s.open(fourth) {
		t.Error("a closed connection makes no room")
	}
	if fifth := s.dial(); !s.closed(fifth) {
		t.Error("a connection closed twice makes room for two")
	}
}
