package channel

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func drawFrame(t *rapid.T) Frame {
	return Frame{
		Kind: Kind(rapid.Uint32().Draw(t, "kind")), Offset: rapid.Int64().Draw(t, "offset"), Stream: rapid.Uint32().Draw(t, "stream"),
		Data: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "data"), Number: rapid.Int64().Draw(t, "number"), Text: rapid.String().Draw(t, "text"),
		Exec: rapid.String().Draw(t, "exec"), User: rapid.String().Draw(t, "user"), Columns: rapid.Uint32().Draw(t, "columns"),
		Rows: rapid.Uint32().Draw(t, "rows"), Limit: rapid.Int64().Draw(t, "limit"), Live: rapid.Bool().Draw(t, "live"),
	}
}

func TestFramesAreReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var wire bytes.Buffer
		frames := rapid.SliceOfN(rapid.Custom(drawFrame), 1, 5).Draw(t, "frames")
		for _, f := range frames {
			if err := Write(&wire, f); err != nil {
				t.Fatal(err)
			}
		}
		whole, r := wire.Bytes(), NewReader(bytes.NewReader(wire.Bytes()))
		for _, want := range frames {
			got, err := r.Read()
			if err != nil {
				t.Fatal(err)
			}
			cut, size, err := Cut(whole)
			if err != nil || size == 0 {
				t.Fatalf("size %d, %v", size, err)
			}
			whole = whole[size:]
			for _, f := range []Frame{got, cut} {
				if len(want.Data) == 0 {
					want.Data, f.Data = nil, nil
				}
				if !reflect.DeepEqual(f, want) {
					t.Fatalf("got %+v, want %+v", f, want)
				}
			}
		}
		if _, err := r.Read(); !errors.Is(err, io.EOF) {
			t.Fatalf("at the end: %v", err)
		}
	})
}

func TestABadFrameIsRefused(t *testing.T) {
	tooLarge := []byte{0, 2, 0, 0}
	for name, wire := range map[string][]byte{
		"too large":   tooLarge,
		"no field":    {0, 0, 0, 1, 0xff},
		"short bytes": {0, 0, 0, 2, 0x1a, 9},
	} {
		if _, err := NewReader(bytes.NewReader(wire)).Read(); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: read: %v", name, err)
		}
		if _, _, err := Cut(wire); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: cut: %v", name, err)
		}
	}
	if _, err := NewReader(bytes.NewReader([]byte{0, 0, 0, 9, 1})).Read(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a frame that is cut off: %v", err)
	}
}

func FuzzCut(f *testing.F) {
	f.Add((&Frame{Kind: Stdin, Offset: 1, Data: []byte("x")}).Append(nil))
	f.Fuzz(func(t *testing.T, wire []byte) {
		frame, size, err := Cut(wire)
		if size < 0 || size > len(wire) || err == nil && size == 0 && len(wire) > MaxFrame+4 {
			t.Errorf("size %d of %d bytes", size, len(wire))
		}
		if err == nil && size > 0 {
			again, _, err := Cut(frame.Append(nil))
			if err != nil || !bytes.Equal(again.Data, frame.Data) || again.Kind != frame.Kind {
				t.Errorf("%+v, %v", again, err)
			}
		}
	})
}
