package recordfile

import (
	"bytes"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
)

// FuzzScan: whatever is in a file, what is good of it is a prefix that encodes to the same bytes, and what is behind it
// is told.
func FuzzScan(f *testing.F) {
	for _, n := range []uint64{1, 2} {
		payload, err := proto.Marshal(record("box", n))
		must(f, err)
		one := must2(encodeFrame(kindSandbox, frame{1, payload}))
		f.Add(one, true)
		f.Add(append(one, one[:len(one)-1]...), true)
	}
	payload, err := proto.Marshal(execRecord("box", "a"))
	must(f, err)
	f.Add(must2(encodeFrame(kindExec, frame{1, payload})), false)
	f.Add(must2(encodeFrame(kindExec, frame{2, nil})), false)
	f.Fuzz(func(t *testing.T, data []byte, sandbox bool) {
		k := kindExec
		if sandbox {
			k = kindSandbox
		}
		var again []byte
		good, err := scan(bytes.NewReader(data), int64(len(data)), k, func(_ int64, fr frame) error {
			again = append(again, must2(encodeFrame(k, fr))...)
			checkDecoders(t, fr)
			return nil
		})
		if !bytes.Equal(again, data[:good]) {
			t.Fatalf("the first %d bytes are not what was read from them", good)
		}
		if (err == nil) != (good == int64(len(data))) || err != nil && !errdefs.IsDataLoss(err) {
			t.Fatalf("%d of %d bytes are good: %v", good, len(data), err)
		}
	})
}

func checkDecoders(t *testing.T, fr frame) {
	if r, err := decodeRecord(fr); err == nil && (r.Spec == nil || r.Desired == nil || r.GetSandboxId() == "") {
		t.Fatalf("an incomplete record: %v", r)
	}
	if e, err := decodeExec(fr, "box"); err == nil && (e.GetRequest().GetSandboxId() != "box" || e.GetDesired().GetNonce() == "") {
		t.Fatalf("an incomplete exec: %v", e)
	}
}
