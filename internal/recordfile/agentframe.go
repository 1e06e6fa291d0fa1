package recordfile

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"

	storev1 "github.com/agbox/agbox/apis/agbox/store/v1"
)

// Frames of agents are frames as all others; their payload ends with trailerBytes that repeat the length of the frame, so that
// the last one of a file is found from its end.
const (
	kindAgent    kind = "AGBA"
	kindRemoved  kind = "AGBX"
	trailerBytes      = 4
	// agentPart bounds what one frame holds, but for a single record that is larger: a larger transaction is several.
	agentPart = 1 << 20
)

// AgentFileName is the name of the file of an agent: IDs may be longer than names.
func AgentFileName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

// agentParts calls fn with the frames of a change, and returns the buffer that it used, for the next one. What fn is handed dies with the
// call. Errors: ErrInvalidArgument for a record that is too large; fn's.
func agentParts(c *storev1.AgentChange, buffer []byte, fn func(frame []byte) error) ([]byte, error) {
	part := &storev1.AgentChange{AgentId: c.GetAgentId(), Before: c.GetBefore(), After: c.GetAfter()}
	for ops := c.GetOps(); ; {
		n := partOf(ops)
		part.Ops, part.More = ops[:n], c.GetMore() || n < len(ops)
		var err error
		if buffer, err = agentFrame(part, buffer); err != nil {
			return buffer, err
		}
		if err := fn(buffer); err != nil {
			return buffer, err
		}
		if ops = ops[n:]; len(ops) == 0 {
			return buffer, nil
		}
	}
}

// partOf is how many ops make one frame.
func partOf(ops []*storev1.AgentOp) int {
	bytes := 0
	for i, o := range ops {
		if bytes += len(o.GetKey()) + len(o.GetValue()); bytes > agentPart && i > 0 {
			return i
		}
	}
	return len(ops)
}

func agentFrame(c *storev1.AgentChange, buffer []byte) ([]byte, error) {
	b := buffer[:0]
	b = append(b, kindAgent...)
	b = binary.BigEndian.AppendUint32(b, version)
	b = append(b, make([]byte, headerBytes-len(b))...)
	b, err := proto.MarshalOptions{}.MarshalAppend(b, c)
	if err != nil {
		return buffer, fmt.Errorf("encode: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(b)+trailerBytes))
	n := len(b) - headerBytes
	if n > maxPayload {
		return b, fmt.Errorf("record of %d bytes: %w", n, errdefs.ErrInvalidArgument)
	}
	binary.BigEndian.PutUint32(b[8:], uint32(n))
	binary.BigEndian.PutUint32(b[sumOffset:], checksum(b, b[headerBytes:]))
	return b, nil
}

// decodeAgent takes a frame apart. Errors: ErrFailedPrecondition for one of a later release; ErrDataLoss.
func decodeAgent(f frame) (*storev1.AgentChange, error) {
	if f.newer() {
		return nil, errNewer(f.version)
	}
	n := len(f.payload) - trailerBytes
	if n < 0 || int64(binary.BigEndian.Uint32(f.payload[n:])) != f.size() {
		return nil, fmt.Errorf("a change does not repeat its length: %w", errdefs.ErrDataLoss)
	}
	c := &storev1.AgentChange{}
	if err := proto.Unmarshal(f.payload[:n], c); err != nil {
		return nil, fmt.Errorf("decode change: %w: %w", err, errdefs.ErrDataLoss)
	}
	if c.GetAgentId() == "" {
		return nil, fmt.Errorf("a change is of nobody: %w", errdefs.ErrDataLoss)
	}
	return c, nil
}

// lastChange reads the last frame of a file that ends with a whole transaction of the agent. Errors: ErrDataLoss when it does not.
func lastChange(f *os.File, size int64, id string) (*storev1.AgentChange, error) {
	var trailer [trailerBytes]byte
	if size < headerBytes+trailerBytes {
		return nil, torn(headerBytes+trailerBytes, size)
	}
	if _, err := f.ReadAt(trailer[:], size-trailerBytes); err != nil {
		return nil, err
	}
	n := int64(binary.BigEndian.Uint32(trailer[:]))
	if n < headerBytes+trailerBytes || n > size {
		return nil, fmt.Errorf("the file does not end with a change: %w", errdefs.ErrDataLoss)
	}
	fr, err := readFrame(section(f, size-n, size), n, kindAgent)
	if err != nil {
		return nil, err
	}
	c, err := decodeAgent(fr)
	if err == nil && (c.GetMore() || c.GetAgentId() != id) {
		err = fmt.Errorf("the file ends in the middle of a change, or is of another agent: %w", errdefs.ErrDataLoss)
	}
	return c, err
}

// chain follows the changes of one agent through its file.
type chain struct {
	id   string
	mark uint64 // after the last whole change
	open *storev1.AgentChange
}

// link takes the next part. Errors: ErrDataLoss for one that does not follow.
func (h *chain) link(c *storev1.AgentChange) error {
	before := h.mark
	switch {
	case h.id == "":
		h.id = c.GetAgentId()
	case h.open != nil:
		before = h.open.GetBefore()
	}
	if c.GetAgentId() != h.id || c.GetBefore() != before || h.open != nil && c.GetAfter() != h.open.GetAfter() {
		return fmt.Errorf("a change does not follow on the one before it: %w", errdefs.ErrDataLoss)
	}
	if h.open = c; !c.GetMore() {
		h.open, h.mark = nil, c.GetAfter()
	}
	return nil
}

// scanAgent calls fn with each part of a change that follows, and returns where the last whole change ends. Errors: ErrDataLoss when
// something else is behind that; ErrFailedPrecondition for what a later release wrote; fn's; that of r.
func scanAgent(r io.Reader, size int64, fn func(*storev1.AgentChange) error) (h chain, good int64, err error) {
	_, err = scan(r, size, kindAgent, func(offset int64, f frame) error {
		c, err := decodeAgent(f)
		if err == nil {
			err = h.link(c)
		}
		if err == nil {
			err = fn(c)
		}
		if err == nil && h.open == nil {
			good = offset + f.size()
		}
		return err
	})
	if err == nil && h.open != nil {
		err = fmt.Errorf("a change has no end: %w", errdefs.ErrDataLoss)
	}
	return h, good, err
}
