package validate_test

import (
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox/agbox/apis/agbox/v1"
	"github.com/agbox/agbox/apis/agbox/v1/validate"
)

// What is accepted is something the engine can run, and a healthcheck is judged without a panic whatever it holds.
func FuzzHealthcheck(f *testing.F) {
	f.Add("CMD\npg_isready", int64(1), int32(0), uint32(3))
	f.Add("CMD-SHELL\ncurl -f localhost || exit 1", int64(0), int32(1_000_000), uint32(0))
	f.Add("CMD\n", int64(0), int32(999_999), uint32(1001))
	f.Add("NONE", int64(-1), int32(-1), uint32(1<<31))
	f.Add("NONE\nx", int64(1)<<62, int32(-5), uint32(1))
	f.Add("", int64(24*3600), int32(1), uint32(1000))
	f.Add("CMD-SHELL\n \x00", int64(-1)<<63, int32(1)<<30, uint32(7))
	f.Fuzz(func(t *testing.T, test string, seconds int64, nanos int32, retries uint32) {
		db := healthy("db")
		d := &durationpb.Duration{Seconds: seconds, Nanos: nanos}
		db.Healthcheck = &agboxv1.HealthcheckConfig{
			Test: strings.Split(test, "\n"), Interval: d, Timeout: d, StartPeriod: d, StartInterval: d, Retries: retries,
		}
		required := validate.Create(&agboxv1.CreateSpec{Image: "a", RequiredServices: []*agboxv1.ServiceSpec{db}})
		optional := validate.Create(&agboxv1.CreateSpec{Image: "a", OptionalServices: []*agboxv1.ServiceSpec{db}})
		off := db.Healthcheck.Test[0] == "NONE"
		if len(required) == 0 && (len(optional) > 0 || off) {
			t.Fatalf("accepted as required, not as optional: %v", optional)
		}
		for _, e := range append(required, optional...) {
			checkText(t, e, utf8.ValidString(test))
		}
		if len(optional) > 0 {
			return
		}
		if words := db.Healthcheck.Test; !off && len(words) < 2 || off && len(words) != 1 || strings.Contains(test, "\x00") {
			t.Errorf("accepted the test %q", words)
		}
		if v := d.AsDuration(); v != 0 && v < time.Millisecond || v > 24*time.Hour || retries > 1000 {
			t.Errorf("accepted %v, %d retries", v, retries)
		}
	})
}

// What is accepted fits into a label of the engine as it is.
func FuzzLabels(f *testing.F) {
	f.Add("team", "a")
	f.Add("example.com/team_1", "")
	f.Add("", "x")
	f.Add("-a", "x\ny")
	f.Add("a\x00", "\x7f")
	f.Add("ä", "ä")
	f.Add(strings.Repeat("k", 1025), strings.Repeat("v", 4097))
	f.Add("a=b", "c=d")
	f.Add("\xff", "\xff")
	key := regexp.MustCompile(`\A\P{Cc}+\z`)
	f.Fuzz(func(t *testing.T, k, v string) {
		errs := validate.Create(&agboxv1.CreateSpec{Image: "a", Labels: map[string]string{k: v}})
		for _, e := range errs {
			checkText(t, e, utf8.ValidString(k))
		}
		if len(errs) == 0 && (!key.MatchString(k) || !utf8.ValidString(k) || utf8.RuneCountInString(k) > 1024 || len(v) > 4096 || strings.ContainsAny(v, "\x00\r\n\x7f")) {
			t.Errorf("accepted %q=%q", k, v)
		}
		if changed, limits, errs := validate.Update(
			&agboxv1.CreateSpec{Labels: map[string]string{k: v}}, &agboxv1.CreateSpec{Labels: map[string]string{k: v + "x"}},
		); len(changed) != 1 || limits || len(errs) != 0 {
			t.Errorf("a changed label is %v, %v, %v", changed, limits, errs)
		}
	})
}

// checkText holds an error to what can be shown: short, and valid UTF-8 if the input was.
func checkText(t *testing.T, e validate.Error, valid bool) {
	t.Helper()
	if e.Field == "" || !strings.Contains(e.Message, " ") || len(e.Message) > 1000 || valid && !utf8.ValidString(e.Message) {
		t.Errorf("bad text %q for %q", e.Message, e.Field)
	}
}
