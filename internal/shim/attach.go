package shim

import (
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agbox/agbox/internal/channel"
)

const (
	// maxAttached is the number of streams of the daemon to one exec.
	maxAttached = 64
	// livePatience is how long output beyond the limit of the log waits for a reader before it is dropped: a daemon that was killed is back by
	// then, and its client too.
	livePatience = time.Minute
	// outRoom is the largest number of bytes of frames, in bytes, that wait for one stream to be read; then no more acknowledgements are queued.
	outRoom = 4 << 10
)

// attached is one stream of the daemon: a client that reads output beyond the limit of the log, writes standard input, or both.
type attached struct {
	fd   int
	in   []byte // start of a frame
	out  []byte // frames that the socket has not taken
	open bool   // the first frame has arrived
	live bool   // wants output beyond the limit
	sent [2]int64
}

// attachments are all of them. Each has its own socket, so one that is not read delays only what it asked for.
type attachments struct {
	all    []*attached
	writer *attached // who writes standard input
	acked  int64     // offset of the last acknowledgement
	buf    []byte    // of receive; nil while there is no stream
}

// attach accepts a stream that init passes over the link.
func (j *job) attach() {
	var b [1]byte
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := unix.Recvmsg(linkFd, b[:], oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return
	}
	if err != nil || n == 0 {
		j.unlinked = true // init has died, and this process is about to
		return
	}
	for _, fd := range rights(oob[:oobn]) {
		if len(j.att.all) == maxAttached || unix.SetNonblock(fd, true) != nil {
			unix.Close(fd)
			continue
		}
		j.att.all = append(j.att.all, &attached{fd: fd})
	}
}

// rights returns the descriptors of a control message.
func rights(oob []byte) (fds []int) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		if got, err := unix.ParseUnixRights(&m); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}

// watchAttached returns what wait polls for the streams of the daemon.
func (j *job) watchAttached(list []watched) []watched {
	if !j.linked || j.unlinked {
		return list
	}
	list = append(list, watched{fd: linkFd, events: unix.POLLIN, ready: func(int16) { j.attach() }})
	for _, a := range j.att.all {
		j.queue(a)
		events := int16(unix.POLLIN)
		if len(a.out) > 0 {
			events |= unix.POLLOUT
		}
		list = append(list, watched{fd: a.fd, events: events, ready: func(revents int16) { j.serve(a, revents) }})
	}
	return list
}

// queue encodes what a stream is to be sent next, if all before was sent.
func (j *job) queue(a *attached) {
	if t := j.typed; t != nil && a == j.att.writer && len(a.out) < outRoom && t.taken != j.att.acked && (t.idle() || t.taken-j.att.acked >= channel.StdinWindow/4) {
		j.att.acked = t.taken
		a.out = (&channel.Frame{Kind: channel.StdinAck, Offset: t.taken, Stream: number(t.over())}).Append(a.out)
	}
	if !a.live || len(a.out) > 0 {
		return
	}
	for i, st := range j.streams {
		if len(st.over) > 0 && a.sent[i] != st.overAt+int64(len(st.over)) {
			a.sent[i] = st.overAt + int64(len(st.over))
			a.out = (&channel.Frame{Kind: channel.Output, Stream: uint32(i + 1), Offset: st.overAt, Data: st.over}).Append(a.out)
		}
	}
}

// serve reads and writes one stream.
func (j *job) serve(a *attached, revents int16) {
	if revents&unix.POLLOUT != 0 && len(a.out) > 0 {
		n, err := unix.Write(a.fd, a.out)
		if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			j.detach(a)
			return
		}
		a.out = a.out[max(n, 0):]
		if len(a.out) == 0 {
			a.out = nil
		}
	}
	if revents&^unix.POLLOUT != 0 && !j.receive(a) {
		j.detach(a)
		return
	}
	j.relay(time.Now())
}

// receive reads one piece and handles the frames in it. It returns false if the stream is over.
func (j *job) receive(a *attached) bool {
	if j.att.buf == nil {
		j.att.buf = make([]byte, 4*channel.MaxFrame)
	}
	buf := j.att.buf
	kept := copy(buf, a.in)
	n, err := unix.Read(a.fd, buf[kept:])
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return true
	}
	if err != nil || n <= 0 {
		return false
	}
	data := buf[:kept+n]
	for {
		f, size, err := channel.Cut(data)
		if err != nil || size > 0 && !j.handle(a, f) {
			return false
		}
		if size == 0 {
			a.in = append(a.in[:0], data...)
			return true
		}
		data = data[size:]
	}
}

// handle obeys one frame. It returns false if the daemon broke the protocol.
func (j *job) handle(a *attached, f channel.Frame) bool {
	if !a.open {
		return f.Kind == channel.Attach && j.admit(a, f)
	}
	switch f.Kind {
	case channel.Stdin:
		return a != j.att.writer || j.typed.accept(f.Offset, f.Data)
	case channel.StdinEnd:
		return a != j.att.writer || j.typed.endAt(f.Offset)
	case channel.Resize:
		j.typed.resize(f.Columns, f.Rows)
	case channel.Signal:
		j.signalGroup(unix.Signal(f.Number))
	}
	return true
}

// admit answers the first frame of a stream.
func (j *job) admit(a *attached, f channel.Frame) bool {
	a.open, a.live = true, f.Live && j.live
	answer := channel.Frame{Kind: channel.Attached, Limit: j.streams[0].limit}
	if t := j.typed; t != nil {
		answer.Offset, answer.Number, answer.Stream, answer.Columns = t.next(), t.taken, number(t.over()), number(t.terminal)
		t.resize(f.Columns, f.Rows)
		if f.Stream != 0 {
			j.takeOver(a)
		}
	} else {
		answer.Stream = 1
	}
	a.out = answer.Append(a.out)
	for i, st := range j.streams {
		a.sent[i] = 0
		if lost := st.dropped; a.live && lost > 0 {
			a.out = (&channel.Frame{Kind: channel.Gap, Stream: uint32(i + 1), Offset: st.taken + st.relayed, Number: lost}).Append(a.out)
		}
	}
	return true
}

// takeOver makes a the writer of standard input.
func (j *job) takeOver(a *attached) {
	if old := j.att.writer; old != nil {
		old.out = (&channel.Frame{Kind: channel.TakenOver}).Append(old.out)
	}
	j.att.writer, j.att.acked = a, j.typed.taken
}

func (j *job) detach(a *attached) {
	unix.Close(a.fd)
	j.att.all = slices.DeleteFunc(j.att.all, func(other *attached) bool { return other == a })
	if j.att.writer == a {
		j.att.writer = nil
	}
	if len(j.att.all) == 0 {
		j.att.buf = nil
		j.typed.rest()
	}
	j.relay(time.Now())
}

// relay drops what all readers were sent of the output beyond the limit, and decides what becomes of it without a reader.
func (j *job) relay(now time.Time) {
	if !j.live {
		return
	}
	readers := 0
	for _, a := range j.att.all {
		if a.live {
			readers++
		}
	}
	switch {
	case readers > 0:
		j.liveUntil = time.Time{}
	case j.liveUntil.IsZero() && slices.ContainsFunc(j.streams, func(st *stream) bool { return len(st.over) > 0 }):
		j.liveUntil = now.Add(livePatience)
	}
	expired := j.giveUp || !j.liveUntil.IsZero() && !now.Before(j.liveUntil)
	for i, st := range j.streams {
		st.holds = !expired
		if len(st.over) == 0 {
			continue
		}
		if readers > 0 && !j.giveUp {
			end := st.overAt + int64(len(st.over))
			if !slices.ContainsFunc(j.att.all, func(a *attached) bool { return a.live && (a.sent[i] != end || len(a.out) > 0) }) {
				st.relayed += int64(len(st.over))
				st.over = nil
			}
		} else if expired {
			st.dropped += int64(len(st.over))
			st.over = nil
		}
	}
}

// endLive says to all readers that they were sent all output up to the end of the command.
func (j *job) endLive() {
	for _, a := range j.att.all {
		if a.live {
			a.out = (&channel.Frame{Kind: channel.End}).Append(a.out)
		}
	}
}

// signalGroup sends a signal to the foreground group of the terminal, else to the process group of the command.
func (j *job) signalGroup(sig unix.Signal) {
	if j.pid == 0 || j.exited || sig <= 0 || sig > lastSignal {
		return
	}
	group := j.pid
	if j.typed != nil && j.typed.terminal && j.typed.fd >= 0 {
		if g, err := unix.IoctlGetInt(j.typed.fd, unix.TIOCGPGRP); err == nil && g > 1 {
			group = g
		}
	}
	_ = unix.Kill(-group, sig)
}

// hangUpTerminal sends HUP, and CONT, to the processes of the command's session, as the loss of a terminal does. The terminal stays, so their
// last output is logged.
func (j *job) hangUpTerminal() {
	if j.pid == 0 || j.exited {
		return
	}
	for _, p := range (tree{root: j.pid}).list() {
		if sid, err := unix.Getsid(p.pid); err == nil && sid == j.pid {
			_ = unix.Kill(p.pid, unix.SIGHUP)
			_ = unix.Kill(p.pid, unix.SIGCONT)
		}
	}
	_ = unix.Kill(j.pid, unix.SIGHUP)
	_ = unix.Kill(j.pid, unix.SIGCONT)
}

func number(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}
