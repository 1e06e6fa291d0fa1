package execjournal

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/agbox/agbox/apis/agbox/v1/validate"
	"github.com/agbox/agbox/internal/execid"
)

const testNonce = "0123456789abcdef0123456789abcdef"

func TestRequestRoundTrip(t *testing.T) {
	want := Request{
		Version: Version, ExecID: "e1", Nonce: testNonce, Command: []string{"sh", "-c", "<&>\n\x01é"},
		Cwd: "/w", Env: map[string]string{"A": "b=c"}, User: "u:g", LogLimitBytes: 5, LogLimitAction: LogLimitDrop,
		CancelGraceMillis: 7,
	}
	data, err := Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeRequest(data, "e1")
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := DecodeRequest(data, "e2"); !errors.Is(err, ErrMalformed) {
		t.Errorf("for another exec: %v", err)
	}
}

// The fields that the second release added must decode in all later releases.
func TestAddedFieldsDecode(t *testing.T) {
	j, err := DecodeJournal([]byte(`{"version":1,"exec_id":"_hook.0","nonce":"`+testNonce+`","state":"ended",
		"stdout_bytes":70,"stdout_dropped_bytes":5,"stderr_dropped_bytes":6}`), "_hook.0")
	want := Journal{
		Version: 1, ExecID: "_hook.0", Nonce: testNonce, State: StateEnded, StdoutBytes: 70, StdoutDroppedBytes: 5, StderrDroppedBytes: 6,
	}
	if err != nil || j != want {
		t.Errorf("journal %+v, %v", j, err)
	}
	r, err := DecodeRequest([]byte(`{"version":1,"exec_id":"_hook.0","nonce":"`+testNonce+`","command":["a"],
		"log_limit_bytes":1,"log_limit_action":"drop","cancel_grace_ms":2}`), "_hook.0")
	if err != nil || r.LogLimitAction != LogLimitDrop {
		t.Errorf("request %+v, %v", r, err)
	}
	const marker = "\n[agbox: output limit of 1000 bytes reached; what follows was dropped]\n"
	if got := DroppedMarker(1000); got != marker {
		t.Errorf("marker %q", got)
	}
}

// The files below are in containers of the first release. Every release must decode them with the same meaning.
func TestFirstReleasesFilesDecode(t *testing.T) {
	j, err := DecodeJournal([]byte(`{"version":1,"exec_id":"e1","nonce":"`+testNonce+`","boot_id":"b","state":"ended",
		"started_at_ns":1,"ended_at_ns":2,"exit_code":137,"signal":9,"oom":true,"cancelled":true,"stopped":true,
		"log_limit":true,"log_lost":true,"error_code":"EXEC_START_FAILED","error":"why","stdout_bytes":3,"stderr_bytes":4}`), "e1")
	want := Journal{
		Version: 1, ExecID: "e1", Nonce: testNonce, BootID: "b", State: StateEnded, StartedAtNanos: 1, EndedAtNanos: 2,
		ExitCode: 137, Signal: 9, OOM: true, Cancelled: true, Stopped: true, LogLimit: true, LogLost: true,
		ErrorCode: ErrorStartFailed, Error: "why", StdoutBytes: 3, StderrBytes: 4,
	}
	if err != nil || j != want {
		t.Errorf("journal %+v, %v", j, err)
	}
	r, err := DecodeRequest([]byte(`{"version":1,"exec_id":"e1","nonce":"`+testNonce+`","command":["a","b"],"cwd":"/c",
		"env":{"K":"V"},"user":"u","log_limit_bytes":1,"cancel_grace_ms":2}`), "e1")
	if err != nil || r.Command[1] != "b" || r.Cwd != "/c" || r.Env["K"] != "V" || r.User != "u" || r.LogLimitBytes != 1 || r.CancelGraceMillis != 2 {
		t.Errorf("request %+v, %v", r, err)
	}
	c, err := DecodeCancel([]byte(`{"version":1,"nonce":"` + testNonce + `"}`))
	if err != nil || c.Nonce != testNonce {
		t.Errorf("cancel %+v, %v", c, err)
	}
}

func TestJournalOutOfRangeIsMalformed(t *testing.T) {
	good := `"version":1,"exec_id":"e1","nonce":"` + testNonce + `","state":"ended"`
	if _, err := DecodeJournal([]byte("{"+good+`,"later":[{}]}`), "e1"); err != nil {
		t.Fatalf("with an unknown field: %v", err)
	}
	for name, text := range map[string]string{
		"empty":                   "",
		"null":                    "null",
		"a list":                  "[]",
		"trailing text":           "{" + good + "} x",
		"a newer version":         "{" + good + `,"version":2}`,
		"exit code too high":      "{" + good + `,"exit_code":256}`,
		"exit code negative":      "{" + good + `,"exit_code":-1}`,
		"exit code not whole":     "{" + good + `,"exit_code":1.5}`,
		"exit code a string":      "{" + good + `,"exit_code":"1"}`,
		"signal without its code": "{" + good + `,"signal":9}`,
		"signal too high":         "{" + good + `,"signal":65,"exit_code":193}`,
		"time negative":           "{" + good + `,"ended_at_ns":-1}`,
		"time too high":           "{" + good + `,"ended_at_ns":9223372036854775808}`,
		"size negative":           "{" + good + `,"stdout_bytes":-5}`,
		"dropped negative":        "{" + good + `,"stdout_dropped_bytes":-1}`,
		"dropped negative too":    "{" + good + `,"stderr_dropped_bytes":-1}`,
		"dropped too many":        "{" + good + `,"stdout_dropped_bytes":9223372036854775808}`,
		"unknown state":           "{" + good + `,"state":"paused"}`,
		"no nonce":                "{" + good + `,"nonce":""}`,
		"other exec":              "{" + good + `,"exec_id":"e2"}`,
		"control characters":      "{" + good + `,"error":"a\u001b[31m"}`,
		"direction override":      "{" + good + `,"error":"a\u202eb"}`,
		"long text":               "{" + good + `,"error":"` + strings.Repeat("x", MaxErrorBytes+1) + `"}`,
		"odd error code":          "{" + good + `,"error_code":"a b"}`,
		"odd boot ID":             "{" + good + `,"boot_id":"\n"}`,
	} {
		if j, err := DecodeJournal([]byte(text), "e1"); !errors.Is(err, ErrMalformed) || j != (Journal{}) {
			t.Errorf("%s: %+v, %v", name, j, err)
		}
	}
}

func TestDecodeRequestRejectsInvalidRequests(t *testing.T) {
	good := Request{Version: 1, ExecID: "e1", Nonce: testNonce, Command: []string{"true"}}
	for name, change := range map[string]func(*Request){
		"no command":        func(r *Request) { r.Command = nil },
		"empty program":     func(r *Request) { r.Command = []string{""} },
		"NUL in argument":   func(r *Request) { r.Command = []string{"a", "b\x00"} },
		"not UTF-8":         func(r *Request) { r.Command = []string{"a", "\xff"} },
		"relative cwd":      func(r *Request) { r.Cwd = "x" },
		"NUL in cwd":        func(r *Request) { r.Cwd = "/x\x00" },
		"equals in a key":   func(r *Request) { r.Env = map[string]string{"A=B": ""} },
		"empty key":         func(r *Request) { r.Env = map[string]string{"": ""} },
		"NUL in a value":    func(r *Request) { r.Env = map[string]string{"A": "\x00"} },
		"negative limit":    func(r *Request) { r.LogLimitBytes = -1 },
		"unknown action":    func(r *Request) { r.LogLimitAction = "rotate" },
		"the main process":  func(r *Request) { r.ExecID = execid.Main },
		"negative grace":    func(r *Request) { r.CancelGraceMillis = -1 },
		"grace of a day":    func(r *Request) { r.CancelGraceMillis = 86400_000 },
		"newline in user":   func(r *Request) { r.User = "a\nb" },
		"user far too long": func(r *Request) { r.User = strings.Repeat("u", 257) },
	} {
		r := good
		change(&r)
		if r.problem() == "" {
			t.Errorf("%s: accepted", name)
		}
	}
	for _, action := range []string{"", LogLimitKill, LogLimitDrop} {
		good.LogLimitAction = action
		if why := good.problem(); why != "" {
			t.Errorf("action %q: %s", action, why)
		}
	}
}

func TestFileNamesOfTwoExecsNeverCollide(t *testing.T) {
	ids := []string{
		"a", "a.lock", "a.journal", "a.stdout", "a.stdout.log", "a.lost", "b", execid.Main, "_hook.0", "_hook.0.end", "_hook.1", "_hook.10",
	}
	seen := make(map[string]string)
	for _, id := range ids {
		if !ValidExecID(id) {
			t.Fatalf("%q is refused", id)
		}
		for _, file := range []string{RequestName(id), CancelName(id)} {
			if got, cancel, ok := RequestID(file); got != id || cancel != (file == CancelName(id)) || !ok {
				t.Errorf("%q is parsed as of %q, %v, %v", file, got, cancel, ok)
			}
		}
		for _, file := range []string{JournalName(id), LostName(id)} {
			if got, ok := ownerOf(file, journalSuffix, lostSuffix); got != id || !ok {
				t.Errorf("%q is read as of %q, %v", file, got, ok)
			}
		}
		for _, name := range []string{
			RequestName(id), CancelName(id), TempName(id, "json"), TempName(id, "cancel"), JournalName(id), LockName(id), LostName(id), StdoutName(id), StderrName(id),
			TempName(id, "close"), TempName(id, "journal"), TempName(id, "end"),
		} {
			if other, ok := seen[name]; ok {
				t.Errorf("%q names files of %q and %q", name, other, id)
			}
			seen[name] = id
		}
	}
	for _, id := range []string{"", ".", "..", ".a", "a/b", "a\x00", "a b", "é", strings.Repeat("x", 201)} {
		if ValidExecID(id) {
			t.Errorf("%q is accepted", id)
		}
	}
}

func TestClientIDsAreNeverInternal(t *testing.T) {
	for _, id := range []string{execid.Main, "_hook.0", "_hook.12.3", "_abc", "____"} {
		if !execid.Internal(id) || !ValidExecID(id) || len(validate.ExecID(id)) == 0 || len(validate.SandboxID(id)) == 0 {
			t.Errorf("%q is not an internal ID alone", id)
		}
	}
	for _, id := range []string{"exec-1", "hook_0", "0000", "a_hook"} {
		if execid.Internal(id) || len(validate.ExecID(id)) != 0 {
			t.Errorf("%q is not a client's ID", id)
		}
	}
}

func FuzzClientIDsAreNeverInternal(f *testing.F) {
	f.Add("_hook.0")
	f.Add("hook")
	f.Fuzz(func(t *testing.T, id string) {
		if len(validate.ExecID(id)) == 0 && (execid.Internal(id) || !ValidExecID(id)) {
			t.Errorf("%q", id)
		}
	})
}

func TestSentenceFitsTheJournal(t *testing.T) {
	for _, s := range []string{"", "plain", "a\x1b[31m\nb\xff", strings.Repeat("é", 1000), strings.Repeat(`"\`, 1000)} {
		j := Journal{Version: 1, ExecID: "e1", Nonce: testNonce, State: StateEnded, Error: Sentence(s)}
		data, err := Encode(j)
		if err != nil || len(data) > 2048 {
			t.Errorf("%d bytes, %v", len(data), err)
		}
		if _, err := DecodeJournal(data, "e1"); err != nil {
			t.Error(err)
		}
	}
}

func FuzzDecodeJournal(f *testing.F) {
	f.Add([]byte(`{"version":1,"exec_id":"e1","nonce":"` + testNonce + `","state":"ended","exit_code":137,"signal":9}`))
	f.Add([]byte(`{"version":1,"exec_id":"e1","nonce":"` + testNonce + `","state":"closed","error":"x"}`))
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, data []byte) {
		j, err := DecodeJournal(data, "e1")
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("unclassified: %v", err)
			}
			return
		}
		if j.problem("e1") != "" {
			t.Fatalf("accepted %+v", j)
		}
		again, err := Encode(j)
		if err != nil {
			t.Fatal(err)
		}
		if k, err := DecodeJournal(again, "e1"); err != nil || k != j {
			t.Fatalf("%+v became %+v, %v", j, k, err)
		}
	})
}

func FuzzDecodeRequest(f *testing.F) {
	f.Add([]byte(`{"version":1,"exec_id":"e1","nonce":"` + testNonce + `","command":["a"],"env":{"A":"b"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := DecodeRequest(data, "e1"); err == nil && r.problem() != "" {
			t.Fatalf("accepted %+v", r)
		} else if err != nil && !errors.Is(err, ErrMalformed) {
			t.Fatalf("unclassified: %v", err)
		}
	})
}
