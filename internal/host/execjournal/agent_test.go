package execjournal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/agbox/agbox/internal/execphase"
)

func TestAppendInboxIsIdempotent(t *testing.T) {
	d, p := newDir(t)
	path := filepath.Join(p.Ctl, ExecDir, InboxName("a.1"))
	size := func() int64 {
		n, err := d.InboxSize("box1", "a.1")
		must(t, err)
		return n
	}
	if size() != 0 {
		t.Error("a missing inbox has a size")
	}
	one, two := []byte("first\n"), bytes.Repeat([]byte("second "), 100_000)
	for range 3 {
		n, err := d.AppendInbox("box1", "a.1", 0, one)
		must(t, err)
		if n != size() {
			t.Fatalf("size %d", n)
		}
	}
	for _, torn := range []int{0, 1, 4096, len(two) - 1, len(two)} {
		must(t, os.WriteFile(path, append([]byte("first\n"), two[:torn]...), 0o600))
		for range 2 {
			n, err := d.AppendInbox("box1", "a.1", 6, two)
			if err != nil || n != int64(6+len(two)) {
				t.Fatalf("torn at %d: %d, %v", torn, n, err)
			}
		}
		data, err := os.ReadFile(path)
		must(t, err)
		if string(data) != "first\n"+string(two) {
			t.Errorf("torn at %d: the inbox differs from the appended data", torn)
		}
	}
	if n, err := d.AppendInbox("box1", "a.1", 0, one); err != nil || n != size() {
		t.Errorf("an older append, repeated: %d, %v", n, err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode() != 0o600 {
		t.Errorf("mode %v", st.Mode())
	}
}

func TestAppendInboxRefusesConflictingData(t *testing.T) {
	d, _ := newDir(t)
	_, err := d.AppendInbox("box1", "a.1", 0, []byte("abc"))
	must(t, err)
	for _, c := range []struct {
		offset int64
		data   string
		is     func(error) bool
	}{
		{4, "x", errdefs.IsFailedPrecondition},
		{0, "abd", errdefs.IsFailedPrecondition},
		{0, "xbcd", errdefs.IsFailedPrecondition},
		{1, "bd", errdefs.IsFailedPrecondition},
		{-1, "x", errdefs.IsInvalidArgument},
	} {
		if _, err := d.AppendInbox("box1", "a.1", c.offset, []byte(c.data)); !c.is(err) {
			t.Errorf("%q at %d: %v", c.data, c.offset, err)
		}
	}
	if n, _ := d.InboxSize("box1", "a.1"); n != 3 {
		t.Errorf("%d bytes", n)
	}
	if _, err := d.AppendInbox("box2", "a.1", 0, nil); !errdefs.IsNotFound(err) {
		t.Errorf("before Prepare: %v", err)
	}
	must(t, d.CloseInbox("box1", "a.1"))
	must(t, d.CloseInbox("box1", "a.1"))
	if n, err := d.AppendInbox("box1", "a.1", 0, []byte("abc")); n != 3 || err != nil {
		t.Errorf("repeated after the close: %d, %v", n, err)
	}
	if _, err := d.AppendInbox("box1", "a.1", 0, []byte("abcd")); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("after the close: %v", err)
	}
}

func TestForgetRemovesTheInbox(t *testing.T) {
	d, p := newDir(t)
	must(t, d.Start("box1", Request{ExecID: "a.1", Nonce: testNonce, Command: []string{"true"}, Inbox: true}))
	_, err := d.AppendInbox("box1", "a.1", 0, []byte("secret"))
	must(t, err)
	_, err = d.AppendInbox("box1", "a.11", 0, []byte("another"))
	must(t, err)
	must(t, d.CloseInbox("box1", "a.1"))
	must(t, d.Forget("box1", "a.1"))
	entries, err := os.ReadDir(filepath.Join(p.Ctl, ExecDir))
	must(t, err)
	if len(entries) != 1 || entries[0].Name() != "a.11.inbox" {
		t.Errorf("left: %v", entries)
	}
}

func TestInboxNames(t *testing.T) {
	for name, want := range map[string]string{
		"a.1.inbox": "a.1", "a.1.inbox.closed": "a.1", "a.1.json": "", "a.1.cancel": "", ".a.1.closed.tmp": "", ".inbox": "",
		"release": "",
	} {
		if id, ok := InboxID(name); (want != "") != ok || ok && id != want {
			t.Errorf("%s: %q, %v", name, id, ok)
		}
		if _, _, ok := RequestID(name); ok && want != "" {
			t.Errorf("%s is a request", name)
		}
	}
}

// A plain request stays at version 1, so that containers of older releases run it.
func TestOnlyAnInboxAndATimeoutNeedAHigherVersion(t *testing.T) {
	d, p := newDir(t)
	for id, r := range map[string]Request{
		`"version":1`: {ExecID: "e1", Nonce: testNonce, Command: []string{"true"}},
		`"version":2`: {ExecID: "a.1", Nonce: testNonce, Command: []string{"true"}, Inbox: true},
		`"version":3`: {ExecID: "e2", Nonce: testNonce, Command: []string{"true"}, TimeoutMillis: 1},
	} {
		must(t, d.Start("box1", r))
		data, err := os.ReadFile(filepath.Join(p.Ctl, ExecDir, RequestName(r.ExecID)))
		must(t, err)
		if !strings.Contains(string(data), id) {
			t.Errorf("%s", data)
		}
		got, err := DecodeRequest(data, r.ExecID)
		if err != nil || got.Inbox != r.Inbox || got.TimeoutMillis != r.TimeoutMillis {
			t.Errorf("%+v, %v", got, err)
		}
	}
	for name, r := range map[string]Request{
		"inbox in version 1":   {Version: 1, Inbox: true},
		"timeout in version 2": {Version: 2, TimeoutMillis: 1},
		"negative timeout":     {Version: 3, TimeoutMillis: -1},
		"stdin in version 3":   {Version: 3, Stdin: true},
		"stdin and an inbox":   {Version: 4, Stdin: true, Inbox: true},
		"version 5":            {Version: 5},
	} {
		r.ExecID, r.Nonce, r.Command = "e1", testNonce, []string{"true"}
		data, err := Encode(r)
		must(t, err)
		if _, err := DecodeRequest(data, "e1"); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The text below is that of the first release's shim, which stays in containers for their whole life.
func TestRefusalOfAnOldShimSaysWhatToDo(t *testing.T) {
	d, p := newDir(t)
	const old = `{"version":1,"exec_id":"a.1","nonce":"%s","state":"ended","exit_code":126,"error_code":"EXEC_START_FAILED","error":%q}`
	write(t, p.Logs, JournalName("a.1"), fmt.Sprintf(old, testNonce, "malformed: request version 2 is not supported"))
	s, err := d.Status("box1", "a.1", testNonce)
	if err != nil || s.Phase != execphase.Ended || !strings.Contains(s.Journal.Error, "agbox apply --replace") || s.Journal.ErrorCode != ErrorStartFailed {
		t.Errorf("%+v, %v", s, err)
	}
	write(t, p.Logs, JournalName("a.1"), fmt.Sprintf(old, testNonce, "malformed: command is empty"))
	if s, err := d.Status("box1", "a.1", testNonce); err != nil || TooOld(s.Journal) || s.Journal.Error != "malformed: command is empty" {
		t.Errorf("%+v, %v", s, err)
	}
}
